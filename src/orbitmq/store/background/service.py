"""StoreService: the background work of a running broker's store on one event loop.

Group commit, timed flushes, dispatch, preallocation, retention. The loop does the bookkeeping; only blocking disk
calls run elsewhere, through ``run_blocking``, which a simulator replaces by a plain call. One fsync completes all
waiters.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import functools
import logging
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from orbitmq.store.background.time_slicing import Pace
from orbitmq.store.config import FlushDiskType
from orbitmq.store.consumequeue.flush import QueueFlush
from orbitmq.store.errors import FlushFailedError, StoreError
from orbitmq.store.retention.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.platform.threads import RunBlocking
    from orbitmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 4096
CATCH_UP_SLICE = 1000
"""Records dispatched before yielding to the loop."""
INDEX_INTERVAL = 0.1
"""Maximum delay, in seconds, before pending keys are put into the index."""
REPAIR_INTERVAL = 0.1
"""Interval, in seconds, at which pending repairs of queue units run."""
SPACE_INTERVAL = 0.1
"""Interval, in seconds, of the preallocation check for log and index: enough for several times the load."""


class Growing(Protocol[T]):
    """A file that is written front to back and can preallocate space."""

    def wants_space(self) -> Callable[[], T] | None: ...

    def keep_space(self, owned: T, /) -> None: ...


class StoreService:
    """Runs a store on the current event loop between ``start`` and ``stop``."""

    def __init__(
        self,
        store: MessageStore,
        run_blocking: RunBlocking | None = None,
    ) -> None:
        self.store = store
        self.retention = Retention(store)
        self.on_flush: Callable[[float, str | None], None] | None = None
        """Called after each flush of the log with its duration in seconds, and its error if it failed."""
        self.run_blocking: RunBlocking = run_blocking or self._run_in_thread
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self._waiting: collections.deque[tuple[int, asyncio.Future[None]]] = collections.deque()
        self._flushing: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._last_thorough = 0
        self._last_queue_sync = 0

    async def start(self) -> None:
        """Start the background work."""
        config = self.store.config
        self._last_thorough = self._last_queue_sync = self.store.clock.now_ms()
        self.store.repairs.is_deferred = True
        jobs: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (config.flush_interval_commit_log / 1000, self._flush_log),
            (config.flush_interval_consume_queue / 1000, self._catch_up),
            (config.flush_interval_consume_queue / 1000, self._flush_queues),
            (config.clean_resource_interval / 1000, self._clean),
            (INDEX_INTERVAL, self._put_keys),
            (REPAIR_INTERVAL, self._repair_queues),
            (SPACE_INTERVAL, self._take_log_space),
            (SPACE_INTERVAL, self._take_index_space),
        ]
        if config.transient_store_pool_enable:
            jobs.append((config.commit_interval_commit_log / 1000, self._commit))
        self._tasks = [asyncio.create_task(self._repeat(interval, job)) for interval, job in jobs]

    async def stop(self) -> None:
        """Stop the background work and close the store; pending flush waiters are completed."""
        # Not cancelled: a job that waits for the disk must record its outcome.
        self._stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        while self._flushing is not None:
            await asyncio.gather(self._flushing, return_exceptions=True)
        try:
            # Closing blocks on the disk, but there are no requests left to serve.
            self.store.close()
        finally:
            if self._threads is not None:
                self._threads.shutdown()

    # Waiting for the disk

    def flushed(self, end: int) -> asyncio.Future[None]:
        """A future that completes when the log up to ``end`` is on disk, or fails with ``FlushFailedError``.

        A caller that arrives during an fsync is covered by the next one.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if end <= self.store.log.flushed:
            future.set_result(None)
        elif self.store.log_failure is not None:
            future.set_exception(FlushFailedError(self.store.log_failure))
        else:
            self._waiting.append((end, future))
            self._begin_flush()
        return future

    def _begin_flush(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_until_nobody_waits())

    async def _flush_until_nobody_waits(self) -> None:
        try:
            while True:
                await self._flush_once()
                if not self._waiting:
                    return
        except BaseException as error:
            # No waiter may be left pending. An error has no other receiver; anything else (a cancellation, the end
            # of a simulated machine) is raised again.
            self._fail_waiting(error)
            if not isinstance(error, Exception):
                raise
            logger.exception("store %s: a flush failed", self.store.config.store_path_root_dir)
        finally:
            self._flushing = None

    async def _flush_once(self) -> None:
        store = self.store
        store.log.commit()
        end, store_timestamp, files = store.log.flush_targets()

        def sync() -> None:
            for file in files:
                file.sync()

        begun = time.monotonic()
        try:
            await self.run_blocking(sync)
        except OSError as error:
            self._report_flush(begun, str(error))
            raise store.on_flush_failed(error) from error
        self._report_flush(begun, None)
        try:
            store.on_flushed(end, store_timestamp)
        finally:
            # Even if dispatch fails, the records that are on disk are.
            self._answer_waiting(store.log.flushed)

    def _report_flush(self, begun: float, error: str | None) -> None:
        if self.on_flush is not None:
            self.on_flush(time.monotonic() - begun, error)

    def _answer_waiting(self, end: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= end:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)

    def _fail_waiting(self, error: BaseException) -> None:
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(FlushFailedError(str(error)))

    # Periodic jobs

    async def _repeat(self, interval: float, job: Callable[[], Awaitable[None]]) -> None:
        failure = ""
        while not self._stopping.is_set():
            try:
                await asyncio.wait_for(self._stopping.wait(), interval)
            except TimeoutError:
                pass
            else:
                return
            try:
                await job()
            except Exception as error:
                # Any error: silently stopped flushes would be worse. Logged once, not in every round.
                if str(error) != failure:
                    logger.exception("store %s: job failed, will retry", self.store.config.store_path_root_dir)
                failure = str(error)
            else:
                failure = ""

    async def _flush_log(self) -> None:
        store, config = self.store, self.store.config
        await self._allocate_next_file()
        now = store.clock.now_ms()
        dirty = store.log.committed // PAGE - store.log.flushed // PAGE
        is_thorough = now - self._last_thorough >= config.flush_commit_log_thorough_interval
        wants = dirty >= config.flush_commit_log_least_pages or is_thorough
        if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            wants = store.log.flushed < store.log.committed
        if wants and store.log.flushed < store.log.committed and store.log_failure is None:
            self._last_thorough = now
            self._begin_flush()
            assert self._flushing is not None
            await asyncio.shield(self._flushing)

    async def _allocate_next_file(self) -> None:
        create = self.store.log.wants_next_file()
        if create is not None:
            try:
                allocated = await self.run_blocking(create)
            except OSError as error:
                # An append that needs the file retries and reports the error to the producer.
                logger.warning("commit log: preallocation of the next file failed, will retry: %s", error)
            else:
                self.store.log.keep_next_file(allocated)

    async def _take_log_space(self) -> None:
        await self._take_space(self.store.log)

    async def _take_index_space(self) -> None:
        file = None if self.store.index is None else self.store.index.growing_file
        if file is not None:
            await self._take_space(file)

    async def _take_space(self, growing: Growing[T]) -> None:
        # If the disk refuses, the append retries and reports the error.
        with contextlib.suppress(OSError):
            while (own := growing.wants_space()) is not None:
                growing.keep_space(await self.run_blocking(own))

    async def _commit(self) -> None:
        self.store.log.commit()
        self.store.catch_up()

    async def _catch_up(self) -> None:
        while True:
            if self.store.catch_up(CATCH_UP_SLICE) < CATCH_UP_SLICE:
                break
            await asyncio.sleep(0)

    async def _flush_queues(self) -> None:
        store, interval = self.store, self.store.config.flush_consume_queue_thorough_interval
        now = store.clock.now_ms()
        if now - self._last_queue_sync >= interval:
            self._last_queue_sync = now
            sync = QueueFlush(store)
            pace = self._pace(interval, len(store.dispatcher.unwritten))
            # Closed, so that a cancelled flush gives back what it has taken.
            with contextlib.closing(sync.writing(pace.is_due)) as slices:
                for _ in slices:
                    await pace.pause()
            try:
                # The log first, or under load the checkpoint would never cover the queues.
                await self.flushed(sync.position)
                await self.run_blocking(sync.run)
            except (StoreError, OSError):
                sync.undo()
                raise
            sync.finish()
        await self.run_blocking(store.store_checkpoint)

    def _pace(self, interval_ms: int, pieces: int | None = None) -> Pace:
        """Time slices for a periodic job: late when three quarters of its interval are over."""
        return Pace(interval_ms * 0.00075, self._stopping.is_set, pieces)

    async def _put_keys(self) -> None:
        if self.store.index is not None and self.store.dispatcher.index_missing_from is None:
            self.store.index.flush_pending()

    async def _repair_queues(self) -> None:
        repairs = self.store.repairs
        while repairs.is_wanted and not self._stopping.is_set():
            taken = repairs.begin()
            if taken is not None:
                await self.run_blocking(functools.partial(repairs.collect, taken))
                repairs.finish(taken)

    async def _clean(self) -> None:
        pace = self._pace(self.store.config.clean_resource_interval)
        report = await self.retention.run_with(self.run_blocking, pace)
        if report.log_files:
            logger.info("retention: removed %d log files: %s", len(report.log_files), report.reason)

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        if self._threads is None:
            # One each for log, queues, the next file and its space, and two for reading ahead: none blocks another.
            self._threads = concurrent.futures.ThreadPoolExecutor(6, thread_name_prefix="orbitmq-disk")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
