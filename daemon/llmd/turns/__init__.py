"""What is told about the past turns of a session: how each began and ended, and where it left what was resident."""
