"""A tool loop with openai-agents, streamed: ``URL PROMPT chat|responses``. Prints the last answer."""

from __future__ import annotations

import asyncio
import sys

from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from tests.clients.loops.shell import SYSTEM, bash


async def main(url: str, prompt: str, dialect: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    make = OpenAIChatCompletionsModel if dialect == "chat" else OpenAIResponsesModel
    model: Model = make(model="llmd", openai_client=client)
    agent = Agent(name="worker", instructions=SYSTEM, tools=[function_tool(bash)], model=model)
    run = Runner.run_streamed(agent, prompt)
    async for _ in run.stream_events():
        pass
    print(run.final_output)


asyncio.run(main(*sys.argv[1:]))
