"""Print conversations of the generator, to read them or to count them.

python -m tools.demo_model.generate --seed 1 --count 5
"""

from __future__ import annotations

import argparse
from itertools import islice

from tools.demo_model.mixture import conversations, transcript


def main() -> None:
    parser = argparse.ArgumentParser(description="Print generated conversations.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--stage", type=float, default=1.0, help="0: only short recalls; 1: the whole mixture")
    parser.add_argument("--held-out", action="store_true", help="words and phrasings of the evaluation")
    options = parser.parse_args()
    for conversation in islice(conversations(options.seed, options.stage, options.held_out), options.count):
        for tool in conversation.tools:
            print(f"tool: {tool['function']}")
        print(transcript(conversation.messages), end="\n\n")


if __name__ == "__main__":
    main()
