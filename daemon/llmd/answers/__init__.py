"""Keeps the tokens of past answers. The next prompt of a conversation continues them."""
