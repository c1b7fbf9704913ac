"""OpenAI's chat completions, text completions and embeddings."""
