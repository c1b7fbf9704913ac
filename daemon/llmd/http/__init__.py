"""The HTTP interface of the daemon, except the parts that belong to one API (dialects/)."""
