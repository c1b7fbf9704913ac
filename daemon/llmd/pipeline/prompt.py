"""Makes the tokenized prompt of a request. A raw prompt is only tokenized. A conversation often begins with messages
whose tokens are known from an earlier answer. Such a beginning, with its tokens, is a Past (answers/memory.py). The
prompt has these tokens unchanged, and the template renders only the messages after them.
"""

from __future__ import annotations

import dataclasses
import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from ..answers.digest import digests_of, variables_digest
from ..answers.memory import Past, PromptFacts
from ..core import limits
from ..core.context_limits import token_bytes, utf8_bytes
from ..core.errors import ApiError, invalid_value
from ..core.generation_request import ChatPrompt, Constraint, GenerationRequest, PlainMessage, RawPrompt
from ..core.session_key import SessionKey
from ..engine.text import Prompt
from ..turns.divergence import n_common
from ..turns.user_starts import user_starts
from .history import in_order, plain
from .infill import fills_in, infilled
from .marks import marked_heads, with_marks
from .rendering import ANY_FORM, Form, render_request, text_bytes_of
from .services import Sender, Services

log = logging.getLogger("llmd.prompt")

_TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt, and facts about it that are needed to keep its answer."""

    prompt: Prompt
    digest: bytes = b""
    """Digest of all messages before the new answer (answers/memory.py). b"" if the answer will not be kept."""
    since: bytes = b""
    """Digest of the Past that the prompt continues. b"" if the whole prompt was rendered."""
    n_past_bytes: int = 0
    """Number of bytes of `prompt.tokens` that come from the Past."""
    facts: PromptFacts = PromptFacts()
    n_by_user: int = 0
    """Number of user messages in the prompt."""
    echo: str = ""
    """The prompt's text if the answer must begin with the prompt's text, otherwise ""."""


async def prepared(
    services: Services, request: GenerationRequest, sender: Sender, *, is_dry_run: bool = False, has_to_fit: bool = True
) -> Prepared:
    """Returns the prompt of a request. `is_dry_run` says that the prompt will not be answered. No session then changes.
    If `has_to_fit` is False, which only a dry run allows, the conversation can be larger than the context.
    """
    if isinstance(request.prompt, RawPrompt):
        prompt = await _raw(services, request.prompt, request.constraint, sender)
        return Prepared(prompt, echo=await _echo(services, request.prompt, prompt, sender) if request.echoes else "")
    form = Form(request.constraint, request.thinking_tokens_max, follows_thinking=request.has_answer_stops)
    key, parent = request.key, request.parent
    return await rendered(
        services, request.prompt, key, parent, sender, form, is_dry_run=is_dry_run, has_to_fit=has_to_fit
    )


# --- a conversation --------------------------------------------------------------------------------------------------


async def rendered(
    services: Services,
    chat: ChatPrompt,
    key: SessionKey,
    parent: str,
    sender: Sender,
    form: Form = ANY_FORM,
    *,
    is_dry_run: bool = False,
    has_to_fit: bool = True,
    needs_text: bool = False,
) -> Prepared:
    """Returns the prompt of a conversation. `is_dry_run` and `has_to_fit` have the same meaning as for `prepared`.
    `needs_text` is true if the caller needs the prompt's text.
    """
    engine, owner, answers = services.engine, sender.owner, services.answers
    size = sender.n_bytes if has_to_fit else 0

    def read() -> tuple[list[PlainMessage], list[bytes]]:
        ordered = in_order(chat.messages)
        return ordered, _digests(services, chat, ordered, size)

    messages, digests = await engine.in_thread(owner, sender.n_bytes, read) if sender.is_large else read()
    if not is_dry_run:
        answers.inherit(owner, parent, key.id)
        answers.choose(owner, key.id, chat.history)
    source = answers.source(owner, parent, key.id)
    is_resident = (chat.history or answers.mode(owner, source) or services.history) == "resident"
    ends = digests[:-1] if chat.continues else digests  # the last message is the beginning of the new answer

    def known(n_messages: int) -> Past | None:
        past = answers.past(owner, source, ends[:n_messages], is_used=not is_dry_run) if is_resident else None
        if past is not None and len(past.tokens) // _TOKEN_BYTES > engine.info.n_ctx:
            return None  # rendered anew, these messages may have fewer tokens and fit
        return past

    found = await _Rendering(services, chat, sender, form, is_dry_run, needs_text).with_fallback(messages, known)
    is_kept = is_resident and chat.has_opening is not False
    return dataclasses.replace(found, digest=digests[-1] if is_kept else b"")


def _with_client_param(error: ApiError, form: Form) -> ApiError:
    """Returns the error of libllm with the client's name of the field that contains the constraint. libllm does not
    know this name, and writes "constraint" instead.
    """
    if error.param != "constraint" or form.constraint is None:
        return error
    param = form.constraint.param
    return ApiError(error.code, error.message.replace(error.param, param, 1), param)


def _digests(services: Services, chat: ChatPrompt, messages: Sequence[PlainMessage], n_bytes: int) -> list[bytes]:
    """Returns the digests of the conversation. Raises ApiError if the conversation has too much text for the context.
    `n_bytes` is the size of the request, or 0 if the conversation does not have to fit into the context.
    """
    context_limits = services.engine.context_limits
    if n_bytes > context_limits.n_bytes:  # a smaller request cannot have too much text
        context_limits.check_bytes(text_bytes_of(messages), chat.param)
    return digests_of(messages, chat.tools)


Known = Callable[[int], Past | None]
"""Function that returns the longest Past that ends within the first messages, or None. Its argument is the number of
these messages.
"""


@dataclass(frozen=True, slots=True)
class _Rendering:
    """The context of all attempts to render one conversation."""

    services: Services
    chat: ChatPrompt
    sender: Sender
    form: Form
    is_dry_run: bool
    needs_text: bool

    async def with_fallback(self, messages: list[PlainMessage], known: Known) -> Prepared:
        """Renders the messages as the client sent them. If the template refuses them, renders the plain turns that
        history.plain makes of them.
        """
        turns, turn_indexes = plain(messages)
        past = known(len(messages))
        if turns == messages:
            return await self._prepared(messages, past)
        moved = _moved(past, turn_indexes, known)
        try:
            found = await self._prepared(messages, past)
        except ApiError as error:
            if error.code != "template_failed":
                raise
            log.debug("the template refuses the messages; llmd renders them as plain turns")
            return await self._prepared(turns, moved)
        if past is None or found.since or moved is None:
            return found
        # The whole conversation had to be rendered, although a past is known. A reason can be that the template moves
        # later system messages to the front. Plain turns have no such messages, so they may continue the past.
        changed = await self._prepared(turns, moved)
        return changed if changed.since else found

    async def _prepared(self, messages: list[PlainMessage], past: Past | None) -> Prepared:
        """Renders the messages. If the model needs checkpoints, adds the client's marks (cache_control) to the
        boundaries of the prompt.
        """
        found = await self._after_past(messages, past)
        if self.is_dry_run or not self.services.engine.info.has_checkpoints:
            return found
        if not found.since:
            past = None
        heads = marked_heads(messages, past.message if past is not None else -1)
        marks = [await self._n_tokens_up_to(head, past, found.prompt.tokens) for head in heads]
        if not marks:
            return found
        prompt = dataclasses.replace(found.prompt, boundaries=with_marks(found.prompt.boundaries, marks))
        return dataclasses.replace(found, prompt=prompt)

    async def _n_tokens_up_to(self, head: list[PlainMessage], past: Past | None, tokens: bytes) -> int:
        """Returns how many tokens of the prompt come before a mark of the client (cache_control). `head` has the
        messages up to the mark, and `tokens` is the whole prompt. The result is the number of first tokens that the
        rendered head and the prompt have in common. It is 0 if the template cannot render the head alone.
        """
        chat = msgspec.structs.replace(self.chat, has_opening=False, continues=False)
        try:
            prompt = await dataclasses.replace(self, chat=chat)._rendered(head, past)
        except ApiError as error:
            if error.code != "template_failed":
                raise
            return 0
        before = past.tokens if past is not None and prompt.is_after else b""
        return n_common(tokens, before + prompt.tokens)

    async def _after_past(self, messages: list[PlainMessage], past: Past | None) -> Prepared:
        """If the prompt can continue the past, renders only the messages after the past. Otherwise renders the whole
        conversation.
        """
        variables = variables_digest(self.chat.variables)
        if past is not None and past.facts.variables != variables:
            whole = await self._rendered(messages, None)
            if not _has_same_head(whole, past):
                return _from_start(whole, messages, variables)
        prompt = await self._rendered(messages, past)
        if past is None or not prompt.is_after:
            return _from_start(prompt, messages, variables)
        found = _after(past, prompt, messages, variables)
        if found.prompt.n_tokens > self.services.engine.info.n_ctx:
            return _from_start(await self._rendered(messages, None), messages, variables)
        return found

    async def _rendered(self, messages: Sequence[PlainMessage], past: Past | None) -> Prompt:
        engine, sender = self.services.engine, self.sender
        try:
            prompt = await engine.render_chat(
                sender.owner, sender.n_bytes, lambda: render_request(self.chat, messages, past, self.form)
            )
        except ApiError as error:
            raise _with_client_param(error, self.form) from None
        if not (self.needs_text and prompt.is_after and past is not None):
            return prompt
        before = (await engine.detokenize(sender.owner, past.tokens)).encode()
        return dataclasses.replace(prompt, text=before + prompt.text)


def _moved(past: Past | None, turn_indexes: Sequence[int], known: Known) -> Past | None:
    """Returns the past with its message index counted in plain turns. If the last message of the past was joined with
    another message to one turn, the prompt cannot continue this past. A shorter past is then used. Returns None if no
    past remains.
    """
    while past is not None and turn_indexes.count(turn_indexes[past.message]) > 1:
        past = known(past.message)
    return dataclasses.replace(past, message=turn_indexes[past.message]) if past is not None else None


def _has_same_head(prompt: Prompt, past: Past) -> bool:
    """Returns whether the system messages have the same tokens in the prompt and in the past. Called if the two were
    rendered with different template variables, because the variables can change the system messages.
    """
    n_bytes = _TOKEN_BYTES * prompt.n_head
    return 0 < n_bytes and prompt.n_head == past.facts.n_head and prompt.tokens[:n_bytes] == past.tokens[:n_bytes]


def _from_start(prompt: Prompt, messages: Sequence[PlainMessage], variables: bytes) -> Prepared:
    roles = [message.role for message in messages]
    starts = user_starts(roles, prompt.boundaries)
    behind = [boundary for boundary in memoryview(prompt.boundaries).cast("i") if boundary >= prompt.n_head]
    whole = dataclasses.replace(prompt, boundaries=struct.pack(f"<{len(behind)}i", *behind))
    return Prepared(whole, facts=PromptFacts(variables, prompt.n_head, starts), n_by_user=roles.count("user"))


def _after(past: Past, prompt: Prompt, messages: Sequence[PlainMessage], variables: bytes) -> Prepared:
    """Joins the tokens of the past and of `prompt`, which has only the messages after the past, to one prompt."""
    n_past = len(past.tokens) // _TOKEN_BYTES
    roles = [message.role for message in messages]
    new = user_starts(roles, prompt.boundaries, past.message)
    starts = past.facts.user_starts | {number: n_past + start for number, start in new.items()}
    latest = dict(sorted(starts.items())[-limits.USER_BOUNDARIES_MAX :]) | {n: 0 for n in starts if not starts[n]}
    facts = PromptFacts(variables, past.facts.n_head, latest)
    made = memoryview(prompt.boundaries).cast("i")
    boundaries = sorted({facts.n_head, *latest.values(), *(n_past + boundary for boundary in made)} - {0})
    joined = dataclasses.replace(
        prompt,
        tokens=past.tokens + prompt.tokens,
        boundaries=struct.pack(f"<{len(boundaries)}i", *boundaries),
        n_history=n_past + prompt.n_history if prompt.n_history else 0,
        n_head=facts.n_head,
    )
    n_bytes, n_by_user = len(past.tokens), roles.count("user")
    return Prepared(joined, since=past.digest, n_past_bytes=n_bytes, facts=facts, n_by_user=n_by_user)


# --- a raw prompt ----------------------------------------------------------------------------------------------------


async def _raw(services: Services, raw: RawPrompt, constraint: Constraint | None, sender: Sender) -> Prompt:
    make = infilled if fills_in(raw) else _tokenized
    prompt = await make(services, raw, sender)
    if constraint is None:
        return prompt
    return dataclasses.replace(prompt, constraint=await services.engine.make_constraint(sender.owner, constraint))


async def _tokenized(services: Services, raw: RawPrompt, sender: Sender) -> Prompt:
    engine, content = services.engine, raw.content
    if isinstance(content, str):
        engine.context_limits.check_bytes(utf8_bytes(content), raw.param)
        tokens = await engine.tokenize(
            sender.owner, content, add_special=raw.add_special, parse_special=raw.parse_special
        )
    else:
        engine.context_limits.check_tokens(len(content), raw.param)
        tokens = token_bytes(content, engine.info.n_vocab, raw.param)
    if not tokens:
        raise invalid_value(raw.param, "it must have at least one token")
    return Prompt(tokens)


async def _echo(services: Services, raw: RawPrompt, prompt: Prompt, sender: Sender) -> str:
    if isinstance(raw.content, str):
        return raw.content
    return await services.engine.detokenize(sender.owner, prompt.tokens)
