"""What clients speak: a folder each."""
