"""The HTTP interface: one file per endpoint family."""
