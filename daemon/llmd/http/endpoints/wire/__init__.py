"""Requests and answers of llmd's own endpoints, one file per family; here those that the table names. Types only, no
I/O."""

from .explain import Explanation
from .health import Health, Readiness
from .models import Model, ModelList
from .saved import LoadRequest, SavedDeleted, SavedList, SaveRequest, SessionSaved
from .sessions import ForkRequest, PinRequest, RenameRequest, Session, SessionDeleted, SessionList, SessionReset
from .text import DetokenizedText, DetokenizeRequest, RenderedTemplate, TokenizeRequest, Tokens

__all__ = [
    "DetokenizeRequest",
    "DetokenizedText",
    "Explanation",
    "ForkRequest",
    "Health",
    "Model",
    "ModelList",
    "PinRequest",
    "Readiness",
    "RenameRequest",
    "RenderedTemplate",
    "LoadRequest",
    "SaveRequest",
    "SavedDeleted",
    "SavedList",
    "Session",
    "SessionDeleted",
    "SessionList",
    "SessionReset",
    "SessionSaved",
    "TokenizeRequest",
    "Tokens",
]
