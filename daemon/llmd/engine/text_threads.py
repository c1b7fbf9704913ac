"""Threads for jobs that would block the event loop, such as rendering and tokenizing. The queue of jobs is limited,
owners share it fairly, and short jobs never wait for long jobs.

A job is short if it processes few bytes (limits.TEXT_SHORT_BYTES). One thread runs only short jobs. The other threads
take long jobs first, and short jobs if no long job waits. Owners take turns, and no owner can fill more of the queue
than its share. The event loop owns all objects of this module.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from ..core import limits
from ..core.errors import ApiError
from ..core.shares import share_of

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Job:
    owner: int
    n_bytes: int
    call: Callable[[], Any]
    answer: asyncio.Future[Any]

    @property
    def is_short(self) -> bool:
        return self.n_bytes <= limits.TEXT_SHORT_BYTES


class _Queue:
    """A queue of jobs in which owners take turns. The jobs of one owner stay in order."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[int, deque[_Job]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def push(self, job: _Job) -> None:
        self._jobs.setdefault(job.owner, deque()).append(job)

    def pop(self) -> _Job:
        owner, jobs = self._jobs.popitem(last=False)
        job = jobs.popleft()
        if jobs:
            self._jobs[owner] = jobs
        return job

    def remove(self, job: _Job) -> bool:
        """Removes a waiting job. Returns False if the job is not in the queue."""
        jobs = self._jobs.get(job.owner)
        if jobs is None or job not in jobs:
            return False
        jobs.remove(job)
        if not jobs:
            del self._jobs[job.owner]
        return True


class TextThreads:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        n_threads: int = limits.TEXT_THREADS,
        n_jobs_max: int = limits.TEXT_JOBS_MAX,
        n_bytes_max: int = limits.TEXT_JOBS_BYTES_MAX,
    ) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(n_threads, "llmd-text")
        self._n_jobs_max = n_jobs_max
        self._n_bytes_max = n_bytes_max
        self._short, self._long = _Queue(), _Queue()
        self._n_free = n_threads - 1
        self._is_short_thread_free = True
        self._is_closed = False
        self._held: dict[int, tuple[int, int]] = {}
        """For each owner, the number of waiting and running jobs, and the bytes of these jobs."""

    async def run(self, owner: int, n_bytes: int, call: Callable[[], T], *, is_bounded: bool = False) -> T:
        """Runs the call in a thread, and returns its result or raises its exception. Raises ApiError if too many jobs
        wait. If the caller is cancelled while the job waits, the job is removed. `is_bounded` says that the number of
        such jobs is limited elsewhere. The job is then never refused.
        """
        if self._is_closed:
            raise ApiError("shutting_down")
        if not is_bounded:
            self._check_share(owner, n_bytes)
        own_jobs, own_bytes = self._held.get(owner, (0, 0))
        self._held[owner] = own_jobs + 1, own_bytes + n_bytes
        job = _Job(owner, n_bytes, call, self._loop.create_future())
        queue = self._short if job.is_short else self._long
        queue.push(job)
        self._start()
        try:
            answer: T = await job.answer
        except asyncio.CancelledError:
            if queue.remove(job):
                self._release(job)
            raise
        return answer

    async def close(self) -> None:
        """Refuses all waiting jobs, and waits until the running jobs have ended."""
        self._is_closed = True
        for queue in (self._short, self._long):
            while queue:
                job = queue.pop()
                self._release(job)
                if not job.answer.done():
                    job.answer.set_exception(ApiError("shutting_down"))
        await asyncio.to_thread(self._threads.shutdown, wait=True)

    @property
    def n_jobs(self) -> int:
        return sum(n_jobs for n_jobs, _ in self._held.values())

    # --- shares of owners --------------------------------------------------------------------------------------------

    def _check_share(self, owner: int, n_bytes: int) -> None:
        """Raises ApiError if the queue is full, in total or for this owner. If no other job waits or runs, a job of any
        size is accepted, because the size of a request's body has a limit of its own.
        """
        own_jobs, own_bytes = self._held.get(owner, (0, 0))
        n_jobs, all_bytes = self.n_jobs, sum(held for _, held in self._held.values())
        n_owners = len(self._held) + (owner not in self._held) + 1  # the + 1 keeps a share for a further owner
        if n_jobs >= self._n_jobs_max or own_jobs >= share_of(self._n_jobs_max, n_owners):
            raise ApiError(
                "overloaded",
                f"Too many texts wait to be rendered or tokenized: {n_jobs}, of which {own_jobs} are yours. The limit "
                f"for all clients together is {self._n_jobs_max}. You can use a share of it. Try again later.",
            )
        bytes_share = share_of(self._n_bytes_max, n_owners)
        if n_jobs and (all_bytes + n_bytes > self._n_bytes_max or (own_jobs and own_bytes + n_bytes > bytes_share)):
            raise ApiError(
                "overloaded",
                f"Too many bytes of text wait to be rendered or tokenized: {all_bytes}, of which {own_bytes} are "
                f"yours. The limit for all clients together is {self._n_bytes_max}. You can use a share of it. Try "
                "again later.",
            )

    def _release(self, job: _Job) -> None:
        n_jobs, n_bytes = self._held[job.owner]
        if n_jobs == 1:
            del self._held[job.owner]
        else:
            self._held[job.owner] = n_jobs - 1, n_bytes - job.n_bytes

    # --- running -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        while self._n_free and (self._long or self._short):
            self._n_free -= 1
            self._submit((self._long or self._short).pop(), is_short_thread=False)
        if self._is_short_thread_free and self._short:
            self._is_short_thread_free = False
            self._submit(self._short.pop(), is_short_thread=True)

    def _submit(self, job: _Job, is_short_thread: bool) -> None:
        def ended(future: Future[Any]) -> None:
            self._loop.call_soon_threadsafe(self._ended, job, is_short_thread, future)

        try:
            running = self._threads.submit(job.call)
        except RuntimeError:  # the system allows no further thread
            running = Future()
            running.set_exception(ApiError("no_memory"))
        running.add_done_callback(ended)

    def _ended(self, job: _Job, is_short_thread: bool, future: Future[Any]) -> None:
        self._release(job)
        if is_short_thread:
            self._is_short_thread_free = True
        else:
            self._n_free += 1
        self._start()
        if job.answer.done():  # the job's request no longer waits
            return
        error = future.exception()
        if error is not None:
            job.answer.set_exception(error)
        else:
            job.answer.set_result(future.result())
