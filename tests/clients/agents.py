"""The agents: where they come from, how they are pointed at llmd, and how each calls its shell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.installing import Npm, Pip, Source

MODEL = "llmd"
N_CTX = 131072


@dataclass(frozen=True, slots=True)
class Agent:
    """The lines of configuration are those of README's table of clients."""

    source: Source
    program: str
    arguments: tuple[str, ...]
    """Behind the program; `PROMPT` stands for what is asked, `URL` for llmd's address."""
    says: Callable[[str], str]
    """What the model says to have a command run."""
    n_kept: int | None = None
    """Tokens of its own words in front, where it rewrites what follows: more need not be reused. None: it does not."""
    files: Callable[[str], Mapping[str, str]] = lambda url: {}
    """Path in the home to contents, for the address of llmd. The working directory is `work` in it."""
    environment: Callable[[str], Mapping[str, str]] = lambda url: {}


def _calls(tool: str, name: str = "command", **others: Any) -> Callable[[str], str]:
    """A call of the agent's own tool, with arguments in the order of its schema: the form of a call is enforced."""

    def said(command: str) -> str:
        call = json.dumps({"name": tool, "arguments": {name: command, **others}})
        return f"<tool_call>\n{call}\n</tool_call>"

    return said


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


def _aider_edit(command: str) -> str:
    """The whole of a file, which aider runs as a test that fails: what it printed is sent back."""
    return f"work.sh\n```\n{command}\n```"


def _aider_environment(url: str) -> Mapping[str, str]:
    return {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "none"}


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


_LOOPS = Path(__file__).with_name("loops")


def _node_loop(name: str, source: Source) -> Agent:
    return Agent(source, "node", (str(_LOOPS / f"{name}.cjs"), "URL", "PROMPT"), _calls("bash"))


def _python_loop(name: str, *dialect: str) -> Agent:
    program = ("-m", f"tests.clients.loops.{name}", "URL", "PROMPT", *dialect)
    return Agent(Pip("clients"), "python", program, _calls("bash"), environment=_python_environment)


def _python_environment(url: str) -> Mapping[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parents[2])}


AGENTS = {
    "openai-npm": _node_loop("openai_loop", Npm("openai", "7.57.0")),
    "ai-sdk": _node_loop("ai_sdk_loop", Npm("ai", "7.0.173", ("@ai-sdk/openai-compatible@3.0.92",))),
    "agents-chat": _python_loop("openai_agents_loop", "chat"),
    "agents-responses": _python_loop("openai_agents_loop", "responses"),
    "langchain-chat": _python_loop("langchain_loop", "chat"),
    "langchain-responses": _python_loop("langchain_loop", "responses"),
    "langchain-messages": _python_loop("langchain_loop", "messages"),
    "llama-index": _python_loop("llama_index_loop"),
    "litellm-openai": _python_loop("litellm_loop", "openai"),
    "litellm-anthropic": _python_loop("litellm_loop", "anthropic"),
    "litellm-ollama": _python_loop("litellm_loop", "ollama_chat"),
    "ollama": _python_loop("ollama_loop"),
    "aider": Agent(
        Pip("aider"),
        "aider",
        (
            *("--model", "openai/llmd", "--message", "PROMPT", "--yes-always"),
            *("--no-check-update", "--analytics-disable", "--no-show-model-warnings"),
            *("--auto-test", "--test-cmd", "bash work.sh && false", "work.sh"),
        ),
        _aider_edit,
        n_kept=840,
        environment=_aider_environment,
    ),
    "continue": Agent(
        Npm("@continuedev/cli", "1.5.47"),
        "cn",
        ("-p", "PROMPT", "--auto", "--config", "../.continue/config.yaml"),
        _calls("Bash"),
        files=_continue_files,
    ),
    "pi": Agent(
        Npm("@earendil-works/pi-coding-agent", "0.87.1"),
        "pi",
        ("-p", "PROMPT", "--provider", MODEL, "--model", MODEL),
        _calls("bash"),
        files=_pi_files,
    ),
    "opencode": Agent(
        Npm("opencode-ai", "1.18.33"), "opencode", ("run", "PROMPT"), _calls("bash"), files=_opencode_files
    ),
    "codex": Agent(
        Npm("@openai/codex", "0.169.0"),
        "codex",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "PROMPT"),
        _calls("exec_command", "cmd"),
        files=_codex_files,
    ),
    "claude-code": Agent(
        Npm("@anthropic-ai/claude-code", "2.1.330"),
        "claude",
        ("-p", "PROMPT", "--dangerously-skip-permissions"),
        _calls("Bash", description="Prints a word"),
        environment=_claude_environment,
    ),
    "qwen-code": Agent(
        Npm("@qwen-code/qwen-code", "0.24.4"),
        "qwen",
        ("-p", "PROMPT", "--yolo", "--auth-type", "openai"),
        _calls("run_shell_command", is_background=False, description="Prints a word"),
        environment=_qwen_environment,
    ),
}
