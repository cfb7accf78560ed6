"""A mark of tests in which limits refuse something: that it is counted."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from orbitmq.platform.limit_counts import refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.platform.limit_counts import Limit


def counts(*limits: Limit) -> Callable[[Callable[..., Any]], Any]:
    """Check that a test, sync or async, adds to the counts of these limits."""

    def marked(test: Callable[..., Any]) -> Any:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def checked(*arguments: Any, **named: Any) -> None:
                before = dict(refusals())
                await test(*arguments, **named)
                _check(before, limits)

            return checked

        @functools.wraps(test)
        def checked_too(*arguments: Any, **named: Any) -> None:
            before = dict(refusals())
            test(*arguments, **named)
            _check(before, limits)

        return checked_too

    return marked


def _check(before: Mapping[Limit, int], limits: tuple[Limit, ...]) -> None:
    now = refusals()
    assert [limit for limit in limits if now[limit] <= before[limit]] == [], "not counted"
