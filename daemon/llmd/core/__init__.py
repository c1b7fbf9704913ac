"""Values and pure functions that every layer can use: limits, errors, names of sessions, shares of owners."""
