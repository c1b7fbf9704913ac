"""The text threads: the queue is limited and fair, and short jobs do not wait for long jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.core.shares import share_of
from llmd.engine.text_threads import TextThreads
from tests.conftest import Serve
from tests.serving import SETTLE_S, chat

SHORT, LONG = 1, limits.TEXT_SHORT_BYTES + 1


class Gate:
    """Jobs that run until the gate is opened, and the order in which they began."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.began: list[str] = []

    def job(self, name: str) -> Callable[[], str]:
        def run() -> str:
            self.began.append(name)
            assert self._open.wait(SETTLE_S)
            return name

        return run

    def open(self) -> None:
        self._open.set()


@pytest.fixture
async def threads() -> AsyncIterator[TextThreads]:
    threads = TextThreads(asyncio.get_running_loop(), n_threads=2, n_jobs_max=16, n_bytes_max=64 * LONG)
    yield threads
    await threads.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SETTLE_S):
        while not condition():  # noqa: ASYNC110  # set by threads
            await asyncio.sleep(0.001)


async def test_results_and_exceptions_come_back(threads: TextThreads) -> None:
    def fail() -> None:
        raise ApiError("no_memory")

    assert await threads.run(1, SHORT, lambda: threading.current_thread().name.startswith("llmd-text"))
    with pytest.raises(ApiError) as error:
        await threads.run(1, LONG, fail)
    assert error.value.code == "no_memory" and threads.n_jobs == 0


async def test_short_work_does_not_wait_for_long_work(threads: TextThreads) -> None:
    gate = Gate()
    books = [asyncio.create_task(threads.run(1, LONG, gate.job(f"book {n}"))) for n in range(3)]
    await until(lambda: gate.began == ["book 0"])
    assert await threads.run(1, SHORT, lambda: "hi") == "hi"
    assert gate.began == ["book 0"]  # long jobs do not use the thread for short jobs
    gate.open()
    assert await asyncio.gather(*books) == ["book 0", "book 1", "book 2"]


async def test_long_work_comes_first_where_both_may_run(threads: TextThreads) -> None:
    """Otherwise a stream of short jobs would keep a long prompt waiting for ever."""
    any_work, short_work = Gate(), Gate()
    running = [asyncio.create_task(threads.run(1, SHORT, gate.job("runs"))) for gate in (any_work, short_work)]
    await until(lambda: any_work.began == short_work.began == ["runs"])
    waiting = [
        asyncio.create_task(threads.run(1, n, any_work.job(name))) for n, name in ((SHORT, "hi"), (LONG, "book"))
    ]
    await until(lambda: threads.n_jobs == 4)
    any_work.open()
    await asyncio.gather(running[0], *waiting)
    assert any_work.began == ["runs", "book", "hi"]
    short_work.open()
    await running[1]


async def test_owners_take_turns(threads: TextThreads) -> None:
    gate = Gate()
    first = asyncio.create_task(threads.run(1, LONG, gate.job("first")))
    await until(lambda: gate.began == ["first"])
    order = [(1, "a"), (1, "b"), (1, "c"), (2, "x"), (3, "y"), (2, "z")]
    waiting = [asyncio.create_task(threads.run(owner, LONG, gate.job(name))) for owner, name in order]
    await until(lambda: threads.n_jobs == 7)
    gate.open()
    await asyncio.gather(first, *waiting)
    assert gate.began == ["first", "a", "x", "y", "b", "z", "c"]


async def test_nobody_can_hold_the_whole_queue(threads: TextThreads) -> None:
    gate = Gate()

    async def fill(owner: int) -> tuple[list[asyncio.Task[str]], ApiError]:
        """Adds jobs until one is refused."""
        taken: list[asyncio.Task[str]] = []
        while True:
            task = asyncio.create_task(threads.run(owner, SHORT, gate.job("job")))
            await asyncio.sleep(0)
            if task.done():
                error = task.exception()
                assert isinstance(error, ApiError)
                return taken, error
            taken.append(task)

    first, error = await fill(1)
    assert len(first) == share_of(16, 2) < 16 and error.code == "overloaded" and error.status == 503
    second, _ = await fill(2)
    assert 0 < len(second) == 16 - len(first)
    with pytest.raises(ApiError):
        await threads.run(3, SHORT, lambda: None)
    gate.open()
    await asyncio.gather(*first, *second)
    assert threads.n_jobs == 0


async def test_bytes_are_bounded_but_a_lone_job_is_taken(threads: TextThreads) -> None:
    gate = Gate()
    huge = asyncio.create_task(threads.run(1, 100 * LONG, gate.job("huge")))
    await until(lambda: gate.began == ["huge"])
    for owner in (1, 2):
        with pytest.raises(ApiError) as error:
            await threads.run(owner, LONG, lambda: None)
        assert error.value.code == "overloaded" and "wait to be rendered" in error.value.message
    gate.open()
    assert await huge == "huge"


async def test_who_stops_waiting_takes_the_job_back(threads: TextThreads) -> None:
    gate = Gate()
    running, waiting = (asyncio.create_task(threads.run(1, LONG, gate.job(name))) for name in ("runs", "waits"))
    await until(lambda: gate.began == ["runs"])
    for task in (running, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert threads.n_jobs == 1  # a running job cannot be stopped
    gate.open()
    assert await threads.run(1, LONG, lambda: "next") == "next"
    assert gate.began == ["runs"] and threads.n_jobs == 0


async def test_what_waits_at_the_end_is_refused() -> None:
    threads, gate = TextThreads(asyncio.get_running_loop(), n_threads=2), Gate()
    running, waiting = (asyncio.create_task(threads.run(1, LONG, gate.job(name))) for name in ("runs", "waits"))
    await until(lambda: gate.began == ["runs"])
    closing = asyncio.create_task(threads.close())
    with pytest.raises(ApiError) as error:
        await waiting
    gate.open()
    await closing
    assert error.value.code == "shutting_down" and await running == "runs"
    with pytest.raises(ApiError):
        await threads.run(1, SHORT, lambda: None)


def test_shares() -> None:
    assert [share_of(256, n) for n in (0, 1, 2, 4, 1000)] == [256, 256, 192, 160, 129]


async def test_the_time_of_a_request_counts_from_its_arrival(serve: Serve) -> None:
    """The request waits for a text thread until its deadline, and then removes its job from the queue."""
    daemon = await serve(request_timeout=0.2)
    gate, engine = Gate(), daemon.state.engine
    blocking = [asyncio.create_task(engine.in_thread(0, SHORT, gate.job("blocks"))) for _ in range(limits.TEXT_THREADS)]
    await until(lambda: len(gate.began) == limits.TEXT_THREADS)
    answers = await asyncio.gather(
        daemon.refused(chat()),
        daemon.refused({"prompt": "x"}, "/v1/completions"),
        daemon.refused(chat(), "/apply-template"),
        daemon.refused({"content": "x"}, "/tokenize"),
        daemon.refused({"tokens": [300]}, "/detokenize"),
    )
    assert {(answer.status, answer.error["code"]) for answer in answers} == {(408, "deadline_exceeded")}
    assert engine.n_live == 0
    gate.open()
    await asyncio.gather(*blocking)


async def test_a_thread_that_cannot_be_started_costs_one_job(
    threads: TextThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threads._threads, "submit", no_thread)
        for n_bytes in (SHORT, LONG, SHORT, LONG):
            with pytest.raises(ApiError) as error:
                await threads.run(1, n_bytes, int)
            assert error.value.code == "no_memory" and threads.n_jobs == 0
    assert [await threads.run(1, n_bytes, int) for n_bytes in (SHORT, LONG, SHORT, LONG)] == [0] * 4
