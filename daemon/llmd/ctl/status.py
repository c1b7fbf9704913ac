"""The verbs status, models and version of llmctl. They show whether llmd runs, its counters since its start, its model
and its version.
"""

from __future__ import annotations

import argparse

import llmd
from llmd.ctl import output, sessions, text
from llmd.ctl.client import Json
from llmd.ctl.context import EXIT_OK, EXIT_REFUSED, Context, Verbs, add_verb

PREFIX = "llmd_"
Counters = dict[str, float]


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    not_ready = "The exit status is 1 if llmd runs but is not ready."
    add_verb(
        verbs,
        shared,
        "status",
        run,
        "show whether llmd runs and is ready, and what it has done since its start",
        not_ready,
    )
    absent = "The exit status is 3 if llmd does not run or cannot be reached."
    add_verb(verbs, shared, "version", run_version, "show the versions of llmctl and llmd", absent)


def run(context: Context) -> int:
    client = context.client
    live, (http_status, ready) = client.live(), client.ready()
    listed, models = client.sessions(), client.models()
    slot_counts, storage = listed.get("places") or {}, listed.get("storage") or {}
    counters = {name.removeprefix(PREFIX): value for name, value in client.metrics().items()}
    meta = next((one.get("meta") for one in models.get("data") or [] if one.get("loaded", True)), None)
    raw: Json = {"health": live, "ready": ready, "places": slot_counts, "storage": storage, "metrics": counters}
    raw["model"] = meta or {}
    context.say(raw, lambda: overview(raw, counters))
    _warn_if_different(context, live.get("version"))
    return EXIT_OK if http_status == 200 else EXIT_REFUSED


def overview(raw: Json, counters: Counters) -> str:
    live, ready, storage = raw["health"], raw["ready"], raw["storage"]

    def counter(name: str) -> int:
        return int(counters.get(name, 0))

    consumed, reused = counter("prefill_tokens_total"), counter("reused_tokens_total")
    steps, n_parked = counter("steps_total"), raw["places"].get("parked", 0)
    pairs = [
        ("llmd", f"{text.scalar(live.get('version'))}, pid {live.get('pid')}, {state(ready)}"),
        ("model", text.scalar(ready.get("model"))),
        ("sessions", sessions.slots_line(raw["places"])),
        ("requests", f"{live_requests(counters)}; {words(counters, 'finished_')}"),
        ("starts", words(counters, "started_")),
        ("prompts", f"{text.count(consumed)} tokens prefilled, {text.count(reused)} reused"),
        ("answers", text.counted(counter("decode_tokens_total"), "token")),
        ("drafts", text.drafts(lambda name: counter(f"{name}_total"))),
        ("first token", each(counters, "time_to_first_token_seconds_sum", "time_to_first_token_seconds_count")),
        ("next token", each(counters, "time_between_tokens_seconds_sum", "time_between_tokens_seconds_count")),
        ("steps", f"{text.count(steps)}, {each(counters, 'step_seconds_total', 'steps_total')}"),
        ("memory", memory(counters)),
        ("KV cache", _kv_cache(raw["model"])),
        ("checkpoints", checkpoints(storage)),
        ("parked", f"{text.counted(n_parked, 'branch', 'branches')}, {share_of(storage, 'parked_bytes')}"),
        ("disk", disk(storage)),
        ("state", text.scalar(storage.get("state_dir") or "in memory only")),
    ]
    return text.fields(pairs)


def live_requests(counters: Counters) -> str:
    """Returns a text such as "1 running, 9 waiting (9 for another request's prefill of the same head)"."""
    running, waiting, early = (
        text.count(int(counters.get(f"requests_{word}", 0))) for word in ("running", "waiting", "waiting_for_prefill")
    )
    why = f" ({early} for another request's prefill of the same head)" if early != "0" else ""
    return f"{running} running, {waiting} waiting{why}"


def checkpoints(storage: Json) -> str:
    return f"{text.count(storage.get('checkpoints', 0))}, {share_of(storage, 'checkpoint_bytes')}"


def disk(storage: Json) -> str:
    """Returns a text such as "3 GiB of 20 GiB", with a warning if llmd could not write a state to the disk recently."""
    refuses = (
        "; the disk is full or fails: parked states that do not fit into memory are dropped"
        if storage.get("disk_refuses")
        else ""
    )
    return share_of(storage, "disk_bytes") + refuses


def share_of(storage: Json, name: str) -> str:
    """Returns a text such as "1.5 MiB of 2 GiB"."""
    return f"{text.size(storage.get(name, 0))} of {text.size(storage.get(name + '_max', 0))}"


def state(ready: Json) -> str:
    word = text.scalar(ready.get("status"))
    seconds = ready.get("seconds_without_progress", 0)
    return f"{word} (one step has been running for {text.duration(seconds)})" if word == "stalled" else word


def words(counters: Counters, prefix: str) -> str:
    """Returns a text such as "12 end, 1 cancelled" with all counters whose names begin with `prefix`, the largest
    first. Each counter is shown with the rest of its name.
    """
    found = {
        name.removeprefix(prefix).removesuffix("_total"): int(value)
        for name, value in counters.items()
        if name.startswith(prefix) and value
    }
    return (
        ", ".join(f"{text.count(found[word])} {word}" for word in sorted(found, key=lambda w: -found[w])) or "none yet"
    )


def each(counters: Counters, seconds: str, number: str) -> str:
    """Returns a text with the mean duration since the daemon started, in milliseconds. The mean is the counter
    `seconds` divided by the counter `number`.
    """
    n = counters.get(number, 0)
    return f"{1000 * counters.get(seconds, 0) / n:.1f} ms each" if n else "none yet"


def memory(counters: Counters) -> str:
    def formatted(name: str) -> str:
        return text.size(int(counters.get(name, 0)))

    cells = text.count(int(counters.get("kv_cells_used", 0)))
    process = formatted("process_resident_memory_bytes")
    used = f"{formatted('state_used_bytes')} of {formatted('state_bytes')} used ({cells} tokens)"
    return f"weights {formatted('model_bytes')}, state {used}, process {process}"


# --- models and version ----------------------------------------------------------------------------------------------


def run_models(context: Context) -> None:
    raw = context.client.models()
    context.say(raw, lambda: "\n\n".join(model(one) for one in raw.get("data") or [] if one.get("loaded", True)))


def model(raw: Json) -> str:
    meta = raw.get("meta") or {}
    trained = text.count(meta.get("n_ctx_train", 0))
    pairs = [
        ("model", text.scalar(raw.get("id"))),
        ("description", text.scalar(meta.get("description"))),
        ("architecture", text.scalar(meta.get("architecture"))),
        ("memory", text.scalar(meta.get("memory"))),
        ("KV cache", _kv_cache(meta)),
        ("context", f"{text.count(meta.get('n_ctx', 0))} tokens (trained for {trained})"),
        ("vocabulary", text.count(meta.get("n_vocab", 0))),
        ("parameters", text.count(meta.get("n_params", 0))),
        ("size", _size(meta)),
        ("sampling", _sampling(meta.get("sampling") or {})),
        ("embeddings", _embeddings(meta)),
        ("backend", text.scalar(meta.get("backend"))),
        ("threads", text.count(meta.get("n_threads", 0))),
        ("fingerprint", text.scalar(meta.get("fingerprint"))),
    ]
    return text.fields(pairs)


def _size(meta: Json) -> str:
    size, on_host = text.size(meta.get("size", 0)), meta.get("host_bytes", 0)
    return f"{size}, {text.size(on_host)} of it in host memory, used by the CPU" if on_host else size


def _kv_cache(meta: Json) -> str:
    n_bytes = meta.get("kv_token_bytes", 0)
    return f"{text.scalar(meta.get('kv_type'))}, {text.count(n_bytes)} bytes per token" if n_bytes else "none"


def _sampling(recommended: Json) -> str:
    """Returns a text with the defaults of the most common sampling parameters. The model's file can recommend these
    defaults.
    """
    names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")
    return ", ".join(f"{name} {text.scalar(recommended[name])}" for name in names if name in recommended)


def _embeddings(meta: Json) -> str:
    n, most = meta.get("n_embedding", 0), meta.get("n_embedding_tokens", 0)
    return f"{n} dimensions, texts of up to {text.count(most)} tokens" if n else "none"


def run_version(context: Context) -> None:
    if not context.json:
        output.answer(f"llmctl  {llmd.__version__}")
    live = context.client.live()
    raw = {"llmctl": llmd.__version__, "llmd": live}
    context.say(raw, lambda: f"llmd    {live.get('version', 'unknown')}")
    _warn_if_different(context, live.get("version"))


def _warn_if_different(context: Context, daemon: object) -> None:
    if isinstance(daemon, str) and daemon != llmd.__version__:
        context.warn(f"warning: llmctl has version {llmd.__version__}, but llmd has version {daemon}")
