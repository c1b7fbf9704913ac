"""Finds the files of a model on this machine by the model's name, or downloads them from a hub (huggingface.co)."""
