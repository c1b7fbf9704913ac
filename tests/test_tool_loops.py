"""Tool loops as agents send them: a turn prefills only new messages, and none of the text that the model generated.

Each family of templates is tested with the conversation sent back as different clients do it. The templates have the
forms of real models' templates, with the simulated model's own token at the end of a turn.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmd.answers.memory import AnswerMemory
from llmd.core.generation_request import (
    ChatPrompt,
    GenerationRequest,
    PlainMessage,
    PlainToolCall,
    RawPrompt,
    Tool,
    ToolChoice,
)
from llmd.core.parts import End, ReasoningPart, SessionReport, TextPart
from llmd.core.sampling_table import RequestedSampling
from llmd.core.session_key import SCRATCH, SessionKey
from llmd.engine.engine import Engine
from llmd.engine.opening import EngineOptions
from llmd.pipeline import answering
from llmd.pipeline.answering import Answering, Observer, make_ready
from llmd.pipeline.parsing import Parsing
from llmd.pipeline.prompt import rendered
from llmd.pipeline.services import Sender, Services
from llmd.turns.log import TurnLog

TEMPLATES = Path(__file__).parent / "templates"
FAMILIES = sorted(file.stem for file in TEMPLATES.glob("*.jinja"))
ENDS = ("<|eot_id|>", "<｜end▁of▁sentence｜>", "<|call|>", "<turn|>", "<|tool_response>", "<|observation|>",
        "<|END_OF_TURN_TOKEN|>", "<|end_of_msg|>")  # fmt: skip
"""Texts that end a turn in these models. The simulated model has its own."""
END = "<|im_end|>"
ONE_CALL = ("llama31",)
"""Families whose answers contain at most one tool call."""
SENDER = Sender(owner=0, n_bytes=1000, is_large=False)
KEY = SessionKey("work", "session_id")
SLACK = 32
"""Tokens that a turn may prefill in addition to its new messages."""
WORD = re.compile(r"<[^<>]*>|\w+|[^\w\s]+|\s+")
"""Matches text of a template that is at most one token in real vocabularies. The simulated vocabulary has a token per
letter.
"""
TOKEN_CHARS = 4
"""Characters of a template's own text per token in a real vocabulary. The simulated vocabulary has a token per
letter.
"""


# --- what clients make of an answer --

Echo = Callable[[PlainMessage], PlainMessage]


def written_anew(arguments: str) -> str:
    """Returns the arguments as a client that parses JSON writes them again: with other spaces and another order, and
    with numbers as JavaScript writes them.
    """

    def plain(value: object) -> object:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, dict):
            return {name: plain(value[name]) for name in reversed(value)}
        return value

    return json.dumps(plain(json.loads(arguments)), separators=(",", ":"), ensure_ascii=False)


def _anew(message: PlainMessage, reasoning: str | None) -> PlainMessage:
    calls = tuple(msgspec.structs.replace(call, arguments=written_anew(call.arguments)) for call in message.tool_calls)
    content = message.content if message.content.strip() else ""
    return msgspec.structs.replace(message, tool_calls=calls, content=content, reasoning=reasoning)


ECHOES: dict[str, Echo] = {
    "pi, opencode": lambda message: _anew(message, message.reasoning),
    "qwen-code": lambda message: _anew(message, message.reasoning and message.reasoning.strip()),
    "Claude Code, Continue": lambda message: _anew(message, None),
    "codex": lambda message: msgspec.structs.replace(message, reasoning=None),
}


# --- a loop --


def called(*names: str, text: str = " \n", start: int = 0) -> PlainMessage:
    calls = tuple(
        PlainToolCall(name, '{"path": "src/größe.py", "line": 1.0, "deep": {"a": true}}', f"call{start + n:05}")
        for n, name in enumerate(names)
    )
    return PlainMessage("assistant", text, calls, reasoning=" I should look.\n")


def results(answer: PlainMessage, turn: int) -> list[PlainMessage]:
    return [
        PlainMessage("tool", f"Result {turn} of {call.id}: 4{turn} lines.", tool_call_id=call.id, name=call.name)
        for call in answer.tool_calls
    ]


def script(n_calls: int) -> list[PlainMessage]:
    """Returns the model's answer to each turn."""
    return [
        called(*("read", "list")[:n_calls]),
        called("edit", text="I change it.", start=10),
        called("read", start=20),
        PlainMessage("assistant", "Done: it is smaller now.", reasoning="That was all."),
        called("run", start=30),
        PlainMessage("assistant", "The tests pass."),
        PlainMessage("assistant", "You are welcome."),
    ]


@dataclass
class Loop:
    """An agent and its server, which exchange turns."""

    services: Services
    echo: Echo
    messages: list[PlainMessage] = field(default_factory=list)
    n_turns: int = 0
    variables: dict[str, Any] = field(default_factory=dict)
    tokens: bytes = b""
    """The tokens of the last prompt."""
    saying: PlainMessage | None = None
    """The message that the parser returns for the model's next answer."""

    async def turn(self, new: list[PlainMessage], answer: PlainMessage) -> SessionReport:
        """Sends one turn. The answer must equal the answer to the same tokens without a session."""
        self.messages += new
        self.saying, self.n_turns = answer, self.n_turns + 1
        text, end, self.tokens = await self.said(ChatPrompt(list(self.messages), self.variables), KEY)
        cold, _, _ = await self.said(RawPrompt(memoryview(self.tokens).cast("i").tolist()), SCRATCH)
        assert text.split() == cold.split(), "a parser may leave out blanks"
        self.messages.append(self.echo(answer))
        return end.session

    async def said(self, prompt: ChatPrompt | RawPrompt, key: SessionKey) -> tuple[str, End, bytes]:
        asked = GenerationRequest(
            prompt=prompt,
            key=key,
            sampling=RequestedSampling(temperature=1.0, seed=self.n_turns),
            max_tokens=300,
            is_cold=key is SCRATCH,
        )
        ready = await make_ready(self.services, asked, SENDER)
        one = Answering(self.services, ready, lambda: Observer(lambda: None, lambda _: None))
        await one.admission()
        parts = await one.all_parts()
        one.release()
        text = "".join(part.text for part in parts if isinstance(part, TextPart | ReasoningPart))
        end = parts[-1]
        assert isinstance(end, End)
        return text, end, one.generations[0].work.prompt.tokens

    async def check_consumed(self, report: SessionReport, new: list[PlainMessage]) -> None:
        """Checks that the turn prefilled only the new messages as the template renders them, the end of the last answer
        and the start of the next one. The last two have at most 32 tokens together.
        """
        assert report.history == "resident" and report.session_reset_reason == "exact_prefix", report
        text = await self.services.engine.detokenize(0, self.tokens[-4 * report.prefilled_prompt_tokens :])
        assert all(text.count(message.content) == 1 for message in new), text
        whole, opened = await self.written(has_opening=False), await self.written(has_opening=True)
        opening = opened.removeprefix(whole)
        before, _, rest = text.removesuffix(opening).partition(new[0].content)
        ended, end, form = before.rpartition(END)
        assert text.endswith(opening) and whole.endswith(form + new[0].content + rest), text
        assert len(WORD.findall(ended + end + opening)) <= SLACK, text

    async def written(self, *, has_opening: bool) -> str:
        """Returns all messages but the last answer, as the template renders them for a new session. The system message
        is left out, because some templates write it into the last message.
        """
        messages, variables = [one for one in self.messages[:-1] if one.role != "system"], self.variables
        prompt = ChatPrompt(messages, variables, has_opening=has_opening, history="template")
        return (await rendered(self.services, prompt, SCRATCH, "", SENDER, is_dry_run=True)).prompt.text.decode()

    async def run(self, turns: list[PlainMessage]) -> list[SessionReport]:
        """Runs all turns. Each turn but the first prefills only what is new."""
        new = [PlainMessage("system", "You are careful. " * 20), PlainMessage("user", "Make the file smaller.")]
        reports = []
        for number, answer in enumerate(turns):
            report = await self.turn(new, answer)
            if number:
                await self.check_consumed(report, new)
            reports.append(report)
            new = results(answer, number) or [PlainMessage("user", f"And now number {number}.")]
        return reports


@asynccontextmanager
async def looping(model: str, template: str, monkeypatch: pytest.MonkeyPatch, echo: Echo) -> AsyncIterator[Loop]:
    engine = await Engine.open(EngineOptions(model=model, n_ctx=100_000, chat_template=template))
    services = Services(
        engine=engine,
        answers=AnswerMemory(),
        turns=TurnLog(engine.session_table),
        history="resident",
        scratch_reuse=True,
    )
    loop = Loop(services, echo)

    def message_of(_: object) -> PlainMessage:
        assert loop.saying is not None
        return loop.saying

    monkeypatch.setattr(answering, "message_of", message_of)
    monkeypatch.setattr(Parsing, "message", message_of)
    yield loop
    await engine.close()


def template_of(family: str) -> str:
    text = (TEMPLATES / f"{family}.jinja").read_text()
    for end in ENDS:
        text = text.replace(end, END)
    return text.replace("eos_token", f"'{END}'") + f"{{#- families are known by their words: {' '.join(ENDS)} -#}}"


@pytest.mark.parametrize("model", ["dense", "hybrid"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_turn_of_a_loop_consumes_what_is_new(family: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = script(1 if family in ONE_CALL else 2)
    for echo in ECHOES.values():
        async with looping(f"sim:{model},ctx=100000", template_of(family), monkeypatch, echo) as loop:
            await loop.run(turns)


async def test_a_template_that_rewrites_the_past_makes_it_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above would prove nothing if this failed. The template leaves out reasoning and renders tool calls
    again.
    """
    async with looping("sim:hybrid,ctx=100000", template_of("qwen3"), monkeypatch, ECHOES["pi, opencode"]) as loop:
        loop.services = dataclasses.replace(loop.services, history="template")
        new = [PlainMessage("user", "Make the file smaller.")]
        first, then = script(1)[:2]
        await loop.turn(new, first)
        report = await loop.turn(results(first, 1), then)
        assert report.history is None and report.session_reset_reason != "exact_prefix"


async def test_other_variables_keep_the_past_unless_they_change_what_the_system_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thinking is switched off for a turn. For most models this changes only how the answer starts."""
    for family, history in (("qwen3", "resident"), ("gemma4", None)):
        async with looping("sim:dense,ctx=100000", template_of(family), monkeypatch, ECHOES["codex"]) as loop:
            await loop.turn([PlainMessage("system", "Be brief."), PlainMessage("user", "Read it.")], called("read"))
            loop.variables = {"enable_thinking": False}
            report = await loop.turn(results(called("read"), 1), called("edit"))
            assert report.history == history
            report = await loop.turn(results(called("edit"), 2), called("read"))
            assert report.history == "resident"


# --- what sessions share --

TOOLS = tuple(
    Tool(f"tool_{n}", f"Does thing number {n}, and nothing else.", {"type": "object", "properties": {"path": {}}})
    for n in range(8)
)
NO_TOOLS = ("deepseek_r1", "deepseek_v31")
"""Families whose templates do not render the tools. Their prompts may have nothing to share."""


@pytest.mark.parametrize("system", ["", "You are careful. " * 20], ids=["tools", "system and tools"])
@pytest.mark.parametrize("model", ["dense", "window", "recurrent", "hybrid"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_new_session_consumes_its_question(
    family: str, model: str, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system message and the tools, which rarely change, are restored from a kept copy."""

    async with looping(f"sim:{model},ctx=100000", template_of(family), monkeypatch, ECHOES["codex"]) as loop:
        loop.saying = PlainMessage("assistant", "It is done.")
        for n, question in enumerate(("Where is it?", "Another thing: is the parser right, or is it not?")):
            said = [PlainMessage("system", system)] if system else []
            _, end, tokens = await loop.said(
                ChatPrompt([*said, PlainMessage("user", question)], tools=TOOLS, tool_choice=ToolChoice("none")),
                SessionKey(f"s{n}", "session_id"),
            )
        consumed = tokens[-4 * end.session.prefilled_prompt_tokens :]
        text = await loop.services.engine.detokenize(0, consumed)
        assert question in text and (end.session.reused_prompt_tokens > 0 or family in NO_TOOLS)
        assert len(text) <= len(question) + SLACK * TOKEN_CHARS, text
