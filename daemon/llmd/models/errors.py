"""The error that every module of this package raises."""

from __future__ import annotations


class ModelError(Exception):
    """Raised if no model can be found, chosen or downloaded. The message is one sentence that says what to do. The
    caller prints the name that the user wrote before the message, so most messages do not contain this name.
    """
