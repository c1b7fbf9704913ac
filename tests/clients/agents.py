"""The agents: where they are installed from, how they are configured for llmd, and how each calls its shell."""

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
    source: Source
    program: str
    arguments: tuple[str, ...]
    """Command-line arguments. `PROMPT` stands for the question, `URL` for llmd's address."""
    says: Callable[[str], str]
    """Returns the model's text that makes the agent run a command."""
    n_kept: int | None = None
    """Tokens of the agent's own text at the start, if the agent changes the text after it. Only these must be reused.
    None if the agent changes nothing.
    """
    row: str = ""
    """The name of the row in README's table that has the lines to configure it."""
    environment: Callable[[str], Mapping[str, str]] = lambda url: {}
    again: tuple[str, ...] = ()
    """Arguments of a second run, which continues the conversation of the first."""
    contexts: tuple[int, ...] = (N_CTX,)
    """Context sizes to try, in tokens. An agent that keeps much of its context free fails in a small one."""


def _calls(tool: str, name: str = "command", **others: Any) -> Callable[[str], str]:
    """Returns a function that writes a call of the agent's own tool. The arguments are in the order of the schema,
    because llmd enforces the form of a call.
    """

    def said(command: str) -> str:
        call = json.dumps({"name": tool, "arguments": {name: command, **others}})
        return f"<tool_call>\n{call}\n</tool_call>"

    return said


def _aider_edit(command: str) -> str:
    """Returns the content of a file, which aider runs as a test. The test fails, so aider sends its output to the
    model.
    """
    return f"work.sh\n```\n{command}\n```"


def _as_root(_: str) -> Mapping[str, str]:
    return {"IS_SANDBOX": "1"}


_LOOPS = Path(__file__).with_name("loops")


def _node_loop(name: str, source: Source) -> Agent:
    return Agent(source, "node", (str(_LOOPS / f"{name}.cjs"), "URL", "PROMPT"), _calls("bash"))


def _python_loop(name: str, *dialect: str) -> Agent:
    program = ("-m", f"tests.clients.loops.{name}", "URL", "PROMPT", *dialect)
    return Agent(Pip("clients"), "python", program, _calls("bash"), environment=_python_environment)


def _python_environment(url: str) -> Mapping[str, str]:
    return {"PYTHONPATH": str(Path(__file__).parents[2])}


def _claude_code(*more: str, contexts: tuple[int, ...] = (N_CTX,)) -> Agent:
    """With all of its tools, Claude Code's first prompt has 34,000 tokens of the simulated model. Those of other agents
    have about 11,600.
    """
    arguments = ("-p", "PROMPT", "--dangerously-skip-permissions", *more)
    return Agent(
        Npm("@anthropic-ai/claude-code", "2.1.330"),
        "claude",
        arguments,
        _calls("Bash", description="Prints a word"),
        row="Claude Code",
        environment=_as_root,
        again=("--continue", *arguments),
        contexts=contexts,
    )


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
            *("--message", "PROMPT", "--yes-always"),
            *("--no-check-update", "--analytics-disable", "--no-show-model-warnings"),
            *("--auto-test", "--test-cmd", "bash work.sh && false", "work.sh"),
        ),
        _aider_edit,
        n_kept=840,
        row="aider",
    ),
    "continue": Agent(
        Npm("@continuedev/cli", "1.5.47"),
        "cn",
        ("-p", "PROMPT", "--auto", "--config", "../.continue/config.yaml"),
        _calls("Bash"),
        row="Continue",
    ),
    "pi": Agent(
        Npm("@earendil-works/pi-coding-agent", "0.87.1"),
        "pi",
        ("-p", "PROMPT"),
        _calls("bash"),
        row="pi",
    ),
    "opencode": Agent(Npm("opencode-ai", "1.18.33"), "opencode", ("run", "PROMPT"), _calls("bash"), row="opencode"),
    "codex": Agent(
        Npm("@openai/codex", "0.169.0"),
        "codex",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "PROMPT"),
        _calls("exec_command", "cmd"),
        row="codex",
    ),
    "claude-code": _claude_code(),
    "claude-code-small": _claude_code("--tools", "Bash", contexts=(40960, 32768)),
    "qwen-code": Agent(
        Npm("@qwen-code/qwen-code", "0.24.4"),
        "qwen",
        ("-p", "PROMPT", "--yolo"),
        _calls("run_shell_command", is_background=False, description="Prints a word"),
        row="qwen-code",
    ),
}
