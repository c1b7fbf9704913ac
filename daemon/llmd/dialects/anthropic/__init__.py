"""Anthropic's messages, and the counting of their tokens."""
