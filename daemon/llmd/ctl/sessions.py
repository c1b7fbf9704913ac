"""llmctl sessions list | show | reset | close."""

from __future__ import annotations

import argparse

from llmd.ctl.client import Json
from llmd.ctl.context import Verbs


def register(verbs: Verbs, shared: argparse.ArgumentParser) -> None:
    pass


def details(raw: Json) -> str:
    return str(raw)
