"""Command line: python -m tools.tiny_models --out DIR [NAME...]"""

import argparse
import sys
import time
from pathlib import Path

from . import encoder, writer
from .catalog import BENCH, RECIPES, TINY, TINY_ENCODERS, Recipe
from .encoder import Encoder
from .vocabularies import VOCABULARIES, word_pieces


def make(recipe: Recipe, out: Path) -> Path:
    """Make the file of a recipe unless this version made it before."""
    path = out / f"{recipe.name}.gguf"
    if writer.is_current(path):
        _report(recipe, path, "up to date")
        return path
    start = time.monotonic()
    words = recipe.words()
    writer.write(path, recipe.name, recipe.plan(words), words, recipe.quantized)
    _report(recipe, path, f"made in {time.monotonic() - start:.1f} s")
    return path


def make_encoder(name: str, shape: Encoder, out: Path) -> Path:
    path = out / f"{name}.gguf"
    if not writer.is_current(path):
        words = word_pieces()
        writer.write(path, name, encoder.plan(shape, name, len(words.tokens)), words, quantized=False)
    return path


def make_vocabulary(name: str, out: Path) -> Path:
    path = out / f"{name}.gguf"
    if not writer.is_current(path):
        writer.write_vocabulary(path, name, VOCABULARIES[name]())
    return path


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.names if name not in RECIPES]
    if unknown:
        print(f"no such model: {', '.join(unknown)}; there are {', '.join(RECIPES)}", file=sys.stderr)
        return 2
    recipes = [RECIPES[name] for name in options.names] or list(TINY)
    if options.bench:
        recipes += [recipe for recipe in BENCH if recipe not in recipes]
    options.out.mkdir(parents=True, exist_ok=True)
    for recipe in recipes:
        make(recipe, options.out)
    for name, shape in () if options.names else TINY_ENCODERS.items():
        make_encoder(name, shape, options.out)
    for name in [] if options.names else VOCABULARIES:
        make_vocabulary(name, options.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.tiny_models",
        description="Make GGUF models with seeded random weights for tests and benchmarks.",
        epilog="models:\n" + "\n".join(f"  {recipe.name:<16} {recipe.summary}" for recipe in RECIPES.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="the models to make; without a name all tiny-* models and the vocab-* files",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where NAME.gguf is written")
    parser.add_argument("--bench", action="store_true", help="make the bench-* models too (4 GB)")
    return parser


def _report(recipe: Recipe, path: Path, outcome: str) -> None:
    print(f"{recipe.name:<16} {path.stat().st_size / 1e6:8.1f} MB  {outcome}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
