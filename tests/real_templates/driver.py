"""Typed client of the program template_driver (tests/c/template_driver.cpp).

It renders, masks and parses with libllm, and renders with llama.cpp:

    model = driver.open(source, eos="<|im_end|>", controls=["<|im_start|>"], words=["<tool_call>"])
    prompt = model.render({"messages": [...], "tools": [...]})        # the request as llm_chat_render takes it (llm.h)
    walk = model.walk(prompt.constraint, seed=1, max_bytes=2000)      # a random answer that the sampler's mask allows
    read = model.parse(prompt.syntax, walk.text, pieces=[3])          # the answer as the client gets it
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]


def program() -> Path:
    """Returns the path of the driver that `./build.sh test` built, or the newest if there are several."""
    found = [path for name in ("native*", "portable") for path in ROOT.glob(f"build/{name}/tests/template_driver")]
    if not found:
        raise FileNotFoundError("build/native/tests/template_driver is missing; build it with: ./build.sh test")
    return max(found, key=lambda path: path.stat().st_mtime)


class DriverError(Exception):
    """A command failed. `status` is a number of llm_status (llm_words.h)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt (llm_prompt in llm.h)."""

    text: str
    n_tokens: int
    n_history: int
    n_head: int
    boundaries: list[int]
    is_after: bool
    syntax: str
    constraint: Json | None
    stops: list[str]
    thinking: Json  # of the constraint, token sequences as text

    @property
    def grammar(self) -> str:
        return str(self.constraint["grammar"]) if self.constraint else ""


@dataclass(frozen=True)
class Walk:
    """An answer that the mask allowed. `forced` has the place and the text of tokens that the constraint chose instead
    of the model.
    """

    text: str
    raw: bytes
    is_complete: bool  # the answer may end here
    holds: bool  # the grammar holds at the end
    refused_at: int | None  # first byte of the text that the mask does not allow, or None
    pieces: list[int]  # bytes of each token
    forced: list[tuple[int, str]]


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str
    id: str | None = field(compare=False)

    def values(self) -> Json:
        return _decoded(self.arguments)


def _decoded(text: str) -> Json:
    values = json.loads(text)
    assert isinstance(values, dict), text
    return values


@dataclass(frozen=True)
class Answer:
    """An answer as a client gets it, with the parts of a stream joined."""

    content: str
    reasoning: str
    calls: list[Call]
    diffs: list[Json] = field(compare=False)


def _answer(told: Json) -> Answer:
    return Answer(calls=[Call(**call) for call in told.pop("calls")], **told)


@dataclass(frozen=True)
class Cut:
    """The answer if it ends after n_bytes, parsed in pieces and as a whole."""

    n_bytes: int
    streamed: Answer
    whole: Answer


@dataclass(frozen=True)
class Upstream:
    """The result of llama.cpp's common_chat_templates_apply."""

    prompt: str
    generation_prompt: str
    grammar: str
    is_lazy: bool
    triggers: list[Json]
    thinking_start: str
    thinking_ends: list[str]
    preserved: list[str]
    stops: list[str]


class Driver:
    """One process of the program. A crash is an error of the command that caused it; the next `open` starts another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def open(
        self,
        source: str,
        *,
        bos: str = "",
        eos: str = "",
        ends: Sequence[str] = (),
        controls: Sequence[str] = (),
        words: Sequence[str] = (),
    ) -> Model:
        """A model with this chat template. Its tokens are the 256 bytes, control tokens (bos, eos, ends, controls),
        which only a template can produce in a prompt, and words. eos and ends end an answer."""
        tokens = {"ends": ends, "controls": controls, "words": words}
        return Model(self, {"source": source, "bos": bos, "eos": eos} | tokens)

    def command(self, op: str, **members: object) -> Json:
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"op": op, **members}).encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            status = process.wait()
            self.close()
            raise DriverError(-1, f"the driver ended with status {status} in: {op} {json.dumps(members)[:2000]}")
        answer: Json = json.loads(line)
        if "error" in answer:
            raise DriverError(int(answer["status"]), str(answer["error"]))
        return answer

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._process or self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen([program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process


class Model:
    """A template that the driver holds open. After a crash, the next command opens it again."""

    def __init__(self, driver: Driver, opening: Json) -> None:
        self._driver, self._opening = driver, opening
        self._open()

    def _open(self) -> None:
        self._process = self._driver.process
        self._number = int(self._driver.command("open", **self._opening)["model"])

    @property
    def number(self) -> int:
        if self._driver.process is not self._process:
            self._open()
        return self._number

    def render(self, request: Json) -> Prompt:
        told = self._driver.command("render", model=self.number, request=request)
        return Prompt(text=told.pop("prompt"), **told)

    def walk(
        self,
        constraint: Json | None,
        *,
        text: str | bytes = b"",
        instead: str = "",
        seed: int = 0,
        soft_bytes: int = 200,
        max_bytes: int = 0,
        closers: Sequence[str] = (),
        avoid: Sequence[str] = (),
    ) -> Walk:
        """Generates `text` as far as the mask allows it, then random text, up to max_bytes in total. After the
        constraint has forced a token, the model generates `instead`, if given, in place of the rest of the text.
        Brackets, quotes and `closers` are preferred after soft_bytes, and `avoid` is generated only if nothing else is
        allowed. A lazy grammar allows any text before its trigger, so no random text is added there.
        """
        raw = text.encode() if isinstance(text, str) else text
        told = self._driver.command(
            "walk",
            model=self.number,
            constraint=constraint or {},
            hex=raw.hex(),
            instead=instead,
            seed=seed,
            soft_bytes=soft_bytes,
            max_bytes=max_bytes,
            closers=list(closers),
            avoid=list(avoid),
        )
        return Walk(raw=bytes.fromhex(told.pop("hex")), forced=[(at, said) for at, said in told.pop("forced")], **told)

    def parse(self, syntax: str, text: str | bytes, *, pieces: Sequence[int] = (), is_cut: bool = False) -> Answer:
        """Parses the text in pieces of these sizes in bytes, which repeat, or as a whole if there are no sizes.
        `is_cut` means that a limit or a stop string ended the answer.
        """
        raw = text.encode() if isinstance(text, str) else text
        told = self._driver.command(
            "parse", model=self.number, syntax=syntax, hex=raw.hex(), pieces=list(pieces), cut=is_cut
        )
        return _answer(told)

    def cuts(self, syntax: str, text: str, pieces: Sequence[int], *, is_cut: bool) -> list[Cut]:
        """Returns the answer as if it ended after each of the pieces, which have these sizes in bytes."""
        raw = text.encode()
        told = self._driver.command(
            "cuts", model=self.number, syntax=syntax, hex=raw.hex(), pieces=list(pieces), cut=is_cut
        )
        return [Cut(cut["n_bytes"], _answer(cut["streamed"]), _answer(cut["whole"])) for cut in told["cuts"]]

    def upstream(self, messages: list[Json], **inputs: object) -> Upstream:
        """Returns llama.cpp's own rendering. The inputs are tools, tool_choice, parallel_tool_calls,
        add_generation_prompt, continues, enable_thinking, reasoning_format, json_schema and kwargs.
        """
        return Upstream(**self._driver.command("upstream", model=self.number, messages=messages, **inputs))
