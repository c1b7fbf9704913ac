"""The dialects are the APIs that clients can use. Each dialect has a folder."""
