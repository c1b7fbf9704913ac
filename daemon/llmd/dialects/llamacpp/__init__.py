"""llama.cpp's own completions, and endpoints that its editor plugins use."""
