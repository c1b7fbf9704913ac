"""A tool loop with LiteLLM, streamed: ``URL PROMPT openai|anthropic|ollama_chat``. Prints the last answer."""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm

from tests.clients.loops.shell import FUNCTION, SYSTEM, TURNS_MAX, bash


def main(url: str, prompt: str, provider: str) -> None:
    base = f"{url}/v1" if provider == "openai" else url
    messages: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
    for _ in range(TURNS_MAX):
        chunks = list(
            litellm.completion(
                f"{provider}/llmd", messages, api_base=base, api_key="none", tools=[FUNCTION], stream=True
            )
        )
        answer = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
        messages.append(answer)
        if not answer.tool_calls:
            print(answer.content)
            return
        for call in answer.tool_calls:
            result = bash(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise RuntimeError(f"no end after {TURNS_MAX} turns")


main(*sys.argv[1:])
