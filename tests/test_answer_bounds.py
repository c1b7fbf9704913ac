"""Limits of the memory of answers, and which answers are dropped at a limit."""

from __future__ import annotations

from llmd.answers.memory import Answer, AnswerMemory
from llmd.core import limits
from tests.test_answers import OWNER, assistant, digest, filled, found, tokens, user


def test_what_is_kept_is_bounded() -> None:
    memory = AnswerMemory(bytes_max=3000)
    messages = [filled(memory, session, 4) for session in "abcdefgh"]
    assert memory.n_bytes <= 3000
    assert found(memory, "a", messages[0]) is None
    assert found(memory, "h", messages[-1]) == (7, tokens(0, 1, 2, 3))
    for session in "abcdefgh":
        memory.forget(OWNER, session)
    assert memory.n_bytes == 0


def test_requests_without_a_session_leave_half_to_the_sessions() -> None:
    n_bytes = len(tokens(0)) + limits.ANSWER_BYTES_OVERHEAD
    memory = AnswerMemory(bytes_max=8 * n_bytes)
    named = filled(memory, "s", 4)
    for number in range(20):
        memory.keep(OWNER, "", digest(user(f"q{number}"), assistant("a")), Answer(tokens(9), ""))
    assert found(memory, "s", named) == (7, tokens(0, 1, 2, 3)) and memory.n_bytes == 8 * n_bytes
    assert found(memory, "", [user("q19"), assistant("a")]) == (1, tokens(9))
    assert memory.n_dropped == 16


def test_answers_of_one_owner_never_push_out_those_of_others() -> None:
    n_bytes = len(tokens(0)) + limits.ANSWER_BYTES_OVERHEAD
    memory = AnswerMemory(bytes_max=8 * n_bytes)
    named = filled(memory, "s", 4)
    for number in range(20):
        memory.keep(OWNER + 1, f"t{number}", digest(user("q"), assistant("a")), Answer(tokens(9), ""))
    assert found(memory, "s", named) == (7, tokens(0, 1, 2, 3)) and memory.n_dropped == 16
    memory.forget(OWNER + 1, "t19")
    assert memory.n_bytes == 7 * n_bytes


def test_what_goes_takes_along_what_cannot_be_used_without_it() -> None:
    n_bytes = len(tokens(0)) + limits.ANSWER_BYTES_OVERHEAD
    memory = AnswerMemory(bytes_max=5 * n_bytes)
    first = filled(memory, "s", 3)
    memory.keep(OWNER, "s", digest(user("x"), assistant("y")), Answer(tokens(7), ""))
    assert found(memory, "s", first) is not None  # just used, so the other answer is dropped first
    memory.keep(OWNER, "t", digest(*first), Answer(tokens(8), ""))
    memory.keep(OWNER, "t", digest(user("z"), assistant("z")), Answer(tokens(9), ""))
    assert found(memory, "s", [user("x"), assistant("y")]) is None and found(memory, "s", first) is not None
    memory.keep(OWNER, "t", digest(user("zz"), assistant("z")), Answer(tokens(9), ""))
    assert found(memory, "s", first) is None and memory.n_bytes == 3 * n_bytes


def test_the_sessions_of_one_owner_never_push_out_those_of_others() -> None:
    memory = AnswerMemory()
    messages = filled(memory, "s", 3)
    for number in range(limits.ANSWER_SESSIONS_MAX + 10):
        memory.choose(OWNER + 1, f"s{number}", "resident")
    assert found(memory, "s", messages) is not None


def test_a_renamed_session_is_not_counted_twice() -> None:
    n_bytes = 10 * (len(tokens(0)) + limits.ANSWER_BYTES_OVERHEAD)
    memory = AnswerMemory(bytes_max=n_bytes)
    messages = filled(memory, "s", 10)
    assert memory.n_bytes == n_bytes
    memory.rename(OWNER, "s", "new")
    assert found(memory, "new", messages) == (19, tokens(*range(10))) and memory.n_bytes == n_bytes
