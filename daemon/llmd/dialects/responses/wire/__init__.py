"""OpenAI's responses as they travel. Types only, no I/O."""

from .answer import InputItemList, InputTokens, Response, ResponseDeleted
from .request import REQUESTS, ResponseRequest

__all__ = ["REQUESTS", "InputItemList", "InputTokens", "Response", "ResponseDeleted", "ResponseRequest"]
