"""The error that every module of this package raises."""

from __future__ import annotations


class ModelError(Exception):
    """Raised if no model can be found, chosen or downloaded. The message is one sentence that says what to do. Before
    the message, the caller prints the name of the model as the user wrote it. So most messages do not contain this
    name.
    """
