"""Anthropic's messages, and counting their tokens."""
