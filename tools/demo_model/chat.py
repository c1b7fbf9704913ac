"""Messages, and their ChatML text. The template here is stored in the model file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
SPECIAL_TOKENS = (PAD, START, END)

TOOLS_BEFORE = "# Tools\n\nYou can call these functions:\n<tools>"
TOOLS_AFTER = (
    "\n</tools>\n\nTo call a function, answer with a JSON object with its name and its arguments inside tool_call tags:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <arguments-object>}\n</tool_call>'
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `tag` is the skill that an assistant message shows."""

    role: str
    content: str
    tag: str = ""


@dataclass(slots=True)
class Conversation:
    """Messages in order, and the tools that the model may call."""

    messages: list[Message] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)


def tools_text(tools: list[dict[str, Any]]) -> str:
    """Returns the tools as the system message lists them."""
    return TOOLS_BEFORE + "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools) + TOOLS_AFTER


def render(conversation: Conversation) -> list[tuple[str, str]]:
    """Returns the text of a conversation in pieces, each with the tag of what the model has to write ('' for the
    rest).
    """
    pieces: list[tuple[str, str]] = []
    messages = conversation.messages
    system = messages[0].content if messages and messages[0].role == "system" else ""
    if conversation.tools:
        text = (system + "\n\n" if system else "") + tools_text(conversation.tools)
        pieces.append((f"{START}system\n{text}{END}\n", ""))
    elif system:
        pieces.append((f"{START}system\n{system}{END}\n", ""))
    for message in messages:
        if message.role == "assistant":
            pieces.append((f"{START}assistant\n", ""))
            pieces.append((f"{message.content}{END}", message.tag or "other"))
            pieces.append(("\n", ""))
        elif message.role == "tool":
            pieces.append((f"{START}user\n<tool_response>\n{message.content}\n</tool_response>{END}\n", ""))
        elif message.role == "user":
            pieces.append((f"{START}user\n{message.content}{END}\n", ""))
    return pieces


def tool_call(name: str, arguments: dict[str, Any]) -> str:
    """Returns the text of a call, as the model writes it and the template renders it again."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"
