"""Constraints, minimum length and stop tokens of answers to raw prompts, from the request to the tokens."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.core.generation_request import Constraint
from llmd.core.parts import End, TextPart
from llmd.core.sampling import sampler_order
from llmd.engine.native import lib
from llmd.pipeline.services import Services
from tests.test_pipeline import all_parts, answering, services

__all__ = ["services"]  # the fixture


async def text_of(services: Services, **fields: Any) -> str:
    one = await answering(services, ignore_end=False, **fields)
    parts = await all_parts(one)
    one.release()
    assert isinstance(parts[-1], End), parts
    return "".join(part.text for part in parts if isinstance(part, TextPart))


@pytest.mark.parametrize(
    ("constraint", "form"),
    [
        (Constraint("choice", json.dumps(["yes", "no"])), r"yes|no"),
        (Constraint("regex", r"[A-F]{2}\d+!"), r"[A-F]{2}\d+!?"),
        (Constraint("grammar", 'root ::= "<" [a-z]+ ">"'), r"<[a-z]+>?"),
        (Constraint("json_schema", json.dumps({"enum": [1, "a", None]})), r'1|"a"|null'),
        (Constraint("json", ""), r"\{.*"),
    ],
    ids=lambda value: value.kind if isinstance(value, Constraint) else "",
)
async def test_an_answer_has_its_form(services: Services, constraint: Constraint, form: str) -> None:
    assert re.fullmatch(form, await text_of(services, constraint=constraint), re.DOTALL)


@pytest.mark.parametrize(
    ("constraint", "says"),
    [
        (Constraint("json_schema", "{"), "no JSON"),
        (Constraint("json_schema", '{"uniqueItems": true}', param="format"), "format: schema: the keyword uniqueItems"),
        (Constraint("grammar", "root ::= root"), "left recursion"),
        (Constraint("regex", "(?<=a)b"), r"\(\?<"),
        (Constraint("choice", "[]"), "1 to 4096"),
        (Constraint("grammar", "#" * (limits.CONSTRAINT_BYTES_MAX // 2 + 1)), "at most 262144"),
    ],
)
async def test_what_cannot_be_kept_to_is_refused(services: Services, constraint: Constraint, says: str) -> None:
    with pytest.raises(ApiError, match=says) as refusal:
        await answering(services, constraint=constraint)
    assert (refusal.value.code, refusal.value.param) == ("invalid_value", constraint.param)


async def test_a_form_that_leads_nowhere_is_a_failure_of_its_own(services: Services) -> None:
    one = await answering(services, constraint=Constraint("grammar", 'root ::= "a" <[258]> "b"'), is_stream=False)
    with pytest.raises(ApiError, match="constraint_failed"):
        await one.all_parts()
    one.release()


async def test_least_length_and_stop_tokens(services: Services) -> None:
    free = await text_of(services, max_tokens=30, stop=[" "])
    assert " " not in free
    longer = await text_of(services, max_tokens=30, stop=[" "], min_tokens=20)
    assert longer.startswith(free) and longer.count(" ") > 0
    digits = Constraint("grammar", 'root ::= "12345"')
    assert await text_of(services, constraint=digits, stop_tokens=[ord("4")]) == "123"
    with pytest.raises(ApiError, match="stop_token_ids"):
        await answering(services, stop_tokens=[512])
    with pytest.raises(ApiError, match="at most 128"):
        await answering(services, stop_tokens=[1] * 129)


def test_limits_are_those_of_the_engine() -> None:
    assert limits.CONSTRAINT_BYTES_MAX == lib.LLM_CONSTRAINT_BYTES_MAX
    assert limits.STOP_STRINGS_MAX == lib.LLM_STOPS_MAX - lib.LLM_TEMPLATE_STOPS_MAX
    assert limits.STOP_TOKENS_MAX == lib.LLM_STOP_TOKENS_MAX
    assert limits.DRY_BREAKERS_MAX == lib.LLM_DRY_BREAKERS_MAX


def test_samplers_have_their_order() -> None:
    assert sampler_order("samplers", ["top_k", "temperature"]) == 0x94 == sampler_order("samplers", "kt")
    assert sampler_order("samplers", "typical_p;temp") == 0x95 and sampler_order("samplers", "top_p") == 6
    assert sampler_order("samplers", []) == sampler_order("samplers", "") == 15
    assert sampler_order("samplers", ["top-k", "TOP_K", "infill"]) == 0xA44 == sampler_order("samplers", "kki")
    with pytest.raises(ApiError, match="samplers: 'best' is not one of penalties, dry"):
        sampler_order("samplers", ["best"])
    with pytest.raises(ApiError, match="17 samplers; at most 16"):
        sampler_order("samplers", ["top_k"] * 17)
