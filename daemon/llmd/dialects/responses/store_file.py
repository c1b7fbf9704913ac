"""The stored responses as rows of the database, from one daemon to the next."""

from __future__ import annotations

import logging
from functools import partial

import msgspec

from ...answers.database import RESPONSE, Database
from ...process.logs import fields
from .store import ResponseStore, StoredResponse

log = logging.getLogger("llmd.history")

_decoder = msgspec.msgpack.Decoder(StoredResponse)


def follow(store: ResponseStore, database: Database) -> None:
    """Has every later change of the store written to the database."""

    def on_change(owner: int, id: str) -> None:
        database.changed((RESPONSE, owner, id, b""), partial(store.find, owner, id))

    store.on_change = on_change


def restore(store: ResponseStore, database: Database, n_owners: int) -> None:
    """Fills the store with what the previous daemon wrote. Blocks. Raises sqlite3.Error."""
    for (_, _, id, _), body in list(database.rows(RESPONSE)):
        try:
            response = _decoder.decode(body)
            response.check()
            store.keep(response, n_owners)
        except msgspec.MsgspecError as error:
            log.warning("ignored a stored response", extra=fields(id=id, reason=str(error)))
    database.keep_only(RESPONSE, [(RESPONSE, one.owner, one.id, b"") for one in store.all()])
