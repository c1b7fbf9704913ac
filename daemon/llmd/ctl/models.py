"""The verbs list, show, pull and remove of `llmctl models`. They work without a daemon. `llmctl models` alone shows the
daemon's model (status.py).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from llmd.ctl import output, status, text
from llmd.ctl.client import Json
from llmd.ctl.context import EXIT_REFUSED, Context, Verbs, add_verb
from llmd.models import catalog
from llmd.models.catalog import CACHE, LocalModel
from llmd.models.choice import listed
from llmd.models.display import DownloadDisplay
from llmd.models.errors import ModelError
from llmd.models.finding import pull
from llmd.models.gguf_header import read_header
from llmd.models.names import HubName, parse_hub_name
from llmd.process.progress import Download

REMOVE_EPILOG = """\
Only models that were downloaded to the cache of huggingface.co's tools can be removed. llmctl asks first, unless --yes
is set.
"""


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    models = add_verb(
        verbs, shared, "models", status.run_models, "show the model that llmd serves",
        "With a verb, list, download or remove models on this machine; these verbs need no running llmd.",
    )  # fmt: skip
    actions = models.add_subparsers(title="verbs", metavar="VERB")
    listed = add_verb(actions, shared, "list", run_list, "list the models on this machine")
    show = add_verb(actions, shared, "show", run_show, "show a model on this machine")
    fetch = add_verb(
        actions, shared, "pull", run_pull, "download a model, or its newest version, from huggingface.co",
        "An interrupted download is continued.",
    )  # fmt: skip
    remove = add_verb(
        actions, shared, "remove", run_remove, "remove a downloaded model from the cache", epilog=REMOVE_EPILOG
    )
    for parser in (show, remove):
        parser.add_argument(
            "name", metavar="NAME", help="name of the model, as llmctl models list shows it, or a part of it"
        )
    fetch.add_argument("name", metavar="NAME", help="OWNER/NAME, OWNER/NAME:QUANTIZATION or OWNER/NAME:FILE.gguf")
    remove.add_argument("--yes", action="store_true", help="do not ask")
    for parser in (listed, show, fetch, remove):
        parser.set_defaults(needs_daemon=False)
    for parser in (listed, show):
        parser.add_argument(
            "--models-dir", metavar="DIR", type=Path, default=_models_dir(),
            help="directory with GGUF files (default: LLMD_MODELS_DIR)",
        )  # fmt: skip


def _models_dir() -> Path | None:
    found = os.environ.get("LLMD_MODELS_DIR")
    return Path(found).expanduser() if found else None


def run_list(context: Context) -> None:
    models = catalog.local_models(context.options.models_dir)
    raw = {"object": "list", "data": [_described(one) for one in models]}
    context.say(raw, lambda: _table(models))


def _table(models: list[LocalModel]) -> str:
    if not models:
        return (
            "no models in the folders that llmd searches; llmctl models pull OWNER/NAME downloads one. "
            "Without --model, llmd serves the model that comes with it"
        )
    rows = [
        [text.printable(one.name), text.size(one.candidate.n_bytes), one.source, text.age(one.modified_s, time.time())]
        for one in models
    ]
    return text.table(["NAME", "SIZE>", "SOURCE", "MODIFIED"], rows)


def run_show(context: Context) -> None:
    one = _named(context.options.name, catalog.local_models(context.options.models_dir))
    header = read_header(one.path)
    raw = _described(one) | {"architecture": header.architecture, "n_ctx_train": header.n_ctx_train}
    pairs = [
        ("name", one.name),
        ("source", one.source),
        ("quantization", one.candidate.quantization or text.NOTHING),
        ("architecture", header.architecture),
        ("context", f"trained for {text.count(header.n_ctx_train)} tokens"),
        ("size", text.size(one.candidate.n_bytes)),
        ("files", text.count(len(one.candidate.files))),
        ("path", str(one.path)),
    ]
    context.say(raw, lambda: text.fields([(name, text.printable(value)) for name, value in pairs]))


def run_pull(context: Context) -> None:
    from llmd.engine.machine import memory_for_model  # loads libllm, which the other verbs do not need

    name = parse_hub_name(context.options.name)
    if name is None:
        raise ModelError(f"{context.options.name} names no model to download: write OWNER/NAME[:QUANTIZATION]")
    display = DownloadDisplay(output.remark, has_bar=False if context.json else None)
    is_chosen = name.quantization or name.file
    free_bytes = None if is_chosen else memory_for_model(with_gpu=True)
    path = pull(name, free_bytes, Download(display))
    one = next(model for model in catalog.local_models(None, (CACHE,)) if path in model.paths)
    context.say(_described(one), lambda: f"Model {one.name} is in the cache: {path}")


def run_remove(context: Context) -> int | None:
    one = _removable(context.options.name)
    question = f"Remove {one.name} ({text.size(one.candidate.n_bytes)})? [y/N] "
    if not context.options.yes and not _agreed(question):
        context.warn(f"{one.name} was not removed; --yes removes it without a question")
        return EXIT_REFUSED
    from llmd.models import hub_cache

    hub_cache.remove(one.paths)
    raw = {"name": one.name, "removed": True, "size_bytes": one.candidate.n_bytes}
    context.say(raw, lambda: f"Model {one.name} removed.")
    return None


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    try:
        return output.line(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _removable(name: str) -> LocalModel:
    hub_name = parse_hub_name(name)
    if isinstance(hub_name, HubName):
        name = str(hub_name)
    found = catalog.all_with_name(name, catalog.local_models(None, (CACHE,)))
    if len(found) > 1:  # llmctl does not choose what to remove
        raise ModelError(f"several models match {name}: name one of {listed(one.name for one in found)}")
    if found:
        return found[0]
    other = catalog.with_name(name, catalog.local_models(None), None)
    if other is not None:
        raise ModelError(f"{other.name} belongs to {other.source}, whose folder llmctl only reads: remove it there")
    raise ModelError(f"no model named {name} is in the cache: llmctl models list shows the names")


def _named(name: str, models: list[LocalModel]) -> LocalModel:
    hub_name = parse_hub_name(name)
    found = catalog.with_name(str(hub_name) if hub_name is not None else name, models, None)
    if found is None:
        raise ModelError(f"no model on this machine is named {name}: llmctl models list shows the names")
    return found


def _described(one: LocalModel) -> Json:
    return {
        "name": one.name,
        "source": one.source,
        "path": str(one.path),
        "files": len(one.candidate.files),
        "size_bytes": one.candidate.n_bytes,
        "quantization": one.candidate.quantization or None,
        "modified_ms": round(one.modified_s * 1000),
    }
