"""llmd: many warm conversations from one loaded language model."""

__version__ = "0.1.0"
