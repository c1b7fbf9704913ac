"""From what is asked to a tokenized prompt: a conversation as the template has it, with the session's own answers as
they were generated, or a raw prompt as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..answers.memory import Splice, digests_of
from ..core.asked import Asked, ChatPrompt, Constraint, PlainMessage, RawPrompt
from ..core.errors import ApiError
from ..core.room import utf8_bytes
from ..core.session_key import SessionKey
from ..core.token_ids import token_bytes
from ..engine.text import Prompt
from ..turns.user_starts import user_starts
from .infill import fills_in, infilled
from .rendering import ANY_FORM, Form, joined_users, render_request, text_bytes_of
from .served import Sender, Served


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt, and what has to be known of it afterwards."""

    prompt: Prompt
    digest: bytes = b""
    """Of the conversation that the answer goes on with (answers/memory.py); b"": the answer is not kept."""
    user_starts: dict[int, int] = field(default_factory=dict)
    """Number of a user's message, from 1, to the tokens before it; what is not known is left out."""
    echo: str = ""
    """The prompt's text, where the answer begins with it."""


async def prepared(served: Served, asked: Asked, sender: Sender) -> Prepared:
    if isinstance(asked.prompt, RawPrompt):
        prompt = await _raw(served, asked.prompt, asked.constraint, sender)
        return Prepared(prompt, echo=await _echo(served, asked.prompt, prompt, sender) if asked.echoes else "")
    form = Form(asked.constraint, asked.thinking_tokens_max)
    return await rendered(served, asked.prompt, asked.key, asked.parent, sender, form)


# --- a conversation --------------------------------------------------------------------------------------------------


async def rendered(
    served: Served,
    asked: ChatPrompt,
    key: SessionKey,
    parent: str,
    sender: Sender,
    form: Form = ANY_FORM,
    *,
    has_to_fit: bool = True,
) -> Prepared:
    """`has_to_fit`: false where a prompt larger than the context is only looked at."""
    engine, owner, messages = served.engine, sender.owner, asked.messages
    if sender.is_large:
        digests = await engine.in_thread(owner, sender.n_bytes, lambda: _digests(served, asked, sender, has_to_fit))
    else:
        digests = _digests(served, asked, sender, has_to_fit)
    served.answers.inherit(owner, parent, key.id)
    splices = _splices(served, asked, owner, key, digests)

    async def render(messages: Sequence[PlainMessage], splices: Sequence[Splice]) -> Prompt:
        try:
            return await engine.render_chat(
                owner, sender.n_bytes, lambda: render_request(asked, messages, splices, form)
            )
        except ApiError as error:
            raise _in_client_s_words(error, form) from None

    try:
        prompt = await render(messages, splices)
    except ApiError as error:
        messages, splices = joined_users(messages, splices)
        if error.code != "template_failed" or len(messages) == len(asked.messages):
            raise
        # Many templates refuse what clients send after an aborted answer, and would for as long as the history lasts.
        prompt = await render(messages, splices)
    if asked.has_opening is False:
        return Prepared(prompt)
    starts = user_starts([message.role for message in messages], prompt.boundaries)
    return Prepared(prompt, digests[-1] if prompt.n_history > 0 else b"", starts)


def _in_client_s_words(error: ApiError, form: Form) -> ApiError:
    """The renderer does not know which field asked for the form."""
    if error.param != "constraint" or form.constraint is None:
        return error
    param = form.constraint.param
    return ApiError(error.code, error.message.replace(error.param, param, 1), param)


def _digests(served: Served, asked: ChatPrompt, sender: Sender, has_to_fit: bool) -> list[bytes]:
    """Of the conversation, if its text can fit."""
    room = served.engine.room
    if has_to_fit and sender.n_bytes > room.n_bytes:  # or they cannot be too long
        room.check_bytes(text_bytes_of(asked.messages), asked.param)
    return digests_of(asked.messages)


def _splices(served: Served, asked: ChatPrompt, owner: int, key: SessionKey, digests: Sequence[bytes]) -> list[Splice]:
    answers = served.answers
    if answers.mode(owner, key.id, asked.history, served.history) == "template":
        return []
    splices = answers.splices(owner, key.id, digests)
    n_tokens = sum(len(splice.tokens) for splice in splices) // 4
    return splices if n_tokens <= served.engine.info.n_ctx else []  # then it fits as the template has it, or not at all


# --- a raw prompt ----------------------------------------------------------------------------------------------------


async def _raw(served: Served, asked: RawPrompt, constraint: Constraint | None, sender: Sender) -> Prompt:
    make = infilled if fills_in(asked) else _tokenized
    prompt = await make(served, asked, sender)
    if constraint is None:
        return prompt
    return replace(prompt, constraint=await served.engine.make_constraint(sender.owner, constraint))


async def _tokenized(served: Served, asked: RawPrompt, sender: Sender) -> Prompt:
    engine, given = served.engine, asked.given
    if isinstance(given, str):
        engine.room.check_bytes(utf8_bytes(given), asked.param)
        tokens = await engine.tokenize(
            sender.owner, given, add_special=asked.add_special, parse_special=asked.parse_special
        )
    else:
        engine.room.check_tokens(len(given), asked.param)
        tokens = token_bytes(given, engine.info.n_vocab, asked.param)
    if not tokens:
        raise ApiError("invalid_value", f"{asked.param}: there is no token in it.", asked.param)
    return Prompt(tokens)


async def _echo(served: Served, asked: RawPrompt, prompt: Prompt, sender: Sender) -> str:
    if isinstance(asked.given, str):
        return asked.given
    return await served.engine.detokenize(sender.owner, prompt.tokens)
