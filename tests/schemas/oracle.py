"""llguidance judges the same files as corpus_driver, for comparison. It runs in an interpreter that has its wheel.

Each line of the input is {path}. For each schema, the output has one line {file, group, llguidance: {...}} in the
driver's format. The vocabulary is the 256 bytes, so that the result depends on no tokenizer. An instance is written
twice, with its own order of members and with the schema's. If llguidance accepts neither, the instance counts as
forbidden.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import llguidance

Json = Any


class Bytes:
    """A tokenizer whose tokens are bytes."""

    eos_token_id = 256
    bos_token_id = None
    tokens = [bytes([i]) for i in range(256)] + [b"\xff[256]"]
    special_token_ids = [256]

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def ranks_of(schema: Json, ranks: dict[str, int]) -> dict[str, int]:
    """Returns the order in which the schema lists its properties."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            for name in schema["properties"]:
                ranks.setdefault(name, len(ranks))
        for value in schema.values():
            ranks_of(value, ranks)
    elif isinstance(schema, list):
        for value in schema:
            ranks_of(value, ranks)
    return ranks


def ordered(value: Json, ranks: dict[str, int]) -> Json:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: ranks.get(name, len(ranks)))
        return {name: ordered(value[name], ranks) for name in names}
    return [ordered(item, ranks) for item in value] if isinstance(value, list) else value


def takes(fresh: Any, value: Json) -> bool:
    data = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    matcher = fresh.deep_copy()
    return bool(matcher.try_consume_tokens(list(data)) == len(data) and matcher.is_accepting())


def judged(tokenizer: Any, group: Json) -> Json:
    before = time.thread_time()
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(group["schema"]))
        fresh = llguidance.LLMatcher(tokenizer, grammar)
        refused = str(fresh.get_error()) if fresh.is_error() else ""
    except ValueError as error:
        refused = str(error)
    out: Json = {"compile_us": (time.thread_time() - before) * 1e6}
    if refused:
        return out | {"refused": refused}
    ranks = ranks_of(group["schema"], {})
    tests = []
    for test in group["tests"]:
        is_taken = takes(fresh, test["data"]) or takes(fresh, ordered(test["data"], ranks))
        tests.append([bool(test["valid"]), is_taken])
    return out | {"tests": tests}


def main() -> None:
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))
    for line in sys.stdin:
        path = json.loads(line)["path"]
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        for i, group in enumerate(content if isinstance(content, list) else [content]):
            if isinstance(group, dict) and "schema" in group:
                print(json.dumps({"file": path, "group": i, "llguidance": judged(tokenizer, group)}))
        print(json.dumps({"end": path}), flush=True)


if __name__ == "__main__":
    main()
