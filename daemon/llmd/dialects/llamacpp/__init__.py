"""llama.cpp's own endpoints: /completion, /infill, /embedding, /props and /slots."""
