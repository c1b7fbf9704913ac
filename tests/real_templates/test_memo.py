"""A prompt is the same whether libllm knows earlier turns of the conversation (chat_memo.h) or not. So is an error."""

from __future__ import annotations

import copy
import json
import os
import random
from itertools import count

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Driver, DriverError, Json, Model
from tests.real_templates.templates import PROMPTS_ONLY, TEMPLATES, Template

N_TURNS = int(os.environ.get("LLMD_TEST_MEMO_TURNS", "12"))
SEED = os.environ.get("LLMD_TEST_MEMO_SEED", "")
FILLER = "word " * 16_000  # libllm keeps only conversations of some size
_owners = count(1)

TEXTS = (
    "Hello.",
    " two\nlines ",
    "a <|im_end|> b",
    "<think>x</think>y",
    "\u00e9\u4f60",
    "",
    "last",
    "40.712776",
    "</tool_response>",
)


def _tool(number: int) -> Json:
    properties = {"a": {"type": "string", "description": f"a{number}"}, "b": {"type": "integer", "default": number}}
    parameters = {"type": "object", "properties": properties, "required": ["a"]}
    return {"type": "function", "function": {"name": f"f{number}", "description": "Does it.", "parameters": parameters}}


_END = "{% if add_generation_prompt %}a:{% endif %}"
ODD = (  # templates whose loops depend on more than their items
    # the end of the conversation
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ m.role }};{% endfor %}",
    "{% for m in messages %}{% if loop.last %}last{% endif %}{{ m.role }};{% endfor %}",
    "{% for m in messages %}{% if loop.nextitem is defined %}{{ loop.nextitem.role }}{% endif %}{{ m.role }};"
    "{% endfor %}",
    "{% for m in messages %}{% if not loop.first %}{{ messages[loop.index0 - 1].role }}{% endif %};{% endfor %}",
    "{% for m in messages %}{{ m.role }}{% if m is sameas messages[-1] %}!{% endif %};{% endfor %}",
    "{% for m in messages %}{% for later in messages[loop.index:] %}{% if later.role == 'user' %}u{% endif %}"
    "{% endfor %};{% endfor %}",
    "{% for m in messages %}{% set n = namespace(any=false) %}{% for later in messages[loop.index:] %}"
    "{% if later.role == 'user' %}{% set n.any = true %}{% endif %}{% endfor %}{{ n.any }};{% endfor %}",
    # values that iterations pass on
    "{% set n = namespace(i=0, last='') %}{% for m in messages %}{% set n.i = n.i + 1 %}{{ n.i }}{{ n.last }}"
    "{% if m.role == 'user' %}{% set n.last = m.role ~ n.i %}{% endif %};{% endfor %}{{ n.i }}{{ n.last }}",
    "{% set n = namespace(last=none) %}{% for m in messages %}{% if n.last and n.last.role == m.role %}same{% endif %}"
    "{% set n.last = m %}{% endfor %}{{ n.last.role }}",
    "{% set n = namespace(i=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set n.i = 1 %}{% else %}{{ n.i }}"
    "{% set n.i = 2 %}{% if n.i == 2 %}two{% endif %}{% endif %}{% endfor %}",
    "{% set last = -1 %}{% for m in messages %}{% if m.role == 'user' %}{% set last = loop.index0 %}{% endif %}"
    "{{ last }};{% endfor %}{{ last }}",
    "{% set n = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set n.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}{% if loop.index0 > n.last %}after {% endif %}{{ m.role }};"
    "{% endfor %}",
    "{% for m in messages %}{% if x is defined %}{{ x }}{% endif %}{% set x = m.role %};{% endfor %}",
    "{% for m in messages %}{% if x is defined %}{{ x.y }}{% endif %}{% set x = namespace(y=m.role) %};{% endfor %}",
    "{% set l = [] %}{% for m in messages %}{% set _ = l.append(m.role) %}{{ l|length }};{% endfor %}{{ l|join }}",
    "{% set n = namespace(l=[]) %}{% for m in messages %}{% set n.l = n.l + [m.role] %}{% endfor %}{{ n.l|join }}",
    "{% set a = namespace(i=0) %}{% set b = namespace(a=a) %}{% for m in messages %}{% set b.a.i = b.a.i + 1 %}"
    "{{ a.i }};{% endfor %}",
    "{% set a = namespace(i=0) %}{% for m in messages %}{% set b = a %}{% set b.i = b.i + 1 %}{{ a.i }};{% endfor %}",
    "{% set a = namespace(i=0) %}{% for m in messages %}{% set l = [a] %}{% set c = l[0] %}{% set c.i = c.i + 1 %}"
    "{{ a.i }};{% endfor %}",
    "{% set a = namespace(i=0) %}{% for m in messages %}{% for k in [1, 2] %}{% set a.i = a.i + k %}{% endfor %}"
    "{{ a.i }};{% endfor %}",
    # macros
    "{% set n = namespace(i=0) %}{% macro f(m) %}{% set n.i = n.i + 1 %}{{ n.i }}{{ m.role }}{% endmacro %}"
    "{% for m in messages %}{{ f(m) }};{% endfor %}",
    "{% macro f(m) %}{{ v }}{{ m.role }}{% endmacro %}{% set v = messages|length %}{% for m in messages %}{{ f(m) }};"
    "{% endfor %}",
    "{% macro f(m, v) %}{{ v }}{{ m.role }}{% endmacro %}{% set v = messages|length %}{% for m in messages %}"
    "{{ f(m, 1) }}{{ v }};{% endfor %}",
    "{% macro f(m) %}odd{% endmacro %}{% macro g(m) %}even{% endmacro %}{% set h = f if messages|length % 2 else g %}"
    "{% for m in messages %}{{ h(m) }};{% endfor %}",
    "{% if messages|length % 2 %}{% macro f(m) %}odd{% endmacro %}{% else %}{% macro f(m) %}even{% endmacro %}"
    "{% endif %}{% for m in messages %}{{ f(m) }};{% endfor %}",
    "{% for m in messages %}{% macro f() %}{{ m.role }}{% endmacro %}{{ f() }}{{ loop.revindex }};{% endfor %}",
    "{% macro f(m, messages) %}{{ messages }}{{ m.role }}{% endmacro %}{% for m in messages %}"
    "{{ f(m, loop.index) }};{% endfor %}",
    "{% macro f() %}{{ caller() }}{% endmacro %}{% for m in messages %}{% call f() %}{{ loop.revindex }}{% endcall %}"
    "{% endfor %}",
    "{% set range = namespace %}{% for m in messages %}{{ range(3)|length if loop.first else dict is defined }}"
    "{% endfor %}",
    # the order of execution
    "{% for m in messages %}{{ m.role }}{% if loop.index == messages|length - 2 %}{% break %}{% endif %};{% endfor %}",
    "{% for m in messages %}{{ m.role }}{% if m.role == 'user' %}{% continue %}{% endif %}{{ loop.revindex }};"
    "{% endfor %}",
    "{% for m in messages %}{% if loop.revindex == 3 %}{% continue %}{% endif %}{{ m.role }};{% endfor %}",
    "{% for m in messages[::-1] %}{{ loop.index }}{{ m.role }};{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.length }}{{ m.role }};{% endfor %}",
    "{% for m in messages[2:] %}{{ m.role }}{% else %}nothing{% endfor %}",
    "{% for m in messages %}{% filter upper %}{{ m.role }}{{ loop.last }}{% endfilter %}{% endfor %}",
    "{% for loop in messages %}{{ loop.role }};{% endfor %}",
    "{% for m in messages %}{% for m in m.tool_calls or [] %}{{ m.function.name }}{{ loop.last }}{% endfor %}"
    "{{ m.role }}{% endfor %}",
    "{% for m in messages %}{% for k, v in m.items() %}{{ k }}{{ loop.index }}{% endfor %}{% endfor %}",
    # values of the request that the template changes
    "{% for m in messages %}{% set m.content = m.role ~ '!' %}{{ m.content }};{% endfor %}",
    "{% macro f() %}{% for m in messages %}{{ m.role }}{% endfor %}{% endmacro %}{{ f() }}"
    "{% set m = messages[1] %}{% set m.role = 'changed' %}{{ f() }}",
    "{% for m in messages %}{% set p = loop.previtem %}{% if p %}{% set p.role = p.role ~ '!' %}{% endif %}{% endfor %}"
    "{% for m in messages %}{{ m.role }}{% endfor %}",
    # errors
    "{% for m in messages %}{{ m.role }}{% if loop.length % 5 == 0 %}{{ raise_exception('five') }}{% endif %};"
    "{% endfor %}",
    "{% for m in messages %}{{ m.nothing.more }}{% endfor %}",
    # what ends the prompt
    "{% for m in messages %}{% if add_generation_prompt and loop.last %}a:{% endif %}{{ m.role }};{% endfor %}",
    "{% for m in messages %}{{ m.role ~ add_generation_prompt }}{% endfor %}",
    "{% for m in messages %}{{ m.role }}{{ strftime_now('%Y')|length }};{% endfor %}",
    "{% for m in messages %}{{ m.role }}{{ enable_thinking }}{{ reasoning_effort }};{% endfor %}",
    "{% for t in tools or [] %}{{ t.function.name }}{{ tools|length }}{{ t|tojson }}{% endfor %}",
)


class _Conversation:
    def __init__(self, seed: str) -> None:
        self.chance = random.Random(seed)
        self.messages: list[Json] = [{"role": "user", "content": FILLER}]
        self.n_tools = self.chance.randrange(3)
        self.variables: Json = {}
        if self.chance.random() < 0.6:
            self.messages.insert(0, {"role": "system", "content": "Be brief."})
        for _ in range(8):
            self.grow()

    def text(self) -> str:
        return self.chance.choice(TEXTS)

    def grow(self) -> None:
        kind = self.chance.random()
        if kind < 0.35:
            self.messages += [self.answer(), {"role": "user", "content": self.text()}]
        elif kind < 0.85:
            ident = f"call{self.chance.randrange(10**5):05}"
            call = {"name": f"f{self.chance.randrange(2)}", "arguments": self.arguments()}
            calls = [{"type": "function", "id": ident, "function": call}]
            self.messages.append({**self.answer(), "tool_calls": calls})
            self.messages.append({"role": "tool", "tool_call_id": ident, "name": call["name"], "content": self.text()})
        else:
            self.messages.append({"role": self.chance.choice(("user", "assistant", "system")), "content": self.text()})

    def arguments(self) -> str:
        if self.chance.random() < 0.05:
            return "not JSON"
        return json.dumps({"a": self.text(), "b": self.chance.choice((1, 2.5, [1, "x"], {"c": None}, 1700000000.123))})

    def answer(self) -> Json:
        reasoning = {"reasoning_content": self.text()} if self.chance.random() < 0.3 else {}
        return {"role": "assistant", "content": self.text(), **reasoning}

    def edit(self) -> None:
        place = self.chance.randrange(len(self.messages))
        kind = self.chance.random()
        if kind < 0.25:
            del self.messages[max(2, place) :]
        elif kind < 0.5:
            self.messages[place] = {**self.messages[place], "content": self.text()}
        elif kind < 0.65:
            del self.messages[place]
        elif kind < 0.8:
            self.messages.insert(place, {"role": self.chance.choice(("system", "user")), "content": self.text()})
        elif kind < 0.9:
            self.n_tools = self.chance.randrange(4)
        else:
            self.variables = self.chance.choice(({}, {"enable_thinking": False}, {"reasoning_effort": "high"}))

    def request(self) -> Json:
        out: Json = {"messages": copy.deepcopy(self.messages), "chat_template_kwargs": self.variables}
        if self.n_tools:
            out["tools"] = [_tool(number) for number in range(self.n_tools)]
        answers = [place for place, one in enumerate(self.messages[:-1]) if one["role"] == "assistant"]
        if answers and self.chance.random() < 0.6:
            out["after"] = {"message": self.chance.choice(answers[-3:])}
        elif self.chance.random() < 0.2:
            out["add_generation_prompt"] = False
        return out


def _found(model: Model, request: Json, *, is_plain: bool) -> object:
    """Returns the prompt, or the error. `is_plain` renders as the first request of a new owner."""
    owner = next(_owners) if is_plain else 0
    try:
        return model.render({**request, "owner": owner}, is_plain=is_plain)
    except DriverError as error:
        assert error.status > 0, error  # the driver did not crash
        return error.status, str(error)


def _check(model: Model, seed: str) -> None:
    conversation = _Conversation(seed)
    for _ in range(N_TURNS):
        request = conversation.request()
        known = _found(model, request, is_plain=False)
        assert known == _found(model, request, is_plain=True), json.dumps(request)[-4000:]
        conversation.grow()
        if conversation.chance.random() < 0.4:
            conversation.edit()


@pytest.mark.parametrize("template", (*TEMPLATES, *PROMPTS_ONLY), ids=lambda template: template.name)
def test_known_turns_change_nothing(template: Template, opened: Open) -> None:
    _check(opened(template), template.name + SEED)


@pytest.mark.parametrize("source", ODD)
def test_known_turns_change_nothing_of_odd_templates(source: str, driver: Driver) -> None:
    turns = "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    for whole in (source + _END, turns + source + _END):
        _check(driver.open(whole, eos="<|im_end|>"), source + SEED)
