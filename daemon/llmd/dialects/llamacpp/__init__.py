"""llama.cpp's own completions, and what its editors' plugins ask for."""
