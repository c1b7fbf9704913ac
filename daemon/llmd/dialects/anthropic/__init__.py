"""Anthropic's messages API, with its endpoint that counts the tokens of a prompt."""
