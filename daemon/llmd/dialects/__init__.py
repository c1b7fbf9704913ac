"""The dialects (APIs) that clients use, one folder each."""
