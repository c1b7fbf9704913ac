"""Writes libllm/text/grammar/unicode_table.h from the Unicode data of this Python.

Run with the newest Python that is installed: python3.13 -m tools.unicode_categories
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

CATEGORIES = (
    *("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"),
    *("Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"),
)
PATH = Path(__file__).parents[1] / "libllm" / "text" / "grammar" / "unicode_table.h"
HEAD = """\
/* unicode_table.h: the general category of each character, of Unicode {version}.
 * Written by `python3 -m tools.unicode_categories`. */
#ifndef LLM_UNICODE_TABLE_H
#define LLM_UNICODE_TABLE_H

#include <cstdint>

// clang-format off
/* In the order of their numbers in the table. */
constexpr char UNICODE_CATEGORIES[][3] = {{
{names}
}};

/* Where the category changes: the first character times 32, plus the number of its category. */
constexpr uint32_t UNICODE_RUNS[] = {{
"""
TAIL = """\
};
// clang-format on

#endif
"""
PER_LINE = 11


def runs() -> list[int]:
    found: list[int] = []
    last = -1
    for character in range(sys.maxunicode + 1):
        category = CATEGORIES.index(unicodedata.category(chr(character)))
        if category != last:
            found.append(character * 32 + category)
        last = category
    return found


def lines(words: list[str]) -> str:
    return "\n".join("    " + " ".join(words[i : i + PER_LINE]) for i in range(0, len(words), PER_LINE))


def main() -> None:
    names = lines([f'"{name}",' for name in CATEGORIES])
    head = HEAD.format(version=unicodedata.unidata_version, names=names)
    PATH.write_text(head + lines([f"{run:#x}," for run in runs()]) + "\n" + TAIL)


if __name__ == "__main__":
    main()
