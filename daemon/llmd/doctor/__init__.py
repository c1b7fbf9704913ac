"""The command `llmd doctor`: checks this machine and the options. If something is slow or wrong, says what to do."""
