"""One turn of `llmctl chat`: the parts of its answer, how they are shown while they arrive, and the line after them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from llmd.ctl import output, text
from llmd.ctl.client import Json

_QUESTION_STAYS = "The question stays in the conversation; /retry asks it again, /undo removes it"


class Display:
    """Writes an answer to standard output while it arrives.

    The reasoning and the progress of a long prompt are written to standard error, dimmed. So standard output contains
    only answers.
    """

    def __init__(self, *, hides_thinking: bool) -> None:
        self._hides_thinking = hides_thinking
        self._on_line = ""
        """Kind of the output in the current line of the terminal: progress, reasoning or text. "" if that line is
        empty.
        """

    def text(self, added: str) -> None:
        self._begin("text")
        output.answer(text.printable(added), end="")

    def reasoning(self, added: str) -> None:
        if not self._hides_thinking:
            self._begin("reasoning")
            output.remark(text.dim(text.printable(added), sys.stderr), end="")

    def progress(self, n_done: int, n_tokens: int) -> None:
        if n_done < n_tokens:
            self._status(f"{text.count(n_done)} of {text.count(n_tokens)} prompt tokens processed")

    def comment(self, status: str) -> None:
        """Shows a comment of the stream. llmd reports in comments how much of the model is loaded."""
        self._status(text.printable(status))

    def _status(self, status: str) -> None:
        if sys.stderr.isatty():
            self._begin("")
            output.remark(text.dim(f"[{status}]", sys.stderr), end="")
            self._on_line = "progress"

    def end(self) -> None:
        """Ends the output of an answer, so that the next output begins on a new line."""
        self._begin("")

    def _begin(self, kind: str) -> None:
        if self._on_line == "progress":
            output.remark("\r\033[K", end="")
        elif self._on_line == "reasoning" and kind != "reasoning":
            output.remark("")
        elif self._on_line == "text" and kind != "text":
            output.answer("")
        self._on_line = kind


@dataclass
class ChatTurn:
    """One turn of a chat, with the part of its answer that has arrived."""

    reply: str = ""
    reasoning: str = ""
    finish_reason: str = ""
    usage: Json = field(default_factory=dict)
    session: Json = field(default_factory=dict)

    def take(self, chunk: Json, display: Display | None) -> None:
        self.usage = chunk.get("usage") or self.usage
        self.session = chunk.get("session") or self.session
        text, reasoning = "", ""
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta", {})
            text += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.reply += text
        self.reasoning += reasoning
        if display is None:
            return
        if comment := chunk.get("comment"):
            display.comment(comment)
        if progress := chunk.get("prompt_progress"):
            display.progress(progress.get("processed", 0), progress.get("total", 0))
        if reasoning:
            display.reasoning(reasoning)
        if text:
            display.text(text)

    @property
    def has_answer(self) -> bool:
        return bool(self.reply.strip())

    @property
    def keeps_question(self) -> bool:
        """False if Ctrl-C was pressed before the answer began. An answer that has only reasoning counts as begun. The
        model may have spent minutes on the reasoning, and the user may want to ask for the rest.
        """
        return self.has_answer or bool(self.reasoning) or self.finish_reason != "cancelled"

    def summary(self) -> str:
        """Returns a summary such as "3 new tokens, 412 reused (exact_prefix), 57 generated"."""
        during = " during the reasoning" if self.reasoning else ""
        if self.finish_reason == "cancelled":
            if not self.keeps_question:
                return "cancelled before the answer began. The conversation is unchanged; /retry asks again"
            return "cancelled" if self.has_answer else f"cancelled{during}. {_QUESTION_STAYS}"
        reused = self.session.get("reused_prompt_tokens", 0)
        new = self.session.get("prefilled_prompt_tokens", self.usage.get("prompt_tokens", 0) - reused)
        reason = self.session.get("session_reset_reason") or "unknown"
        plural = "" if new == 1 else "s"
        is_cut = self.finish_reason == "length"
        end = ", ended by the length limit" if is_cut else ""
        if not self.has_answer:
            cause = "the length limit was reached" if is_cut else "the model ended the answer"
            end = f"; no answer: {cause}{during}. {_QUESTION_STAYS}"
        generated = self.usage.get("completion_tokens", 0)
        return f"{new} new token{plural}, {reused} reused ({reason}), {generated} generated{end}"
