"""The past turns of a session: how each began and ended, and where its prompt differed from the session's tokens."""
