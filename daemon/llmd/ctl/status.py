"""llmctl status: is it there, is it ready, what has it done."""

from __future__ import annotations

import argparse

from llmd.ctl import sessions, text, version
from llmd.ctl.client import Json
from llmd.ctl.context import EXIT_OK, EXIT_REFUSED, Context, Verbs

PREFIX = "llmd_"
Counters = dict[str, float]


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "status",
        help="show whether llmd runs and is ready, and its totals",
        description="Show whether llmd runs and is ready, and its totals. The exit status is 1 if llmd runs but is "
        "not ready.",
        parents=[shared],
    )
    parser.set_defaults(run=run)


def run(context: Context) -> int:
    client = context.client
    health, ready = client.health().body, client.ready()
    listed = client.sessions()
    slot_counts, storage = listed.get("places") or {}, listed.get("storage") or {}
    counters = {name.removeprefix(PREFIX): value for name, value in client.metrics().items()}
    raw: Json = {"health": health, "ready": ready.body, "places": slot_counts, "storage": storage, "metrics": counters}
    context.say(raw, lambda: overview(raw, counters))
    version.warn_if_different(context, health.get("version"))
    return EXIT_OK if ready.status == 200 else EXIT_REFUSED


def overview(raw: Json, counters: Counters) -> str:
    health, ready, storage = raw["health"], raw["ready"], raw["storage"]

    def counter(name: str) -> int:
        return int(counters.get(name, 0))

    consumed, reused = counter("prefill_tokens_total"), counter("reused_tokens_total")
    steps, n_parked = counter("steps_total"), raw["places"].get("parked", 0)
    running, waiting = counter("requests_running"), counter("requests_waiting")
    pairs = [
        ("llmd", f"{text.scalar(health.get('version'))}, pid {health.get('pid')}, {state(ready)}"),
        ("model", text.scalar(ready.get("model"))),
        ("sessions", sessions.slots_line(raw["places"])),
        ("requests", f"{running} running, {waiting} waiting; {words(counters, 'finished_')}"),
        ("starts", words(counters, "started_")),
        ("prompts", f"{text.count(consumed)} tokens prefilled, {text.count(reused)} reused"),
        ("answers", text.counted(counter("decode_tokens_total"), "token")),
        ("first token", each(counters, "time_to_first_token_seconds_sum", "time_to_first_token_seconds_count")),
        ("next token", each(counters, "time_between_tokens_seconds_sum", "time_between_tokens_seconds_count")),
        ("steps", f"{text.count(steps)}, {each(counters, 'step_seconds_total', 'steps_total')}"),
        ("memory", memory(counters)),
        ("checkpoints", checkpoints(storage)),
        ("parked", f"{text.counted(n_parked, 'branch', 'branches')}, {share_of(storage, 'parked_bytes')}"),
        ("disk", disk(storage)),
        ("state", text.scalar(storage.get("state_dir") or "in memory only")),
    ]
    return text.fields(pairs)


def checkpoints(storage: Json) -> str:
    return f"{text.count(storage.get('checkpoints', 0))}, {share_of(storage, 'checkpoint_bytes')}"


def disk(storage: Json) -> str:
    """ "3 GiB of 20 GiB, and refuses more" """
    refuses = (
        "; the disk is full or fails: parked states that do not fit into memory are dropped"
        if storage.get("disk_refuses")
        else ""
    )
    return share_of(storage, "disk_bytes") + refuses


def share_of(storage: Json, name: str) -> str:
    """ "1.5 MiB of 2 GiB" """
    return f"{text.size(storage.get(name, 0))} of {text.size(storage.get(name + '_max', 0))}"


def state(ready: Json) -> str:
    word = text.scalar(ready.get("status"))
    seconds = ready.get("seconds_without_progress", 0)
    return f"{word} (one step has been running for {text.duration(seconds)})" if word == "stalled" else word


def words(counters: Counters, prefix: str) -> str:
    """Counters that share a prefix by the word that follows it: "12 end, 1 cancelled". The frequent ones first."""
    found = {
        name.removeprefix(prefix).removesuffix("_total"): int(value)
        for name, value in counters.items()
        if name.startswith(prefix) and value
    }
    return (
        ", ".join(f"{text.count(found[word])} {word}" for word in sorted(found, key=lambda w: -found[w])) or "none yet"
    )


def each(counters: Counters, seconds: str, number: str) -> str:
    """The mean of what was counted since the daemon started."""
    n = counters.get(number, 0)
    return f"{1000 * counters.get(seconds, 0) / n:.1f} ms each" if n else "none yet"


def memory(counters: Counters) -> str:
    def formatted(name: str) -> str:
        return text.size(int(counters.get(name, 0)))

    cells = text.count(int(counters.get("kv_cells_used", 0)))
    process = formatted("process_resident_memory_bytes")
    used = f"{formatted('state_used_bytes')} of {formatted('state_bytes')} used ({cells} tokens)"
    return f"weights {formatted('model_bytes')}, state {used}, process {process}"
