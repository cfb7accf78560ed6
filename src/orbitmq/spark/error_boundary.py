"""The error boundary to Spark: an OrbitMQError without a traceback of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError

if TYPE_CHECKING:
    from types import TracebackType


class PlainErrors:
    """A context manager around the functions that Spark calls. Unexpected errors keep their traceback."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OrbitMQError):
            raise error.with_traceback(None) from None


plain_errors = PlainErrors()
