"""What applications may do before and after each call of a handler: watch it, or measure it."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Protocol

from orbitmq.client.consume_result import result_of
from orbitmq.client.tracing_records import ConsumeOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.client.messages import ReceivedMessage

log = logging.getLogger("orbitmq.client")


@dataclasses.dataclass(slots=True)
class ConsumeContext:
    """One call of a handler. ``outcome`` is there after it."""

    group: str
    messages: Sequence[ReceivedMessage]
    outcome: ConsumeOutcome | None = None
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """For hooks: what ``before_consume`` puts here, ``after_consume`` finds."""

    @property
    def succeeded(self) -> bool:
        return self.outcome is ConsumeOutcome.SUCCESS


class ConsumeHook(Protocol):
    """Watches handlers. What a hook raises is logged and changes nothing.

    ``before_consume`` is called where the handler is, in its thread or on the loop, ``after_consume`` on the loop.
    """

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


def outcome_of(returned: object, raised: BaseException | None) -> ConsumeOutcome:
    """How a call of a handler ended that returned this, or raised that."""
    if raised is not None:
        return ConsumeOutcome.EXCEPTION
    return ConsumeOutcome.SUCCESS if result_of(returned).succeeded else ConsumeOutcome.FAILED


def begin(hooks: Sequence[ConsumeHook], group: str, messages: Sequence[ReceivedMessage]) -> ConsumeContext:
    """Tell the hooks that a handler is called."""
    context = ConsumeContext(group, messages)
    for hook in hooks:
        try:
            hook.before_consume(context)
        except Exception:
            log.exception("a hook failed before messages were consumed")
    return context


def end(hooks: Sequence[ConsumeHook], context: ConsumeContext, outcome: ConsumeOutcome) -> None:
    """Tell the hooks what came of it."""
    context.outcome = outcome
    for hook in hooks:
        try:
            hook.after_consume(context)
        except Exception:
            log.exception("a hook failed after messages were consumed")
