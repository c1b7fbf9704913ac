"""Values and pure functions that every layer may use: limits, errors, names of sessions, shares of owners."""
