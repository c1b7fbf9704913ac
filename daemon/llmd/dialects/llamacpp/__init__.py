"""llama.cpp's own completions, and the endpoints that its editor plugins use."""
