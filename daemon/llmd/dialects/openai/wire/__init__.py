"""Types of the JSON bodies of OpenAI's completions and embeddings. These modules do no I/O."""

from .answer import ChatCompletion, Completion, Embeddings
from .request import REQUESTS, ChatCompletionRequest, CompletionRequest, EmbeddingsRequest, Message

__all__ = [
    "REQUESTS",
    "ChatCompletion",
    "ChatCompletionRequest",
    "Completion",
    "CompletionRequest",
    "Embeddings",
    "EmbeddingsRequest",
    "Message",
]
