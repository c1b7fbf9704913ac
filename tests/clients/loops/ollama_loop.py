"""A tool loop with Ollama's library, streamed: ``URL PROMPT``. Prints the last answer."""

from __future__ import annotations

import sys
from typing import Any

import ollama

from tests.clients.loops.shell import SYSTEM, TURNS_MAX, bash


def main(url: str, prompt: str) -> None:
    client = ollama.Client(host=url)
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
    for _ in range(TURNS_MAX):
        text, thoughts = "", ""
        calls: list[Any] = []
        for chunk in client.chat("llmd", messages, tools=[bash], stream=True):
            text += chunk.message.content or ""
            thoughts += chunk.message.thinking or ""
            calls += chunk.message.tool_calls or []
        messages.append({"role": "assistant", "content": text, "thinking": thoughts, "tool_calls": calls})
        if not calls:
            print(text)
            return
        for call in calls:
            result = bash(**call.function.arguments)
            messages.append({"role": "tool", "tool_name": call.function.name, "content": result})
    raise RuntimeError(f"no end after {TURNS_MAX} turns")


main(*sys.argv[1:])
