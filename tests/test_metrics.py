"""/metrics: every number occurs once, with the name and unit that monitoring expects, and is right."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmd import __version__
from llmd.ctl.client import samples
from llmd.engine.native import COUNTERS, OUTCOME_WORDS
from llmd.http.access import read_keys
from llmd.http.metrics import CONTENT_TYPE, METRICS, PREFIX, RESPONSES, Metrics
from tests.conftest import Serve
from tests.serving import Daemon, chat


async def rendered(daemon: Daemon) -> str:
    answer = await daemon.ask("GET", "/metrics")
    assert answer.headers["Content-Type"] == CONTENT_TYPE
    return answer.body.decode()


# --- the rules of `promtool check metrics` (promlint) ----------------------------------------------------------------

BASE_UNITS = {"amperes", "bytes", "celsius", "grams", "joules", "kelvin", "meters", "metres", "seconds", "volts"}
OTHER_UNITS = {"minutes", "hours", "days", "weeks", "bits", "calories", "pounds", "ounces", "inches", "yards", "miles"}
PREFIXES = ("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega", "mebi", "giga",
            "gibi", "tera", "tebi", "peta", "pebi")  # fmt: skip
ABBREVIATIONS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"}
TYPES = ("gauge", "counter", "histogram", "summary")


@dataclass
class Family:
    name: str
    kind: str = ""
    help: str = ""
    samples: list[str] = field(default_factory=list)


def families(text: str) -> dict[str, Family]:
    found: dict[str, Family] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            _, word, name, rest = (line + " ").split(" ", 3)
            family = found.setdefault(name, Family(name))
            assert not (family.help if word == "HELP" else family.kind), f"{name} has two {word} lines"
            setattr(family, {"HELP": "help", "TYPE": "kind"}[word], rest.strip())
        else:
            name = re.split(r"[{ ]", line)[0]
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            owner = found.get(name) or found[base]
            owner.samples.append(line)
    return found


def complaints(family: Family) -> Iterator[str]:
    name, words = family.name, family.name.split("_")
    if not family.help:
        yield "no help"
    if name.endswith("_total") != (family.kind == "counter"):
        yield "_total is for counters and all counters"
    if family.kind not in ("histogram", "summary") and name.endswith(("_bucket", "_count", "_sum")):
        yield "the ending is a histogram's"
    if family.kind != "histogram" and any('le="' in sample for sample in family.samples):
        yield "the label is a histogram's"
    if any(kind in words for kind in TYPES):
        yield "the name says the type"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        yield "characters"
    for word in words:
        units = BASE_UNITS | OTHER_UNITS
        if word in OTHER_UNITS or any(word == prefix + unit for prefix in PREFIXES for unit in units):
            yield f"{word} is no base unit"
        if word in ABBREVIATIONS:
            yield f"{word} is an abbreviated unit"
    if name.endswith(("_max", "_min")) or any(word in name for word in ("longest", "average", "mean")):
        yield "what is aggregated here cannot be aggregated over time or machines"


def test_the_rules_find_what_they_are_for() -> None:
    wrong = {
        "llmd_steps": "counter", "llmd_evicted_total": "gauge", "llmd_step_microseconds_total": "counter",
        "llmd_step_microseconds_max": "gauge", "llmd_queue_ms": "gauge", "llmd_open_count": "gauge",
        "llmd_size_kilobytes": "gauge", "llmd_steps_counter_total": "counter", "llmd_openFiles": "gauge",
    }  # fmt: skip
    for name, kind in wrong.items():
        assert list(complaints(Family(name, kind, "Help."))), name
    assert list(complaints(Family("llmd_ready", "gauge"))) == ["no help"]
    assert list(complaints(Family("llmd_ready", "gauge", "Help."))) == []


async def test_names_and_units(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    found = families(await rendered(daemon))
    assert {name: list(complaints(family)) for name, family in found.items() if list(complaints(family))} == {}
    assert len(found) == len(COUNTERS) + len(METRICS)


async def test_a_prometheus_client_reads_it(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    text = await rendered(daemon)
    kinds = {metric.name: metric.type for metric in text_string_to_metric_families(text)}
    assert kinds["llmd_time_to_first_token_seconds"] == "histogram"
    assert kinds["llmd_checkpoints_evicted"] == "counter" and kinds["llmd_checkpoints"] == "gauge"
    assert text.endswith("\n") and "_created" not in text


# --- what is counted -------------------------------------------------------------------------------------------------


async def test_counts(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    await daemon.refused(chat(n=0))
    text = await rendered(daemon)
    helps = {row.name: row.help for row in COUNTERS} | {row.name: row.help for row in METRICS}
    for name, help in helps.items():
        assert text.count(f"# TYPE {PREFIX}{name} ") == 1
        assert text.count(f"# HELP {PREFIX}{name} {help}\n") == 1
    values = samples(text)
    assert values["llmd_decode_tokens_total"] == 8
    assert values["llmd_started_new_total"] == 1
    assert values["llmd_sessions_named"] == 1
    assert values["llmd_ready"] == 1
    assert values['llmd_requests_total{endpoint="/chat/completions",outcome="length"}'] == 1
    assert values['llmd_http_responses_total{endpoint="/chat/completions",status="400"}'] == 1
    assert values["llmd_process_resident_memory_bytes"] > 1 << 20
    (build,) = [name for name in values if name.startswith("llmd_build_info{")]
    assert f'version="{__version__}"' in build and values[build] == 1


async def test_the_numbers_are_those_of_the_page(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    values, counters = await daemon.metrics(), daemon.state.engine.session_table.counters()
    assert 0 < values["llmd_step_seconds_total"] < 60
    assert values["llmd_step_seconds_total"] == pytest.approx(counters["step_seconds_total"] / 1e6)
    for name in ("steps_total", "prefill_tokens_total", "sessions_open"):
        assert values[PREFIX + name] == counters[name]


def test_outcomes_have_counters() -> None:
    assert {f"finished_{word}_total" for word in OUTCOME_WORDS} <= {counter.name for counter in COUNTERS}


async def test_labels_are_escaped(daemon: Daemon) -> None:
    metrics = Metrics()
    metrics.add(RESPONSES, endpoint='a"b\\c\nd', status="200")
    assert b'endpoint="a\\"b\\\\c\\nd"' in metrics.render(daemon.state.engine, daemon.state.answers, True)


# --- what is measured ------------------------------------------------------------------------------------------------


def count_of(values: dict[str, float], name: str, **labels: str) -> tuple[float, float]:
    """Returns the count and the sum of a histogram. Checks that the last bucket equals the count."""
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    shown = f"{{{inside}}}" if inside else ""
    last = values[f'{PREFIX}{name}_bucket{{{inside}{"," if inside else ""}le="+Inf"}}'.replace("\\", "")]
    count = values[f"{PREFIX}{name}_count{shown}"]
    assert count == last
    return count, values[f"{PREFIX}{name}_sum{shown}"]


@pytest.mark.parametrize("stream", [False, True])
async def test_every_answer_is_measured_once(daemon: Daemon, stream: bool) -> None:
    began = time.monotonic()
    for _ in range(2):
        await daemon.chat(session_id="a") if not stream else await daemon.stream(chat(session_id="a"))
    took = time.monotonic() - began
    values = await daemon.metrics()
    n_first, first = count_of(values, "time_to_first_token_seconds")
    n_next, following = count_of(values, "time_between_tokens_seconds")
    n_whole, whole = count_of(values, "request_seconds", endpoint="/chat/completions")
    n_queued, _ = count_of(values, "request_queue_seconds")
    assert n_first == n_whole == n_queued == 2
    assert 0 < n_next <= 2 * (8 - 1)
    assert 0 < first and first + following <= whole <= took


async def test_times_are_those_of_the_clock(daemon: Daemon) -> None:
    now = 100.0
    metrics = Metrics(lambda: now)
    watch = metrics.watch(99.0)
    now = 103.0
    watch.text()
    for now in (103.02, 103.04):  # noqa: B007
        watch.text()
    assert watch.seconds() == pytest.approx(4.04)
    values = samples(metrics.render(daemon.state.engine, daemon.state.answers, True).decode())
    assert count_of(values, "time_to_first_token_seconds") == (1, 4)
    assert values['llmd_time_to_first_token_seconds_bucket{le="2.5"}'] == 0
    assert values['llmd_time_to_first_token_seconds_bucket{le="5.0"}'] == 1
    n, total = count_of(values, "time_between_tokens_seconds")
    assert n == 2 and total == pytest.approx(0.04)


async def test_a_refused_request_has_no_first_token(serve: Serve) -> None:
    daemon = await serve(max_sessions=1, capacity_policy="refuse")
    await daemon.chat(session_id="a")
    await daemon.refused(chat(session_id="b"))
    values = await daemon.metrics()
    assert count_of(values, "time_to_first_token_seconds")[0] == 1
    assert values['llmd_requests_total{endpoint="/chat/completions",outcome="refused"}'] == 1


# --- what it costs ---------------------------------------------------------------------------------------------------


async def test_rendering_does_not_hold_up_the_loop(daemon: Daemon) -> None:
    """Compares the smallest of several processor times, because other processes can use the core. Metrics of many
    endpoints and statuses exist.
    """
    metrics = daemon.state.metrics
    for endpoint in range(30):
        for status in range(10):
            metrics.add(RESPONSES, endpoint=f"/v1/some/endpoint/{endpoint}", status=str(status))
    took = []
    for _ in range(5):
        began = time.thread_time()
        metrics.render(daemon.state.engine, daemon.state.answers, True)
        took.append(time.thread_time() - began)
    assert min(took) < 0.02


async def test_usage_of_each_key(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("key-of-ada ada\nkey-of-linus linus\nkey-of-ops ops admin\n")
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys)
    for name, n in (("ada", 2), ("linus", 1)):
        for _ in range(n):
            await daemon.ask("POST", "/v1/chat/completions", chat(session_id=name), headers=bearer(name))
    found = {}
    for name in ("ada", "linus", "ops"):
        answer = await daemon.ask("GET", "/metrics", headers=bearer(name))
        values = samples(answer.body.decode())
        found[name] = {key: value for key, value in values.items() if key.startswith("llmd_owner_")}
    assert found["ops"]['llmd_owner_requests_total{owner="ada"}'] == 2
    assert found["ops"]['llmd_owner_generated_tokens_total{owner="linus"}'] == 8
    assert found["ops"]['llmd_owner_reused_tokens_total{owner="ada"}'] > 0
    assert found["ops"]['llmd_owner_prefilled_tokens_total{owner="ada"}'] > 0
    assert found["ada"] | found["linus"] == found["ops"] and not found["ada"].keys() & found["linus"].keys()


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer key-of-{name}"}


async def test_memory_and_slots(daemon: Daemon) -> None:
    before = samples(await rendered(daemon))
    info = daemon.state.engine.info
    assert before["llmd_slots_free"] == info.n_sessions + info.n_scratch and before["llmd_kv_usage_ratio"] == 0
    await daemon.chat(session_id="a")
    await daemon.chat()
    after = samples(await rendered(daemon))
    assert after["llmd_slots_free"] == before["llmd_slots_free"] - 2
    assert after["llmd_kv_usage_ratio"] == after["llmd_state_used_bytes"] / after["llmd_state_bytes"] > 0
    assert after["llmd_prefill_tokens_per_second_count"] == 2


async def test_the_dashboard_shows_metrics_that_exist(daemon: Daemon) -> None:
    """docs/grafana.json, as far as it can be tested without Grafana."""
    await daemon.chat(session_id="a")
    present = {name.partition("{")[0] for name in samples(await rendered(daemon))}
    present |= {PREFIX + metric.name for metric in METRICS if metric.labels}  # without keys, some have no samples
    dashboard = json.loads((Path(__file__).parents[1] / "docs" / "grafana.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 0
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)
    for panel in panels:
        for target in panel["targets"]:
            names = re.findall(r"llmd_\w+", target["expr"])
            assert names and set(names) <= present, target["expr"]
            assert target["expr"].count("(") == target["expr"].count(")")


async def test_usage_stays_with_its_key(serve: Serve, tmp_path: Path) -> None:
    """A key without a name is named after its line, which another key can have after a change of the file."""
    keys = tmp_path / "keys"
    keys.write_text("key-of-ada\nkey-of-linus\n")
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys)
    await daemon.ask("POST", "/v1/chat/completions", chat(), headers=bearer("ada"))
    keys.write_text("key-of-linus\n")
    daemon.state.use_keys(read_keys(keys))
    answer = await daemon.ask("GET", "/metrics", headers=bearer("linus"))
    assert not [name for name in samples(answer.body.decode()) if name.startswith("llmd_owner_")]
