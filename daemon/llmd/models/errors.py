"""The error that every module of this package raises."""

from __future__ import annotations


class ModelError(Exception):
    """Raised if no model can be found, chosen or downloaded. The message is one sentence that says what to do. The
    caller prints the user's name of the model before the message. So most messages do not contain this name.
    """
