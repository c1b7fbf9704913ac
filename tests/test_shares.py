"""The share of one owner in limits that all owners share."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager

import pytest

from llmd.core.errors import ApiError
from llmd.core.shares import Admission, pick_eviction_victim, share_of
from tests.conftest import Serve
from tests.serving import chat


def test_one_owner_may_take_everything() -> None:
    assert [share_of(limit, 1) for limit in (0, 1, 2, 256)] == [1, 1, 2, 256]
    assert share_of(256, 0) == 256


def test_half_of_each_equal_part_stays_free() -> None:
    assert [share_of(*row) for row in ((256, 2), (64, 4), (8, 4), (8, 5), (2, 100), (1, 100))] == [192, 40, 5, 5, 1, 1]


def test_whoever_takes_all_it_may_locks_nobody_out() -> None:
    for limit in range(2, 300):
        for n_owners in range(2, 40):
            most = share_of(limit, n_owners)
            assert 1 <= most < limit
            assert limit - most >= (n_owners - 1) * limit // (2 * n_owners)
            assert share_of(limit, n_owners + 1) <= most  # with more owners, no share is larger


def test_where_there_are_too_many_the_one_who_has_most_loses() -> None:
    assert pick_eviction_victim([(1, "a"), (2, "b"), (2, "c"), (1, "d"), (2, "e")]) == (2, "b")
    assert pick_eviction_victim([(1, "a"), (2, "b")]) == (1, "a")
    assert pick_eviction_victim([(7, "z")]) == (7, "z")


INSIDE: list[object] = []


def entered(admission: Admission, owner: int) -> bool:
    coming = admission.entered(owner)
    try:
        coming.__enter__()
        INSIDE.append(coming)  # as long as it is held
    except ApiError as error:
        assert error.code == "overloaded" and str(admission.limit) in error.message
        return False
    return True


def test_one_owner_cannot_take_the_room_of_another() -> None:
    admission = Admission(8, n_owners=2)
    assert [entered(admission, 1) for _ in range(8)] == [True] * 6 + [False] * 2
    assert [entered(admission, 2) for _ in range(3)] == [True] * 2 + [False]
    admission.n_owners = 1
    assert not entered(admission, 1)


def test_any_comings_and_goings() -> None:
    dice, admission = random.Random(5), Admission(20, n_owners=4)
    inside: list[tuple[int, AbstractContextManager[None]]] = []
    for _ in range(5000):
        if inside and dice.random() < 0.5:
            _, leaving = inside.pop(dice.randrange(len(inside)))
            leaving.__exit__(None, None, None)
        else:
            owner = dice.randrange(4)
            coming = admission.entered(owner)
            n_own, has_room = sum(who == owner for who, _ in inside), len(inside) < 20
            if has_room and n_own < share_of(20, 4):
                coming.__enter__()
                inside.append((owner, coming))
            else:
                with pytest.raises(ApiError):
                    coming.__enter__()
        assert admission.n_live == len(inside) <= 20
    for _, leaving in inside:
        leaving.__exit__(None, None, None)
    assert admission.n_live == 0 and not admission._of_owner


async def test_without_room_the_body_is_not_even_read(serve: Serve) -> None:
    daemon = await serve()
    daemon.state.admission.limit = 0
    for path in ("/v1/chat/completions", "/v1/completions"):
        answer = await daemon.ask("POST", path, b"this is no JSON")
        assert answer.status == 503 and answer.error["code"] == "overloaded"
    daemon.state.admission.limit = 1
    assert (await daemon.chat("hi"))["choices"]
    assert (await daemon.ask("POST", "/v1/chat/completions", b"this is no JSON")).status == 400
    assert daemon.state.admission.n_live == 0
    assert (await daemon.ask("POST", "/v1/chat/completions", chat("hi"))).status == 200
