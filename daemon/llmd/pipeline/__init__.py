"""The pipeline between dialects and engine: from what is asked (core/asked.py) to the parts of answers (parts.py)."""
