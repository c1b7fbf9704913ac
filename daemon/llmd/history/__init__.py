"""The answers' tokens, and what is told about past turns."""
