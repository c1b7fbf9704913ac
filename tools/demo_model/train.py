"""Train the demo model; an interrupted run goes on from its last checkpoint.

    python -m tools.demo_model.train --out /tmp/demo-model --steps 9200

The learning rate is constant after a short warm-up and falls to zero over the last part of the run, so a run can be
ended early, or made longer, by starting it again with another `--steps` before the fall begins.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from tools.demo_model import scores
from tools.demo_model.batches import IGNORED, Batch, Packer
from tools.demo_model.model import DemoModel, Shape
from tools.demo_model.muon import Muon
from tools.demo_model.tokenizer import Encoder, load_or_train


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="where tokenizer, checkpoints and the log go")
    parser.add_argument("--steps", type=int, default=9200)
    parser.add_argument("--batch", type=int, default=6144, help="tokens in a step")
    parser.add_argument("--decay", type=float, default=0.6, help="last part of the run, in which the rate falls to 0")
    parser.add_argument("--warmup", type=int, default=60, help="steps of rising learning rate")
    parser.add_argument("--curriculum", type=int, default=300, help="steps until the whole mixture is reached")
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--other-rate", type=float, default=0.004)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--score-every", type=int, default=250)
    parser.add_argument("--score-count", type=int, default=150)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    for name in ("layers", "width", "feed_forward", "vocabulary", "heads"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Shape(), name))
    return parser.parse_args()


def rate_at(step: int, steps: int, warmup: int, decay: float) -> float:
    """Returns the share of the full learning rate, which rises, stays constant and falls to zero."""
    falling = steps * decay
    return min(1.0, (step + 1) / warmup, max(0.0, (steps - step) / falling))


def stage_at(step: int, curriculum: int) -> float:
    """Returns the stage of the curriculum. In its first fifth there are only short recalls, then more and more of
    everything else.
    """
    return min(1.0, max(0.0, (step - curriculum / 5) / (curriculum * 4 / 5)))


class Trainer:
    """One run: the model, its optimizers, its data, its files."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        options.out.mkdir(parents=True, exist_ok=True)
        tokenizer = load_or_train(options.out / "tokenizer.json", options.vocabulary)
        self.encoder = Encoder(tokenizer)
        self.shape = Shape(
            vocabulary=tokenizer.get_vocab_size(),
            width=options.width,
            layers=options.layers,
            heads=options.heads,
            feed_forward=options.feed_forward,
        )
        torch.manual_seed(options.seed)
        self.model = DemoModel(self.shape).to(self.device)
        self.hidden = torch.compile(self.model.hidden, dynamic=False) if options.compile else self.model.hidden
        matrices = [w for n, w in self.model.named_parameters() if w.ndim == 2 and not n.startswith("embedding")]
        others = [w for n, w in self.model.named_parameters() if w.ndim != 2 or n.startswith("embedding")]
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(others, lr=options.other_rate, betas=(0.9, 0.95), weight_decay=0.0)
        self.step, self.seconds, self.tokens = 0, 0.0, 0

    def loss(self, batch: Batch) -> Tensor:
        wanted = batch.targets.to(self.device).flatten()
        chosen = wanted != IGNORED
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            hidden = self.hidden(batch.tokens.to(self.device), batch.documents.to(self.device)).flatten(0, 1)
            logits = self.model.logits(hidden[chosen])
        return functional.cross_entropy(logits.float(), wanted[chosen])

    def advance(self, batch: Batch) -> float:
        """Takes one optimizer step."""
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        share = rate_at(self.step, self.options.steps, self.options.warmup, self.options.decay)
        for group in self.adam.param_groups:
            group["lr"] = self.options.other_rate * share
            torch.nn.utils.clip_grad_norm_(group["params"], 1.0)
        self.adam.step()
        self.muon.step(self.options.matrix_rate * share, decay=0.05)
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        self.tokens += int((batch.documents >= 0).sum())
        return float(loss.detach())

    def save(self) -> None:
        state: dict[str, Any] = {
            "shape": dataclasses.asdict(self.shape),
            "model": self.model.state_dict(),
            "adam": self.adam.state_dict(),
            "muon": self.muon.state(),
            "step": self.step,
            "seconds": self.seconds,
            "tokens": self.tokens,
        }
        partial = self.options.out / "checkpoint.partial"
        torch.save(state, partial)
        os.replace(partial, self.options.out / "checkpoint.pt")

    def resume(self) -> None:
        path = self.options.out / "checkpoint.pt"
        if not path.exists():
            return
        state = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        self.muon.load(state["muon"])
        self.step, self.seconds, self.tokens = state["step"], state["seconds"], state["tokens"]
        self.report(f"resumed at step {self.step}")

    def report(self, text: str) -> None:
        print(text, flush=True)
        with (self.options.out / "log.txt").open("a") as log:
            log.write(text + "\n")

    def report_scores(self) -> None:
        for held in (False, True):
            results = scores.score(self.model, self.encoder, 99, self.options.score_count, held)
            self.report(f"step {self.step} {'held-out' if held else 'training words'}: {scores.line(results)}")

    def run(self) -> None:
        options = self.options
        size = sum(weight.numel() for weight in self.model.parameters())
        self.report(f"{size} parameters on {self.device}, {options.steps} steps of {options.batch} tokens")
        packer = Packer(self.encoder, options.seed * 1_000_003 + self.step, options.batch)
        total = 0.0
        while self.step < options.steps:
            began = time.monotonic()
            total += self.advance(packer.next(stage_at(self.step, options.curriculum)))
            self.seconds += time.monotonic() - began
            if self.step % 20 == 0:
                pace = self.tokens / self.seconds
                self.report(f"step {self.step} loss {total / 20:.4f} {self.seconds:.0f} s {pace:.0f} tokens/s")
                total = 0.0
            if self.step % options.save_every == 0 or self.step == options.steps:
                self.save()
            if self.step % options.score_every == 0 or self.step == options.steps:
                self.report_scores()


def main() -> None:
    options = read_options()
    torch.set_num_threads(options.threads)
    trainer = Trainer(options)
    trainer.resume()
    trainer.run()


if __name__ == "__main__":
    main()
