"""Files of schemas with instances: which there are, what group each belongs to, seeded samples and mutations of them.

A file is in MaskBench's format, an object {schema, tests: [{valid, data}]}, or in the JSON-Schema-Test-Suite's, a list
of such objects.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Json = Any

MADE_UP = re.compile(r"Handwritten|Synthesized|draft|v1$|latest$")
"""Groups of schemas that were written to test edge cases of validators. The others are schemas that people use."""

LEFT_OUT = {"format.json", "refRemote.json", "vocabulary.json"}
"""Files of the test suite that are left out: they require that formats are not checked, or need other documents."""

AWKWARD: list[Json] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    65,
    2000,
    10**20,
    1e300,
    "",
    "a",
    "integer",
    "#",
    "^a{0,70}b|c$",
    "(",
    [],
    {},
    [[]],
]
KEYWORDS = (
    "type enum const minimum maximum exclusiveMinimum multipleOf minLength maxLength pattern format items prefixItems "
    "additionalItems minItems maxItems uniqueItems contains properties required additionalProperties patternProperties "
    "propertyNames minProperties maxProperties dependencies dependentSchemas anyOf oneOf allOf not if then else "
    "$ref $id"
).split()


def groups_in(path: Path) -> list[Json]:
    """Returns the schemas of a file with their instances, or an empty list if the file has another format."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return []
    groups = content if isinstance(content, list) else [content]
    return [one for one in groups if isinstance(one, dict) and "schema" in one and isinstance(one.get("tests"), list)]


def group_name(path: Path) -> str:
    """Returns MaskBench's name of the collection, or else the name of the file's folder."""
    stem = path.stem
    if "---" in stem:
        return stem.split("---")[0]
    prefix = re.match(r"[A-Z]+(?=_)", stem)
    return prefix[0] if prefix else path.parent.name


def find(folders: list[Path], sample: int | None, seed: int) -> list[Path]:
    """Returns all files below the folders in a fixed order. With `sample`, returns at most so many of each group,
    chosen at random by the seed.
    """
    by_group: defaultdict[str, list[Path]] = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.rglob("*.json")):
            if "optional" not in path.parts and path.name not in LEFT_OUT and groups_in(path):
                by_group[group_name(path)].append(path)
    drawn: list[Path] = []
    for name, paths in sorted(by_group.items()):
        is_all = sample is None or sample >= len(paths)
        drawn += paths if is_all else sorted(random.Random(f"{seed}:{name}").sample(paths, sample or 0))
    return drawn


def mutated(path: Path, n: int, seed: int) -> Iterator[Json]:
    """Yields the schemas of a file with random changes and without instances. Whatever they mean, they must not crash
    the process.
    """
    rng = random.Random(f"{seed}:{path.name}")
    groups = groups_in(path)
    for _ in range(n if groups else 0):
        schema = json.loads(json.dumps(rng.choice(groups)["schema"]))
        for _ in range(rng.randint(1, 8)):
            schema = _damaged(schema, rng)
        yield {"schema": schema, "tests": []}


def _damaged(schema: Json, rng: random.Random) -> Json:
    places = list(_places(schema))
    if not places:
        return {rng.choice(KEYWORDS): copy.deepcopy(rng.choice(AWKWARD))}
    container, key = rng.choice(places)
    other_container, other_key = rng.choice(places)
    other = json.loads(json.dumps(other_container[other_key]))
    awkward = copy.deepcopy(rng.choice(AWKWARD))  # later damage must not change AWKWARD itself
    kind = rng.randrange(5)
    if kind == 0:
        container[key] = awkward
    elif kind == 1:
        container[key] = other
    elif kind == 2:
        del container[key]
    elif isinstance(container, dict):
        container[rng.choice(KEYWORDS)] = other if kind == 3 else awkward
    else:
        container.append(other)
    return schema


def _places(value: Json) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)
