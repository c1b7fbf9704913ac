"""The pipeline between dialects and engine: from a generation request to the parts of its answers."""
