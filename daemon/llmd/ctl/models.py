"""llmctl models: what is served."""

from __future__ import annotations

import argparse

from llmd.ctl import text
from llmd.ctl.client import Json
from llmd.ctl.context import EXIT_OK, Context, Verbs


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser("models", help="show the model", description="Show the model.", parents=[shared])
    parser.set_defaults(run=run)


def run(context: Context) -> int:
    raw = context.client.models()
    context.say(raw, lambda: "\n\n".join(details(model) for model in raw.get("data") or []))
    return EXIT_OK


def details(model: Json) -> str:
    meta = model.get("meta") or {}
    trained = text.count(meta.get("n_ctx_train", 0))
    pairs = [
        ("model", text.scalar(model.get("id"))),
        ("description", text.scalar(meta.get("description"))),
        ("architecture", text.scalar(meta.get("architecture"))),
        ("memory", text.scalar(meta.get("memory"))),
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


def _sampling(recommended: Json) -> str:
    """Returns the parameters that nearly everybody asks for."""
    names = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")
    return ", ".join(f"{name} {text.scalar(recommended[name])}" for name in names if name in recommended)


def _embeddings(meta: Json) -> str:
    n, most = meta.get("n_embedding", 0), meta.get("n_embedding_tokens", 0)
    return f"{n} dimensions, texts of up to {text.count(most)} tokens" if n else "none"
