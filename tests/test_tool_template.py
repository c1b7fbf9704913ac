"""Some model files have a second chat template, for conversations with tools."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

from llmd.engine.engine import Engine
from llmd.engine.opening import EngineOptions
from tools.tiny_models import tokenizer, writer
from tools.tiny_models.catalog import RECIPES


def _model(directory: Path, templates: Any) -> str:
    """Writes a model file with several named templates, in the form that the package gguf accepts."""
    words = dataclasses.replace(tokenizer.build(), chat_template=templates)
    path = directory / "model.gguf"
    writer.write(path, "model", RECIPES["tiny-dense"].plan(words), words, False)
    return str(path)


async def test_conversations_with_tools_have_the_file_s_template_for_them(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}
    usual, with_tools = "usual", "{% if tools %}{{ tools[0].function.name }} of the second{% endif %}"
    named = [{"name": "default", "template": usual}, {"name": "tool_use", "template": with_tools}]
    for template, own, plain, calling in (
        (named, None, "usual", "f of the second"),
        (named[1:], None, "", "f of the second"),  # the only template is used for all conversations
        (named, "own", "own", "own"),
    ):
        model = _model(tmp_path, template)
        engine = await Engine.open(EngineOptions(model=model, n_ctx=64, chat_template=own))
        for tools, expected in (({}, plain), ({"tools": [tool]}, calling)):
            request = json.dumps({"messages": [{"role": "user", "content": "hi"}], **tools}).encode()
            assert (await engine.render_chat(0, 0, partial(bytes, request))).text == expected.encode()
        await engine.close()
