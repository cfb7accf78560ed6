"""Forms that several pages have: send a message, reset offsets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.admin.group.offsets import ResetTo
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.subjects.groups import reset_offsets
from orbitmq.dashboard.subjects.topics import send
from orbitmq.dashboard.widgets.dialogs import Field, ask, confirm
from orbitmq.dashboard.widgets.text import parse_moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.dashboard.pages.view import View

EARLIEST, LATEST, TIME = "the first message", "behind the last message", "a time"


async def send_message(view: View, topic: str) -> None:
    """Send one message to a topic."""
    given = await ask(
        f"Send a message to {topic}",
        [
            Field(name="body", label="Body", kind="area"),
            Field(name="tags", label="Tag"),
            Field(name="keys", label="Keys", hint="separated by blanks"),
            Field(name="properties", label="Properties", hint='as JSON: {"name": "value"}'),
            Field(name="delay", label="Delay in seconds", kind="number", value=None),
        ],
        button="Send",
    )
    if given is None:
        return
    properties = _properties(str(given["properties"] or ""))
    delay = given["delay"]
    action = Action("send message", topic)
    receipt = await view.console.change(
        view.actor,
        view.cluster,
        action,
        lambda: send(
            view.cluster,
            topic,
            body=str(given["body"] or ""),
            tags=str(given["tags"] or ""),
            keys=str(given["keys"] or "").split(),
            properties=properties,
            delay_seconds=float(delay) if delay not in {None, ""} else None,
        ),
    )
    ui.notify(f"Sent: {receipt.message_id}", type="positive", timeout=8000)


def _properties(text: str) -> dict[str, str]:
    """Raises ValueError."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the properties are not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError('properties are an object: {"name": "value"}')
    return {str(name): str(value) for name, value in found.items()}


async def reset_group(view: View, group: str, topics: Sequence[str]) -> None:
    """Reset the offsets of a group in a topic."""
    given = await ask(
        f"Reset the offsets of {group}",
        [
            Field(
                name="topic",
                label="Topic",
                kind="select" if topics else "text",
                value=topics[0] if topics else "",
                options=list(topics),
                required=True,
            ),
            Field(name="to", label="To", kind="select", value=EARLIEST, options=(EARLIEST, LATEST, TIME)),
            Field(name="time", label="Time", hint="2026-11-01 12:00, or -1h; only for a time"),
        ],
    )
    if given is None:
        return
    topic, to = str(given["topic"]), _target(given)
    changes = await reset_offsets(view.console, view.actor, view.cluster, group, topic, to, dry_run=True)
    lines = [
        f"{one.broker_name} queue {one.queue_id}: {'–' if one.before is None else one.before} → {one.after}"
        for one in changes
    ]
    if not await confirm(f"Reset {group} in {topic}?", lines, button="Reset"):
        return
    await reset_offsets(view.console, view.actor, view.cluster, group, topic, to)
    ui.notify("The offsets are reset. Members follow within some seconds.", type="positive")


def _target(given: dict[str, Any]) -> ResetTo:
    """Raises ValueError."""
    if given["to"] == EARLIEST:
        return ResetTo(earliest=True)
    if given["to"] == LATEST:
        return ResetTo(latest=True)
    time_ms = parse_moment(str(given["time"] or ""))
    if time_ms is None:
        raise ValueError("give a time")
    return ResetTo(time_ms=time_ms)
