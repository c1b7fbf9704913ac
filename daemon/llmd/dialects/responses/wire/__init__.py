"""OpenAI's responses as they travel. Types only, no I/O."""

from .answer import InputItemList, Response, ResponseDeleted
from .request import ResponseRequest

__all__ = ["InputItemList", "Response", "ResponseDeleted", "ResponseRequest"]
