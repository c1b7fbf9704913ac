"""The command `llmd doctor`: checks this machine and the options, and says what to do about what is slow or wrong."""
