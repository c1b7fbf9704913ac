"""llmctl: the command line of a running llmd. One file per verb group over one client class."""
