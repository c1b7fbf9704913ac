"""The agents: where they come from, how they are pointed at llmd, and how each calls its shell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL = "llmd"
N_CTX = 131072


@dataclass(frozen=True, slots=True)
class Agent:
    """The lines of configuration are those of README's table of clients."""

    package: str
    version: str
    program: str
    arguments: tuple[str, ...]
    """Behind the program; `PROMPT` stands for what is asked, `URL` for llmd's address."""
    shell: str
    """The name of its tool that runs a command,"""
    called_with: Callable[[str], dict[str, Any]]
    """and the arguments that it takes, in the order of its schema: the form of a call is enforced."""
    files: Callable[[str], Mapping[str, str]] = lambda url: {}
    """Path in the home to contents, for the address of llmd. The working directory is `work` in it."""
    environment: Callable[[str], Mapping[str, str]] = lambda url: {}
    beside: tuple[str, ...] = ()
    """Packages that are installed with it, each with its version."""


def _command(command: str) -> dict[str, Any]:
    return {"command": command}


def _described(command: str) -> dict[str, Any]:
    return {"command": command, "description": "Prints a word"}


def _pi_files(url: str) -> Mapping[str, str]:
    model = {"id": MODEL, "reasoning": True, "contextWindow": N_CTX, "maxTokens": 4096}
    provider = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "none", "models": [model]}
    return {".pi/agent/models.json": json.dumps({"providers": {MODEL: provider}})}


def _opencode_files(url: str) -> Mapping[str, str]:
    models = {MODEL: {"name": MODEL, "limit": {"context": N_CTX, "output": 4096}}}
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": MODEL, "options": options, "models": models}
    return {"work/opencode.json": json.dumps({"model": f"{MODEL}/{MODEL}", "provider": {MODEL: provider}})}


def _codex_files(url: str) -> Mapping[str, str]:
    return {
        ".codex/config.toml": f'model = "{MODEL}"\nmodel_provider = "{MODEL}"\n[model_providers.{MODEL}]\n'
        f'name = "{MODEL}"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
    }


def _continue_files(url: str) -> Mapping[str, str]:
    model = {"name": MODEL, "provider": "openai", "model": MODEL, "apiBase": f"{url}/v1", "apiKey": "none"}
    config = {"name": MODEL, "version": "1.0.0", "schema": "v1", "models": [{**model, "capabilities": ["tool_use"]}]}
    return {".continue/config.yaml": json.dumps(config)}  # JSON is YAML, too


def _claude_environment(url: str) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",
    }


def _qwen_environment(url: str) -> Mapping[str, str]:
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": MODEL}


AGENTS = {
    "openai-npm": Agent(
        "openai",
        "7.57.0",
        "node",
        (str(Path(__file__).with_name("openai_loop.cjs")), "URL", "PROMPT"),
        "bash",
        _command,
    ),
    "ai-sdk": Agent(
        "ai",
        "7.0.173",
        "node",
        (str(Path(__file__).with_name("ai_sdk_loop.cjs")), "URL", "PROMPT"),
        "bash",
        _command,
        beside=("@ai-sdk/openai-compatible@3.0.92",),
    ),
    "continue": Agent(
        "@continuedev/cli",
        "1.5.47",
        "cn",
        ("-p", "PROMPT", "--auto", "--config", "../.continue/config.yaml"),
        "Bash",
        _command,
        files=_continue_files,
    ),
    "pi": Agent(
        "@earendil-works/pi-coding-agent",
        "0.87.1",
        "pi",
        ("-p", "PROMPT", "--provider", MODEL, "--model", MODEL),
        "bash",
        _command,
        files=_pi_files,
    ),
    "opencode": Agent("opencode-ai", "1.18.33", "opencode", ("run", "PROMPT"), "bash", _command, _opencode_files),
    "codex": Agent(
        "@openai/codex",
        "0.169.0",
        "codex",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "PROMPT"),
        "exec_command",
        lambda command: {"cmd": command},
        files=_codex_files,
    ),
    "claude-code": Agent(
        "@anthropic-ai/claude-code",
        "2.1.330",
        "claude",
        ("-p", "PROMPT", "--dangerously-skip-permissions"),
        "Bash",
        _described,
        environment=_claude_environment,
    ),
    "qwen-code": Agent(
        "@qwen-code/qwen-code",
        "0.24.4",
        "qwen",
        ("-p", "PROMPT", "--yolo", "--auth-type", "openai"),
        "run_shell_command",
        lambda command: {"command": command, "is_background": False, "description": "Prints a word"},
        environment=_qwen_environment,
    ),
}
