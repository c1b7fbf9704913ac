"""The packages that a wheel requires, the versions that the checkout pins, and the lowest tested versions agree."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
SETS = sorted(path.stem for path in REQUIREMENTS.glob("*.in"))


def asked(name: str) -> dict[str, str]:
    """Returns the packages that an .in file names, each with its version, such as "==1.2", or with ""."""
    lines = [line.partition("#")[0].strip() for line in (REQUIREMENTS / f"{name}.in").read_text().splitlines()]
    return {re.split(r"[=<>]", line)[0]: re.sub(r"^[\w-]+", "", line) for line in lines if line and line[0] != "-"}


def pinned(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w-]+)==([\w.]+)", (REQUIREMENTS / f"{name}.txt").read_text(), re.MULTILINE)
    return dict(found)


def floors(section: str = "options", key: str = "install_requires") -> dict[str, str]:
    """Returns the lowest versions of packages that this list in setup.cfg allows."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = [line for line in config[section][key].splitlines() if line]
    return {name: version for name, _, version in (line.partition(">=") for line in lines)}


def floors_of_extra() -> dict[str, str]:
    return floors("options.extras_require", "otel")


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_a_wheel_asks_for_what_the_checkout_installs() -> None:
    assert set(floors()) == set(asked("runtime"))
    assert set(floors_of_extra()) == set(asked("otel"))


def test_the_lowest_versions_are_the_floors() -> None:
    """`./build.sh test-lowest` runs the tests with these versions."""
    lowest, lows = asked("lowest"), floors() | floors_of_extra()
    assert {name: lowest[name] for name in lows} == {name: f"=={version}" for name, version in lows.items()}


@pytest.mark.parametrize("name", sorted(floors() | floors_of_extra()))
def test_a_floor_is_not_above_the_pin(name: str) -> None:
    assert number((floors() | floors_of_extra())[name]) <= number((pinned("runtime") | pinned("otel"))[name])


@pytest.mark.parametrize("name", SETS)
def test_what_is_asked_for_is_pinned_with_hashes(name: str) -> None:
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    assert set(asked(name)) <= set(pinned(name))
    for block in re.split(r"^(?=[\w-]+==)", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block.splitlines()[0]


@pytest.mark.parametrize("name", sorted(pinned("runtime") | pinned("otel")))
def test_tests_run_on_what_is_served_with(name: str) -> None:
    served = {pins[name] for pins in (pinned("runtime"), pinned("otel")) if name in pins}
    assert served == {pinned("test")[name]}
