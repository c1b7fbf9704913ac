"""Keeps the tokens of past answers, so that the next prompt of a conversation contains exactly these tokens."""
