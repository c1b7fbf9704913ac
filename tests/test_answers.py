"""Past answers keep their generated tokens. A client that sends an answer back unchanged reuses the session; an edited
answer is rendered as the client sent it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmd.answers.digest import digests_of as memory_digests
from llmd.answers.memory import Answer, AnswerMemory, Past, answer_of
from llmd.core import limits
from llmd.core.generation_request import ChatPrompt, PlainMessage, Tool
from llmd.engine.wire import Close, Rename, Reset
from llmd.pipeline import prompt
from llmd.pipeline.rendering import Form, render_request
from tests.conftest import Serve
from tests.conversation import digests_of, read
from tests.serving import SETTLE_S, Daemon, Json

OWNER = 0

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "header of two words": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|header|>\\n\\n' + m.content | trim + '<|im_end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|header|>\\n\\n' }}{% endif %}"
    ),
    "no system role": (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% set role = 'model' if m.role == 'assistant' else m.role %}"
        "{{ '<|im_start|>' + role + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>model\\n' }}{% endif %}"
    ),
    "no generation prompt": (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content + '<|im_end|>' }}{% else %}"
        "{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}"
    ),
    "reasoning opens the next answer and is taken out of past ones": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content.split('</think>')[-1].lstrip('\\n') + "
        "'<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    ),
}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str | None, *calls: tuple[str, Any], **fields: Any) -> Json:
    tool_calls = [{"id": f"c{n}", "function": {"name": name, "arguments": a}} for n, (name, a) in enumerate(calls)]
    return {"role": "assistant", "content": text, **({"tool_calls": tool_calls} if calls else {}), **fields}


def digest(*messages: Json) -> bytes:
    return digests_of(list(messages))[-1]


# --- what is the same ------------------------------------------------------------------------------------------------

CALL = assistant(None, ("f", '{"a": 1, "b": [1, 2.0, {"c": null}]}'))


@pytest.mark.parametrize(
    ("said", "echoed"),
    [
        (assistant(""), assistant(None)),
        (assistant(""), assistant(" \n")),
        (assistant("a\nb"), assistant([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])),  # type: ignore[arg-type]
        (assistant("a"), assistant("a", reasoning_content="why")),
        (assistant("a"), assistant("a", reasoning="why")),
        (assistant("<think>why</think>\n\na"), assistant("a")),
        (CALL, assistant("", ("f", '{"b":[1,2,{"c":null}],"a":1}'))),
        (CALL, assistant(" ", ("f", {"b": [1, 2, {"c": None}], "a": 1}))),
        (assistant(None, ("f", "")), assistant(None, ("f", "{}"))),
        (assistant(None, ("f", "{broken")), assistant(None, ("f", "{broken"))),
    ],
)
def test_an_echo_is_recognized(said: Json, echoed: Json) -> None:
    assert digest(user("q"), said) == digest(user("q"), echoed)


@pytest.mark.parametrize(
    ("said", "echoed"),
    [
        (assistant("a"), assistant("b")),
        (assistant("a"), assistant("a ")),
        (assistant("a"), user("a")),
        (assistant("about <think> and </think> a"), assistant("about a")),
        (CALL, assistant(None)),
        (CALL, assistant(None, ("g", '{"a": 1, "b": [1, 2.0, {"c": null}]}'))),
        (CALL, assistant(None, ("f", '{"a": 1, "b": [2, 1, {"c": null}]}'))),
        (CALL, assistant("x", ("f", '{"a": 1, "b": [1, 2.0, {"c": null}]}'))),
        (assistant(None, ("f", "1")), assistant(None, ("f", "true"))),
    ],
)
def test_an_edit_is_noticed(said: Json, echoed: Json) -> None:
    assert digest(user("q"), said) != digest(user("q"), echoed)


def test_an_edit_changes_all_that_follows() -> None:
    assert digest(user("q"), assistant("a"), user("r"), assistant("b")) != digest(
        user("q!"), assistant("a"), user("r"), assistant("b")
    )
    assert digest(user("q"), user("r"), assistant("a")) != digest(user("r"), user("q"), assistant("a"))


def test_digests_are_those_of_earlier_daemons() -> None:
    """Otherwise no answer that an earlier daemon stored would be found."""
    call = ("f", '{"b":[1.0,{"c":null}],"a":"\u00e9"}')
    messages = [
        {"role": "system", "content": "s"},
        {**user("q"), "name": "me"},
        assistant("", call, reasoning_content="hm"),
        {"role": "tool", "content": "42", "tool_call_id": "c"},
        assistant("<think>x</think>\n\nForty-two."),
    ]
    assert [digest.hex() for digest in digests_of(messages)] == [
        "7a6f9c8927cdbd1452e63cf40b8785ad",
        "4b7374eb10bb09cf9e9b17ab99aaee29",
        "0b3a4cbe5388878f6fc0b7e4d7ed8622",
        "3ff8742e3e4bc029dd78e43941b0f28d",
        "5f120bae7c1c6a7fd8b5417a37138ca2",
    ]


# --- what is kept ----------------------------------------------------------------------------------------------------


def tokens(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def speller(pieces: list[bytes]) -> Callable[[bytes], bytes]:
    return lambda ids: b"".join(pieces[number] for number in memoryview(ids).cast("i"))


SPELL = speller([b"<", b"one", b" two", "\u00e9".encode()[:1], "\u00e9".encode()[1:], b""])


@pytest.mark.parametrize(
    ("generated", "text", "kept", "rest"),
    [
        ((1, 2), "one two", (1, 2), ""),
        ((1, 2, 5), "one two", (1, 2, 5), ""),
        ((1,), "one two", (1,), " two"),  # the last token is not resident
        ((1, 2), "one", (1,), ""),  # a stop string
        ((1, 2), "one t", (1,), " t"),  # a stop string within a token
        ((1, 3, 4), "one\u00e9", (1, 3, 4), ""),
        ((1, 3), "one\u00e9", (1,), "\u00e9"),  # the end of the character is not resident
        ((1, 3), "one\ufffd", (1, 3), ""),
        ((2, 2), "one", (), "one"),  # tokens of another answer
        ((), "one", (), "one"),
    ],
)
def test_tokens_are_kept_as_far_as_they_spell_the_text(
    generated: tuple[int, ...], text: str, kept: tuple[int, ...], rest: str
) -> None:
    assert answer_of(tokens(0), tokens(*generated), text, SPELL) == Answer(tokens(0, *kept), rest)


def test_tokens_of_quite_another_text_are_not_kept() -> None:
    assert answer_of(tokens(0), tokens(*[2] * 1000), "one", SPELL) is None


def test_a_long_answer_is_judged_as_a_short_one() -> None:
    """Only the last tokens are compared one by one, because only the last tokens can be left out."""
    chance, most = random.Random(7), limits.ANSWER_TOKENS_LEFT_OUT_MAX
    for _ in range(60):
        generated = chance.choices((0, 1, 2, 3, 4, 5), k=most + chance.randrange(-2, 6))
        n_said = max(len(generated) - chance.randrange(most + 4), 0)
        text = SPELL(tokens(*generated[:n_said])).decode("utf-8", "replace") + chance.choice(("", "x", "\ufffd"))
        fits = [
            n
            for n in range(len(generated), max(len(generated) - most, 0) - 1, -1)
            if text.startswith(SPELL(tokens(*generated[:n])).decode("utf-8", "replace"))
        ]
        answer = answer_of(b"", tokens(*generated), text, SPELL)
        assert (answer is None) == (not fits)
        if answer is not None:
            said = SPELL(answer.tokens).decode("utf-8", "replace")
            assert answer.tokens == tokens(*generated[: fits[0]]) and said + answer.rest == text


def test_an_answer_of_others_is_noticed_at_once() -> None:
    asked: list[int] = []

    def spell(ids: bytes) -> bytes:
        asked.append(len(ids))
        return SPELL(ids)

    assert answer_of(b"", tokens(*[1] * 100_000), "two", spell) is None
    assert asked == [4 * (100_000 - limits.ANSWER_TOKENS_LEFT_OUT_MAX)]


def filled(memory: AnswerMemory, session: str, n: int, owner: int = OWNER) -> list[Json]:
    messages: list[Json] = []
    since = b""
    for number in range(n):
        messages += [user(f"q{number}"), assistant(f"a{number}")]
        memory.keep(owner, session, digest(*messages), Answer(tokens(number), "", since))
        since = digest(*messages)
    return messages


def found(memory: AnswerMemory, session: str, messages: list[Json], owner: int = OWNER) -> tuple[int, bytes] | None:
    """Returns the index of the past's last message, and the past's tokens."""
    past = memory.past(owner, session, digests_of(messages))
    return None if past is None else (past.message, past.tokens)


def test_the_past_ends_with_the_last_answer_that_was_not_edited() -> None:
    memory = AnswerMemory()
    messages = filled(memory, "s", 3)
    assert found(memory, "s", [*messages, user("more")]) == (5, tokens(0, 1, 2))
    edited = [*messages[:3], assistant("edited"), *messages[4:]]
    assert found(memory, "s", edited) == (1, tokens(0))
    assert found(memory, "other", messages) is found(memory, "s", messages, owner=1) is None


def test_other_tools_are_another_past() -> None:
    memory, said = AnswerMemory(), [read(user("q")), read(assistant("a"))]
    tools = [Tool("f", "what it does", {"type": "object", "properties": {"a": {}}})]
    memory.keep(OWNER, "s", memory_digests(said, tools)[-1], Answer(tokens(1), ""))
    assert memory.past(OWNER, "s", memory_digests(said, tools)) is not None
    for other in ([], [*tools, *tools], [Tool("f", "something else", {})]):
        assert memory.past(OWNER, "s", memory_digests(said, other)) is None


def test_an_answer_that_is_one_too_many_leaves_its_tokens_to_those_after_it() -> None:
    memory = AnswerMemory(answers_max=4)
    messages = filled(memory, "s", 10)
    assert found(memory, "s", messages) == (19, tokens(*range(10)))
    assert found(memory, "s", messages[:14]) == (13, tokens(*range(7)))
    assert found(memory, "s", messages[:12]) is None
    memory.forget(OWNER, "s")
    assert memory.n_bytes == 0


def test_an_answer_that_comes_again_leaves_its_tokens_to_those_that_went_on_after_it() -> None:
    memory, messages = AnswerMemory(), [user("q"), assistant("abc"), user("more"), assistant("d")]
    first, _, last = digests_of(messages)[1:]
    memory.keep(OWNER, "s", first, Answer(tokens(1), "c"))
    memory.keep(OWNER, "s", last, Answer(tokens(2, 3), "", first))
    memory.keep(OWNER, "s", first, Answer(tokens(1, 9), ""))
    assert found(memory, "s", messages) == (3, tokens(1, 2, 3))
    assert found(memory, "s", messages[:2]) == (1, tokens(1, 9))


@pytest.mark.parametrize("is_replaced", [True, False])
def test_an_answer_is_kept_behind_the_tokens_that_it_went_on_after(is_replaced: bool) -> None:
    memory, messages = AnswerMemory(), [user("q"), assistant("abc"), user("more"), assistant("d")]
    first, _, last = digests_of(messages)[1:]
    visited = memory.record(OWNER, "s")
    if is_replaced:  # otherwise the past answer is missing
        memory.keep(OWNER, "s", first, Answer(tokens(1, 9), ""))
    memory.keep_for(visited, last, Answer(tokens(2, 3), "", first), tokens(1))
    assert found(memory, "s", messages) == (3, tokens(1, 2, 3))


def test_answers_that_refer_to_each_other_are_no_past() -> None:
    memory = AnswerMemory()
    a, b = digests_of([user("q"), assistant("a")])
    memory.keep(OWNER, "s", a, Answer(tokens(1), "", b))
    memory.keep(OWNER, "s", b, Answer(tokens(2), "", a))
    assert memory.past(OWNER, "s", [a, b]) is None


def test_a_fork_and_a_renamed_session_know_what_was_said() -> None:
    memory = AnswerMemory()
    messages = filled(memory, "s", 2)
    memory.copy(OWNER, "s", "fork")
    memory.inherit(OWNER, "s", "child")
    memory.rename(OWNER, "s", "new")
    known = (3, tokens(0, 1))
    assert [found(memory, name, messages) for name in ("fork", "child", "new", "s")] == [known, known, known, None]
    memory.forget(OWNER, "fork")
    memory.inherit(OWNER, "nobody", "child")
    assert [found(memory, name, messages) for name in ("fork", "child")] == [None, known]


def test_an_answer_follows_its_session_and_not_its_name() -> None:
    memory = AnswerMemory()
    visited = memory.record(OWNER, "s")
    memory.rename(OWNER, "s", "new")
    memory.keep_for(visited, digest(user("q"), assistant("a")), Answer(tokens(1), ""))
    assert memory.n_bytes > 0 and [name for _, name, _ in memory.keys()] == ["new"]
    memory.forget(OWNER, "new")
    memory.record(OWNER, "new")  # a new session with the same name
    memory.keep_for(visited, digest(user("q"), assistant("b")), Answer(tokens(2), ""))
    assert memory.n_bytes == 0


def test_the_mode_holds_for_the_session() -> None:
    memory = AnswerMemory()
    assert memory.mode(OWNER, "s") is None
    memory.choose(OWNER, "s", "template")
    memory.choose(OWNER, "s", None)
    assert memory.mode(OWNER, "s") == "template"
    memory.forget(OWNER, "s")
    memory.choose(OWNER, "", "template")
    assert memory.mode(OWNER, "") is None


# --- turns -----------------------------------------------------------------------------------------------------------

SIMULATED = ["sim:dense", "sim:window", "sim:recurrent", "sim:hybrid"]


async def talk(daemon: Daemon, n_turns: int, **fields: Any) -> tuple[list[Json], list[Json]]:
    """Holds a conversation whose client sends every answer back unchanged. Returns the messages, and the report about
    each turn.
    """
    messages: list[Json] = list(fields.pop("messages_before", []))
    reports = []
    for turn in range(n_turns):
        messages.append(user(f"Question {turn}: what about the river?"))
        wanted: Json = {"session_id": "s", "seed": turn, "max_tokens": 40, **fields}
        answer = await daemon.chat(messages=messages, **wanted)
        messages.append(assistant(answer["choices"][0]["message"]["content"]))
        reports.append({**answer["session"], **answer["usage"]})
    return messages, reports


def known(daemon: Daemon, messages: list[Json], session: str = "s") -> int:
    """Returns the number of answers whose tokens are known, together with all tokens before them."""
    digests = digests_of(messages)
    pasts = (daemon.state.answers.past(OWNER, session, digests[: n + 1]) for n in range(len(digests)))
    return len({past.digest for past in pasts if past is not None})


def needed(before: Json, after: Json) -> int:
    """Returns the number of tokens of the second prompt that were not resident after the first turn. The last generated
    token of a turn is never resident.
    """
    return int(after["prompt_tokens"] - (before["prompt_tokens"] + before["completion_tokens"] - 1))


@pytest.mark.parametrize("model", SIMULATED)
async def test_a_turn_consumes_what_is_added(serve: Serve, model: str) -> None:
    daemon = await serve(model=model)
    _, reports = await talk(daemon, 5)
    for before, after in zip(reports, reports[1:], strict=False):
        assert after["session_reset_reason"] == "exact_prefix"
        assert after["prefilled_prompt_tokens"] == needed(before, after)


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_turn_consumes_what_is_added_in_every_form_of_template(serve: Serve, tmp_path: Path, name: str) -> None:
    file = tmp_path / "template.jinja"
    file.write_text(TEMPLATES[name])
    daemon = await serve(model="sim:hybrid", chat_template_file=file)
    _, reports = await talk(daemon, 4)
    assert [report["session_reset_reason"] for report in reports] == ["new", *["exact_prefix"] * 3]


@pytest.fixture
def alternating(tmp_path: Path) -> Path:
    """A template that refuses a conversation unless user and assistant take turns."""
    file = tmp_path / "alternating.jinja"
    refusal = "{{ raise_exception('roles must alternate') }}"
    file.write_text(
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}" + refusal + "{% endif %}"
        "{% endfor %}" + CHATML
    )
    return file


async def test_an_aborted_turn_stays_in_the_history(serve: Serve, alternating: Path) -> None:
    """After an aborted turn, every request has two successive user messages. They are rendered as one message, and the
    session's tokens are still reused.
    """
    daemon = await serve(model="sim:hybrid", chat_template_file=alternating)
    before = [user("Never answered."), assistant(""), user("Nor this.")]
    _, reports = await talk(daemon, 4, messages_before=before)
    assert [report["session_reset_reason"] for report in reports] == ["new", *["exact_prefix"] * 3]
    for earlier, later in zip(reports, reports[1:], strict=False):
        assert later["prefilled_prompt_tokens"] == needed(earlier, later)


async def test_joined_messages_are_one_message(serve: Serve, alternating: Path) -> None:
    daemon = await serve(model="sim:hybrid", chat_template_file=alternating)
    talked = [message for n in range(5) for message in (assistant(f"Answer {n}."), user(f"Question {n}."))]
    for session, first in (("a", [user("one"), user("two")]), ("b", [user("one\n\ntwo")])):
        await daemon.chat(messages=[*first, *talked], session_id=session)
    starts = [daemon.state.turns.by_user(OWNER, session).starts for session in ("a", "b")]
    assert starts[0] == starts[1] and max(starts[0]) == 6


async def test_a_history_that_says_more_behind_the_last_answer_goes_on_after_the_one_before(
    serve: Serve, alternating: Path
) -> None:
    """Two successive answers are joined for this template, so the second cannot be continued as a past answer. The
    messages before both answers can.
    """
    daemon = await serve(model="sim:hybrid", chat_template_file=alternating)
    messages, reports = await talk(daemon, 3)
    messages += [assistant("And this, said by another."), user("Go on.")]
    answer = await daemon.chat(messages=messages, session_id="s", seed=9, max_tokens=40)
    report = {**answer["session"], **answer["usage"]}
    n_second = reports[1]["prompt_tokens"] + reports[1]["completion_tokens"]
    assert report["reused_prompt_tokens"] >= n_second - 1, report


async def test_other_refusals_of_a_template_stay(serve: Serve, alternating: Path) -> None:
    daemon = await serve(model="sim:hybrid", chat_template_file=alternating)
    for messages in ([assistant("One."), user("x")], [assistant("One."), user("x"), user("y")]):
        refused = await daemon.refused({"messages": messages})
        assert (refused.status, refused.error["code"]) == (400, "template_failed")


async def test_without_the_history_a_turn_costs_more(serve: Serve) -> None:
    """Otherwise the tests above would prove nothing. The simulated model generates tokens that its encoder would not
    make from the same text.
    """
    daemon = await serve(model="sim:hybrid")
    _, reports = await talk(daemon, 5, history="template")
    assert "checkpoint" in [report["session_reset_reason"] for report in reports]


async def test_the_option_sets_the_default(serve: Serve) -> None:
    daemon = await serve(model="sim:hybrid", history="template")
    _, reports = await talk(daemon, 5)
    assert "checkpoint" in [report["session_reset_reason"] for report in reports]
    _, reports = await talk(daemon, 5, session_id="t", history="resident")
    assert [report["session_reset_reason"] for report in reports[1:]] == ["exact_prefix"] * 4


@pytest.mark.parametrize(
    "fields",
    [
        {"ignore_eos": False, "max_tokens": 400},
        {"stop": [" the"], "max_tokens": 400},
        {"session_id": None},
        {"messages_before": [{"role": "system", "content": "Be brief."}]},
    ],
    ids=["its own end", "a stop string", "no session", "a system message"],
)
async def test_however_it_ends_and_whoever_asks(daemon: Daemon, fields: Json) -> None:
    _, reports = await talk(daemon, 4, **fields)
    assert [report["session_reset_reason"] for report in reports] == ["new", *["exact_prefix"] * 3]


async def test_a_conversation_that_is_read_in_a_text_thread(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,ctx=65536", ctx_size=65_536)
    before = [{"role": "system", "content": " important children" * (limits.TEXT_SHORT_BYTES // 18)}]
    _, reports = await talk(daemon, 3, messages_before=before)
    assert [report["session_reset_reason"] for report in reports] == ["new", "exact_prefix", "exact_prefix"]


async def test_answers_that_no_prompt_could_hold_are_left_to_the_template(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, _ = await talk(daemon, 2)
    after: list[bool] = []

    def watched(asked: ChatPrompt, messages: list[PlainMessage], past: Past | None, form: Form) -> bytes:
        after.append(past is not None)
        return render_request(asked, messages, past, form)

    monkeypatch.setattr(prompt, "render_request", watched)
    past = daemon.state.answers.past(OWNER, "s", digests_of(messages))
    assert past is not None
    for n_ctx in (10_000, len(past.tokens) // 4, len(past.tokens) // 4 - 1):
        monkeypatch.setattr(daemon.state.engine, "info", dataclasses.replace(daemon.state.engine.info, n_ctx=n_ctx))
        asked = {"messages": [*messages, user("more")], "session_id": "s"}
        assert (await daemon.ask("POST", "/apply-template", asked)).status == 200
    assert after == [True, True, False, False], "what does not fit behind the past is tried without it"


async def test_a_stream_is_remembered(daemon: Daemon) -> None:
    messages = [user("What about the river?")]
    for turn in range(4):
        events = await daemon.stream({"messages": messages, "session_id": "s", "seed": turn, "max_tokens": 40})
        messages += [assistant(events.text), user("And then?")]
        assert events.session["session_reset_reason"] == ("exact_prefix" if turn else "new")


async def test_reset_forgets(daemon: Daemon) -> None:
    messages, _ = await talk(daemon, 2)
    assert known(daemon, messages) == 2
    assert (await daemon.ask("POST", "/v1/sessions/s/reset")).status == 200
    assert known(daemon, messages) == 0


@pytest.mark.parametrize("verb", [Close, Reset])
async def test_a_client_that_has_gone_changes_nothing_about_what_is_forgotten(
    daemon: Daemon, verb: type[Close] | type[Reset]
) -> None:
    messages, _ = await talk(daemon, 2)
    asked = asyncio.create_task(daemon.state.engine.ask(verb, OWNER, "s"))
    await asyncio.sleep(0)  # the command is now queued
    asked.cancel()
    await daemon.state.engine.ask(Reset, OWNER, "behind-it")
    assert asked.cancelled()
    assert known(daemon, messages) == 0
    assert daemon.state.turns.story(OWNER, "s") == []


async def test_a_client_that_has_gone_takes_no_answers_from_a_renamed_session(daemon: Daemon) -> None:
    messages, _ = await talk(daemon, 2)
    asked = asyncio.create_task(daemon.state.engine.ask(Rename, OWNER, "s", "new"))
    await asyncio.sleep(0)
    asked.cancel()
    await daemon.state.engine.ask(Reset, OWNER, "behind-it")
    assert known(daemon, messages, "new") == 2
    assert len(daemon.state.turns.story(OWNER, "new")) == 2


@pytest.mark.parametrize("options", [{"capacity_policy": "evict", "max_sessions": 1}, {"session_idle_time": 1}])
async def test_a_session_that_is_given_up_takes_its_answers_along(serve: Serve, options: Json) -> None:
    daemon = await serve(**options)
    messages, _ = await talk(daemon, 2)
    if "max_sessions" in options:
        await daemon.chat("another one", session_id="other")
        daemon.state.answers.forget(OWNER, "other")
    async with asyncio.timeout(SETTLE_S):
        while daemon.state.answers.n_bytes:
            await daemon.state.engine.ask(Reset, OWNER, "nobody")
    assert known(daemon, messages) == 0
    assert daemon.state.turns.story(OWNER, "s") == []


async def test_a_cancelled_answer_is_not_kept(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,length=0,step_us=500,ctx=100000", ctx_size=100_000)
    body: Json = {"messages": [user("q")], "session_id": "s", "max_tokens": 90_000}
    async with daemon.streaming(body):
        pass
    await daemon.idle()
    assert daemon.state.answers.n_bytes == 0


# --- edits -----------------------------------------------------------------------------------------------------------


def edited(messages: list[Json], draw: random.Random) -> list[Json]:
    """Returns a history that was changed at random, as a client might change it."""
    out = [dict(message) for message in messages]
    for _ in range(draw.randint(0, 2)):
        index, other = draw.randrange(len(out)), draw.randrange(len(out))
        kind = draw.choice(["change", "cut", "drop", "swap", "double"])
        if kind == "change":
            out[index]["content"] += draw.choice(["!", " ", "\n", " the"])
        elif kind == "cut":
            out[index]["content"] = out[index]["content"][: len(out[index]["content"]) // 2]
        elif kind == "drop" and len(out) > 2:
            del out[index]
        elif kind == "swap":
            out[index], out[other] = out[other], out[index]
        elif kind == "double":
            out.insert(index, dict(out[index]))
    parts = draw.randrange(len(out))
    out[parts]["content"] = [{"type": "text", "text": out[parts]["content"]}]
    return [*out, user("and then?")]


@pytest.mark.parametrize("seed", range(8))
async def test_an_edited_history_is_what_the_client_says(daemon: Daemon, seed: int) -> None:
    """ChatML writes each message unchanged. So the prompt must spell exactly what the client sent, whether or not it
    continues kept tokens.
    """
    draw = random.Random(seed)
    messages, _ = await talk(daemon, 4, seed=seed)
    for _ in range(12):
        body = {"messages": edited(messages, draw), "session_id": "s"}
        prompts = [
            (await daemon.ask("POST", "/apply-template", {**body, "history": mode})).json["prompt"]
            for mode in ("resident", "template")
        ]
        assert prompts[0] == prompts[1]


async def test_after_an_edit_the_session_continues_from_before_it(daemon: Daemon) -> None:
    messages, reports = await talk(daemon, 3)
    messages[3] = assistant("Something else was said.")
    answer = await daemon.chat(messages=[*messages, user("more")], session_id="s")
    assert answer["session"]["session_reset_reason"] == "rewind"
    assert answer["session"]["reused_prompt_tokens"] >= reports[1]["prompt_tokens"]
