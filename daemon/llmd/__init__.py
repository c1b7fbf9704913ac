"""llmd: serves many conversations with one loaded language model, and keeps the model's state of each conversation."""

__version__ = "0.1.0"
