"""Consume hooks: application code that runs before and after each handler call."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any, Protocol

from orbitmq.client.consumer.result import result_of
from orbitmq.client.trace.encoding import ConsumeOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.client.message import ReceivedMessage

log = logging.getLogger("orbitmq.client")


@dataclasses.dataclass(slots=True)
class ConsumeContext:
    """One handler call. ``outcome`` is set after it."""

    group: str
    messages: Sequence[ReceivedMessage]
    outcome: ConsumeOutcome | None = None
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """For hooks: carries values from ``before_consume`` to ``after_consume``."""

    @property
    def succeeded(self) -> bool:
        return self.outcome is ConsumeOutcome.SUCCESS


class ConsumeHook(Protocol):
    """Hook around handler calls. Exceptions of a hook are logged and have no effect.

    ``before_consume`` runs where the handler runs, in its thread or on the loop, ``after_consume`` on the loop.
    """

    def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


def outcome_of(returned: object, raised: BaseException | None) -> ConsumeOutcome:
    """Outcome of a handler call from its return value or exception."""
    if raised is not None:
        return ConsumeOutcome.EXCEPTION
    return ConsumeOutcome.SUCCESS if result_of(returned).succeeded else ConsumeOutcome.FAILED


def begin(hooks: Sequence[ConsumeHook], group: str, messages: Sequence[ReceivedMessage]) -> ConsumeContext:
    """Call ``before_consume`` of all hooks."""
    context = ConsumeContext(group, messages)
    for hook in hooks:
        try:
            hook.before_consume(context)
        except Exception:
            log.exception("consume hook: before_consume failed")
    return context


def end(hooks: Sequence[ConsumeHook], context: ConsumeContext, outcome: ConsumeOutcome) -> None:
    """Call ``after_consume`` of all hooks."""
    context.outcome = outcome
    for hook in hooks:
        try:
            hook.after_consume(context)
        except Exception:
            log.exception("consume hook: after_consume failed")
