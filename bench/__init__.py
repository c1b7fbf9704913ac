"""What the documentation claims, measured. See README.md."""
