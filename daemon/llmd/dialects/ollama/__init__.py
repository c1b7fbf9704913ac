"""Ollama's API, as far as its clients need it from a server with one model."""
