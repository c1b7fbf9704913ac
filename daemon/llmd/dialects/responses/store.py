"""Stored responses, which clients can read or continue. Each response is stored with the input items of its request,
and with the conversation before its answer.

The store is in memory. The database has a copy, from which the next daemon fills its store. The number and the bytes of
responses are limited, in total and per owner. Beyond its share, an owner loses its least recently used response. Beyond
a total limit, the owner with the most bytes loses a response. A stored response never changes. Only the event loop
changes the store, and text threads can read it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import msgspec
from aiohttp import web

from ...answers.database import RESPONSE, Database
from ...core import limits
from ...core.context_limits import utf8_bytes
from ...core.generation_request import PlainMessage
from ...core.shares import share_of
from ...process.logs import fields
from .items import items_of, messages_of


class _Identified(msgspec.Struct):
    id: str


class _ResponseOutput(msgspec.Struct):
    """The only member of a response that this module decodes."""

    output: list[msgspec.Raw]


class StoredResponse(msgspec.Struct, frozen=True, dict=True, array_like=True, forbid_unknown_fields=True):
    """A stored response. Rows of the database store this type."""

    id: str
    owner: int
    session: str
    """The session in which the response was generated, or "" if the request had no session."""
    body: bytes
    """The body of the answer."""
    input: list[bytes]
    """The items of the request as JSON, each with an id."""
    before: list[PlainMessage]
    """All messages before the answer, except the instructions."""

    def conversation(self) -> list[PlainMessage]:
        """Returns the messages of the conversation including the answer, as a client would send them back."""
        answer = [msgspec.Raw(item) for item in self.output.values()]
        return [*self.before, *messages_of(items_of(answer, lambda id: None))]

    def check(self) -> None:
        """Raises MsgspecError if an item of the answer or of the input has no id. Used for rows of the database."""
        for item in (*self.output.values(), *self.input):
            id_of(item)

    @cached_property
    def output(self) -> dict[str, bytes]:
        """The items of the answer, by id."""
        items = msgspec.json.decode(self.body, type=_ResponseOutput).output
        return {id_of(bytes(raw)): bytes(raw) for raw in items}

    @cached_property
    def n_bytes(self) -> int:
        """The size in bytes. A text that several responses have in common is counted for each of them."""
        texts = 2 * len(self.body) + sum(map(len, self.input)) + sum(map(_bytes_of, self.before))
        return texts + limits.RESPONSE_BYTES_OVERHEAD


def id_of(item: bytes) -> str:
    return msgspec.json.decode(item, type=_Identified).id


def _bytes_of(message: PlainMessage) -> int:
    texts = [message.content, message.name, message.tool_call_id, message.reasoning]
    texts += [text for call in message.tool_calls for text in (call.name, call.arguments, call.id)]
    n_bytes = sum(utf8_bytes(text) for text in texts if text)
    return n_bytes + limits.RESPONSE_MESSAGE_BYTES * (1 + len(message.tool_calls))


@dataclass
class _Owned:
    """The responses of one owner, the least recently used first."""

    responses: OrderedDict[str, StoredResponse] = field(default_factory=OrderedDict)
    items: dict[str, StoredResponse] = field(default_factory=dict)
    """Maps the id of an item of an answer to the response that has the item."""
    n_bytes: int = 0


class ResponseStore:
    def __init__(self, responses_max: int = limits.RESPONSES_MAX, bytes_max: int = limits.RESPONSE_BYTES_MAX) -> None:
        self._owners: dict[int, _Owned] = {}
        self._responses_max = responses_max
        self._bytes_max = bytes_max
        self.n_responses = 0
        self.n_bytes = 0
        self.on_change: Callable[[int, str], None] = lambda owner, id: None
        """Called for each response that is added or removed."""

    def find(self, owner: int, id: str) -> StoredResponse | None:
        return self._owners.get(owner, _Owned()).responses.get(id)

    def find_item(self, owner: int, id: str) -> bytes | None:
        found = self._owners.get(owner, _Owned()).items.get(id)
        return found.output[id] if found is not None else None

    def keep(self, response: StoredResponse, n_owners: int) -> None:
        """Stores the response, unless the response alone is larger than one owner's share. `n_owners` is the number of
        owners that share the store.
        """
        n_max, bytes_max = share_of(self._responses_max, n_owners), share_of(self._bytes_max, n_owners)
        if response.n_bytes > bytes_max:
            return  # storing it would remove all other responses of the owner
        owned = self._owners.setdefault(response.owner, _Owned())
        owned.responses[response.id] = response
        owned.items.update(dict.fromkeys(response.output, response))
        self._count(owned, response, 1)
        self.on_change(response.owner, response.id)
        while len(owned.responses) > n_max or owned.n_bytes > bytes_max:
            self._drop_oldest(response.owner)
        while self.n_responses > self._responses_max or self.n_bytes > self._bytes_max:
            self._drop_oldest(max(self._owners, key=lambda owner: self._owners[owner].n_bytes))

    def all(self) -> list[StoredResponse]:
        """Returns the responses of all owners. The responses of each owner are in order of use, the least recently used
        first.
        """
        return [response for owned in self._owners.values() for response in owned.responses.values()]

    def use(self, response: StoredResponse) -> None:
        if self.find(response.owner, response.id) is response:
            self._owners[response.owner].responses.move_to_end(response.id)

    def drop(self, owner: int, id: str) -> bool:
        """Removes a response. Returns False if the response does not exist."""
        owned = self._owners.get(owner, _Owned())
        response = owned.responses.pop(id, None)
        if response is None:
            return False
        for item in response.output:
            owned.items.pop(item, None)
        self._count(owned, response, -1)
        self.on_change(owner, id)
        if not owned.responses:
            del self._owners[owner]
        return True

    def _drop_oldest(self, owner: int) -> None:
        self.drop(owner, next(iter(self._owners[owner].responses)))

    def _count(self, owned: _Owned, response: StoredResponse, sign: int) -> None:
        owned.n_bytes += sign * response.n_bytes
        self.n_bytes += sign * response.n_bytes
        self.n_responses += sign


STORE = web.AppKey("responses", ResponseStore)


# --- from one daemon to the next -------------------------------------------------------------------------------------


log = logging.getLogger("llmd.history")

_decoder = msgspec.msgpack.Decoder(StoredResponse)


def follow(store: ResponseStore, database: Database) -> None:
    """Writes every later change of the store to the database."""

    def on_change(owner: int, id: str) -> None:
        database.changed((RESPONSE, owner, id, b""), partial(store.find, owner, id))

    store.on_change = on_change


def restore(store: ResponseStore, database: Database, n_owners: int) -> None:
    """Fills the store with the responses that the previous daemon has written to the database. Blocks the calling
    thread. Raises sqlite3.Error.
    """
    for (_, _, id, _), body in list(database.rows(RESPONSE)):
        try:
            response = _decoder.decode(body)
            response.check()
            store.keep(response, n_owners)
        except msgspec.MsgspecError as error:
            log.warning("ignored a stored response", extra=fields(id=id, reason=str(error)))
    database.keep_only(RESPONSE, [(RESPONSE, one.owner, one.id, b"") for one in store.all()])
