"""The error that every module of this package raises."""

from __future__ import annotations


class ModelError(Exception):
    """No model can be found, chosen or downloaded. The message is one sentence that says what to do. It does not
    contain the name that the user wrote, unless it must.
    """
