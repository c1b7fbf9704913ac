"""The system prompt and the tool that every loop has."""

from __future__ import annotations

import subprocess

SYSTEM = "You are a careful assistant. " * 60
DESCRIPTION = "Runs a command in a shell"
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
FUNCTION = {"type": "function", "function": {"name": "bash", "description": DESCRIPTION, "parameters": PARAMETERS}}
TURNS_MAX = 8


def bash(command: str) -> str:
    """Runs a command in a shell."""
    return subprocess.run(["/bin/bash", "-c", command], check=True, capture_output=True, text=True).stdout
