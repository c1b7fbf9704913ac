"""OpenAI's responses as they travel. Types only, no I/O."""

from .answer import InputItemList, InputTokens, Response, ResponseDeleted
from .request import ResponseRequest

__all__ = ["InputItemList", "InputTokens", "Response", "ResponseDeleted", "ResponseRequest"]
