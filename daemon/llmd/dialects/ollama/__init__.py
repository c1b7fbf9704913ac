"""Ollama's API, as far as clients of a server with one model need it."""
