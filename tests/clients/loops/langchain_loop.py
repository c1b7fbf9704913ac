"""A tool loop with LangChain, streamed: ``URL PROMPT chat|responses|messages``. Prints the last answer."""

from __future__ import annotations

import sys
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.clients.loops.shell import SYSTEM, TURNS_MAX, bash


def model_of(dialect: str, url: str) -> Any:
    if dialect == "messages":
        return ChatAnthropic(model="llmd", base_url=url, api_key="none")
    return ChatOpenAI(model="llmd", base_url=f"{url}/v1", api_key="none", use_responses_api=dialect == "responses")


def main(url: str, prompt: str, dialect: str) -> None:
    model = model_of(dialect, url).bind_tools([tool(bash)])
    messages: list[Any] = [SystemMessage(SYSTEM), HumanMessage(prompt)]
    for _ in range(TURNS_MAX):
        answer: Any = None
        for chunk in model.stream(messages):
            answer = chunk if answer is None else answer + chunk
        messages.append(answer)
        if not answer.tool_calls:
            print(answer.text)
            return
        for call in answer.tool_calls:
            messages.append(ToolMessage(bash(**call["args"]), tool_call_id=call["id"]))
    raise RuntimeError(f"no end after {TURNS_MAX} turns")


main(*sys.argv[1:])
