"""Values and pure functions that every layer can use."""
