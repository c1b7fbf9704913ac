"""Ollama's API, as far as its clients need it of a server with one model."""
