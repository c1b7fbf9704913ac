"""A tool loop with LlamaIndex's agent, streamed: ``URL PROMPT``. Prints the last answer."""

from __future__ import annotations

import asyncio
import sys

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike

from tests.clients.loops.shell import SYSTEM, bash


async def main(url: str, prompt: str) -> None:
    model = OpenAILike(
        model="llmd", api_base=f"{url}/v1", api_key="none", is_chat_model=True, is_function_calling_model=True
    )
    agent = FunctionAgent(tools=[bash], llm=model, system_prompt=SYSTEM)
    print(await agent.run(user_msg=prompt))


asyncio.run(main(*sys.argv[1:]))
