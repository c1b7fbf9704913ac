"""The dialects that clients speak, a folder each."""
