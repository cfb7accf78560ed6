"""Errors as Spark shows them: the sentence that says what to do, without the way through our code to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError

if TYPE_CHECKING:
    from types import TracebackType


class PlainErrors:
    """Put around what Spark calls. An error that is foreseen has its own words; of others every line is of use."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OrbitMQError):
            raise error.with_traceback(None) from None


plain_errors = PlainErrors()
