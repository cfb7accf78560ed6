"""Jobs of the console: progress, errors, cancellation, limits."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.admin.errors import InvalidRequestError, NotFoundError, UnreachableError
from orbitmq.dashboard import jobs as module
from orbitmq.dashboard.auth.roles import Actor, Role
from orbitmq.dashboard.jobs import Job, Jobs
from orbitmq.testing import ManualClock

ANN = Actor("ann", Role.OPERATOR, "127.0.0.1")


async def _settled(jobs: Jobs) -> None:
    await asyncio.gather(*jobs._tasks.values())


async def test_a_job_counts_its_parts_and_ends() -> None:
    jobs = Jobs(ManualClock())

    async def work(job: Job) -> None:
        job.step(is_good=True)
        job.step(is_good=False)

    job = jobs.start(ANN, "demo", ("resend", "billing"), 2, work)
    assert job.state == module.RUNNING
    await _settled(jobs)
    assert (job.state, job.done, job.failed, job.user) == (module.DONE, 2, 1, "ann")
    assert jobs.all() == [job]


async def test_an_error_ends_a_job_with_its_sentence() -> None:
    jobs = Jobs(ManualClock())

    async def work(_: Job) -> None:
        raise UnreachableError("127.0.0.1:1", "refused")

    job = jobs.start(ANN, "demo", ("resend", "billing"), 1, work)
    await _settled(jobs)
    assert "127.0.0.1:1" in job.state


async def test_jobs_are_cancelled_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RUNNING", 2)
    monkeypatch.setattr(module, "MAX_KEPT", 3)
    jobs = Jobs(ManualClock())

    async def work(_: Job) -> None:
        await asyncio.Event().wait()

    def begin() -> Job:
        return jobs.start(ANN, "demo", ("wait", ""), 1, work)

    first, _ = begin(), begin()
    with pytest.raises(InvalidRequestError, match="2 jobs are running"):
        begin()
    await asyncio.sleep(0)
    assert jobs.cancel(first.number) is first
    await asyncio.sleep(0)
    assert first.state == module.CANCELLED
    with pytest.raises(NotFoundError):
        jobs.cancel(99)
    await jobs.close()
    assert {job.state for job in jobs.all()} == {module.CANCELLED}
