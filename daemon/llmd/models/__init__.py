"""Models by name: finds a model's files on this machine, or downloads them from a hub."""
