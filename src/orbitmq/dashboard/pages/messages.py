"""Messages: search by topic and time, key, id, or queue and offset; one message with body, groups and trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from orbitmq.admin.errors import AdminError
from orbitmq.dashboard.console import Action
from orbitmq.dashboard.pages.parts.trace import show_trace
from orbitmq.dashboard.subjects import messages as reading
from orbitmq.dashboard.subjects.messages import MessageText, Search
from orbitmq.dashboard.widgets.buttons import flat, primary
from orbitmq.dashboard.widgets.cards import BAD, GOOD, INFO, PLAIN, WARN, badge, card, code, empty, facts
from orbitmq.dashboard.widgets.dialogs import Field, ask
from orbitmq.dashboard.widgets.tables import Column, DataTable
from orbitmq.dashboard.widgets.text import moment, parse_moment, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.client.message import ReceivedMessage
    from orbitmq.dashboard.pages.view import View

BY_TIME, BY_KEY, BY_ID, BY_OFFSET = "By time", "By key", "By id", "By offset"
LIMITS = (20, 50, 100, 200, 500)
PREVIEW = 100


class _Form:
    """The fields of the search."""

    def __init__(self, parameters: dict[str, str]) -> None:
        mode = BY_OFFSET if "offset" in parameters else BY_KEY if "key" in parameters else BY_TIME
        self.mode = ui.toggle([BY_TIME, BY_KEY, BY_ID, BY_OFFSET], value=mode, on_change=self._show)
        self.mode.props('dense unelevated no-caps spread toggle-color=primary aria-label="Search"')
        with ui.element("div").classes("oq-filters"):
            self.topic = _input("Topic", parameters.get("topic", ""))
            self.key = _input("Key", parameters.get("key", ""))
            self.message_id = _input("Message id", parameters.get("id", ""))
            self.begin = _input("From", "", "the newest, 2026-11-01 12:00, -1h")
            self.end = _input("To", "")
            self.tags = _input("Tag", "", "one, or a || b")
            self.sql = _input("SQL filter", "", "amount > 100")
            self.broker = _input("Broker", parameters.get("broker", ""))
            self.queue = _input("Queue", parameters.get("queue", ""))
            self.offset = _input("Offset", parameters.get("offset", ""))
            self.limit = ui.select(list(LIMITS), value=50, label="At most").props("outlined dense")
            self.run = primary("Search", icon="search")
        self.texts = (self.topic, self.key, self.message_id, self.begin, self.end, self.tags, self.sql, self.offset)
        self._show()

    def _show(self) -> None:
        mode = self.mode.value
        for element, modes in (
            (self.key, {BY_KEY}),
            (self.message_id, {BY_ID}),
            (self.begin, {BY_TIME}),
            (self.end, {BY_TIME}),
            (self.tags, {BY_TIME}),
            (self.sql, {BY_TIME}),
            (self.broker, {BY_TIME, BY_OFFSET}),
            (self.queue, {BY_TIME, BY_OFFSET}),
            (self.offset, {BY_OFFSET}),
            (self.limit, {BY_TIME, BY_KEY}),
        ):
            element.set_visibility(mode in modes)

    def value(self, name: str) -> str:
        return str(getattr(self, name).value or "").strip()

    def number(self, name: str) -> int | None:
        """Raises ValueError."""
        text = self.value(name)
        if not text:
            return None
        if not text.isdecimal():
            raise ValueError(f"the {name} is a number, not {text!r}")
        return int(text)


def _input(label: str, value: str, hint: str = "") -> ui.input:
    return ui.input(label, value=value, placeholder=hint or None).props("outlined dense clearable")


async def build(view: View, _: ui.element) -> None:
    """The search."""
    with card():
        form = _Form(view.parameters)
    with card():
        table = message_table("Give a topic, and search.")

    async def search() -> None:
        found = await _find(view, form)
        table.show(message_rows(view, found))
        if not found:
            ui.notify("No message found.")

    form.run.on_click(view.do(search))
    for field in form.texts:
        field.on("keydown.enter", view.do(search))
    topics = [topic.name for topic in await view.cluster.topics()][:2000]
    form.topic.set_autocomplete(topics)
    if view.parameters.get("topic"):
        await view.attempt(search())


async def _find(view: View, form: _Form) -> Sequence[ReceivedMessage]:
    mode, topic = form.mode.value, form.value("topic")
    if mode == BY_ID:
        return [await reading.by_id(view.cluster, topic, form.value("message_id"))]
    if not topic:
        raise ValueError("give a topic")
    if mode == BY_KEY:
        return await view.admin.messages.by_key(topic, form.value("key"), limit=int(form.limit.value))
    if mode == BY_OFFSET:
        queue, offset = form.number("queue"), form.number("offset")
        if queue is None or offset is None or not form.value("broker"):
            raise ValueError("give the broker, the queue and the offset")
        return [await view.admin.messages.by_offset(topic, form.value("broker"), queue, offset)]
    wanted = Search(
        topic=topic,
        begin_ms=parse_moment(form.value("begin")),
        end_ms=parse_moment(form.value("end")),
        tags=form.value("tags") or "*",
        sql=form.value("sql"),
        limit=int(form.limit.value),
        broker_name=form.value("broker"),
        queue_id=form.number("queue"),
    )
    return await reading.find(view.cluster, wanted)


def message_table(nothing: str, on_action: Any = None) -> DataTable:
    """A table for messages."""
    return DataTable(
        "Messages",
        [
            Column("id", "Message"),
            Column("stored", "Stored"),
            Column("place", "Queue and offset"),
            Column("tags", "Tag"),
            Column("keys", "Keys"),
            Column("size", "Size", numeric=True, form="value => value"),
            Column("body", "Body", clipped=True),
        ],
        nothing=nothing,
        icon="mail",
        page_size=50,
        on_action=on_action,
    )


def message_rows(
    view: View, messages: Sequence[ReceivedMessage], actions: Sequence[dict[str, str]] = ()
) -> list[dict[str, Any]]:
    """Rows of a table for messages."""
    rows = []
    for message, text in zip(messages, reading.texts(messages, PREVIEW), strict=True):
        place = f"{text.broker_name}:{text.queue_id} @ {text.queue_offset}"
        rows.append(
            {
                "id": text.offset_message_id if actions else text.message_id,
                "stored": moment(text.store_timestamp),
                "place": place,
                "tags": text.tags or "–",
                "keys": " ".join(text.keys) or "–",
                "size": size(text.body_size),
                "body": _preview(view, message, text),
                "actions": list(actions),
                "links": {
                    "id": view.link(
                        "messages",
                        text.message_id,
                        topic=text.topic,
                        broker=text.broker_name,
                        queue=text.queue_id,
                        offset=text.queue_offset,
                    )
                },
                "kinds": {"tags": INFO} if text.tags else {},
            }
        )
    return rows


def _preview(view: View, message: ReceivedMessage, text: MessageText) -> str:
    decoded = view.console.decoders.decode_message(message)
    if decoded is not None and decoded.text:
        return " ".join(decoded.text[: PREVIEW * 4].split())
    if text.body_encoding != "text":
        return "binary"
    return text.body + ("…" if text.is_body_cut else "")


# One message


async def build_one(view: View, buttons: ui.element) -> None:
    """One message, at its queue and offset, or with its id."""
    message = await _read(view)
    text = reading.as_text(message)
    with buttons:
        if view.may_operate:
            flat("Edit and resend", icon="send", on_click=view.do(lambda: _resend(view, message)))
    with ui.element("div").classes("oq-two"):
        with card("Message"):
            facts(
                {
                    "Id": text.message_id,
                    "Broker's id": text.offset_message_id,
                    "Topic": text.topic,
                    "Queue": f"{text.broker_name}:{text.queue_id}, offset {text.queue_offset}",
                    "Tag": text.tags,
                    "Keys": " ".join(text.keys),
                    "Sent": f"{moment(text.born_timestamp)} from {text.born_host}",
                    "Stored": f"{moment(text.store_timestamp)} at {text.store_host}",
                    "Retries": text.reconsume_times,
                    "Size": f"{size(text.body_size)} ({text.body_size:,} bytes)",
                }
            )
        with card("Properties"):
            facts(text.properties)
    _show_body(view, message)
    with card("Groups of the topic"):
        await _show_groups(view, message)
    with card("Trace"):
        await show_trace(view, text.message_id)


async def _read(view: View) -> ReceivedMessage:
    given = view.parameters
    topic = given.get("topic", "")
    if given.get("offset", "").isdecimal() and given.get("queue", "").isdecimal() and given.get("broker"):
        queue, offset = int(given["queue"]), int(given["offset"])
        return await view.admin.messages.by_offset(topic, given["broker"], queue, offset)
    return await reading.by_id(view.cluster, topic, given["name"])


def _show_body(view: View, message: ReceivedMessage) -> None:
    body = reading.body_of(message)
    as_json = reading.json_text(body[: reading.MAX_BODY])
    text = reading.as_text(message)
    forms = {"Hex": reading.hex_dump(body)}
    if text.body_encoding == "text":
        forms = {"Text": text.body + ("\n…" if text.is_body_cut else ""), **forms}
    if as_json is not None:
        forms = {"JSON": as_json, **forms}
    decoded = view.console.decoders.decode_message(message)
    if decoded is not None and decoded.text:
        forms = {decoded.format: decoded.text, **forms}
    with card("Body"):
        if decoded is not None and decoded.error:
            with ui.element("div").classes("oq-problem"):
                badge(f"not {decoded.format}", WARN)
                ui.label(decoded.error[:500])
        if not body:
            empty("notes", "The body is empty.")
            return
        with ui.tabs().props("align=left dense no-caps") as tabs:
            for name in forms:
                ui.tab(name)
        with ui.tab_panels(tabs, value=next(iter(forms))).style("background: transparent"):
            for name, content in forms.items():
                with ui.tab_panel(name).style("padding: 0"):
                    code(content, wide=name == "Hex")


async def _show_groups(view: View, message: ReceivedMessage) -> None:
    try:
        tracks = await view.admin.delivery.track(message)
    except AdminError as error:
        empty("groups", str(error))
        return
    if not tracks:
        empty("groups", "No group consumes this topic.")
    kinds = {"CONSUMED": GOOD, "NOT_CONSUME_YET": WARN, "CONSUMED_BUT_FILTERED": PLAIN, "NOT_ONLINE": PLAIN}
    for one in tracks:
        with ui.element("div").classes("oq-problem"):
            badge(one.track.replace("_", " ").lower(), kinds.get(one.track, INFO if not one.reason else BAD))
            ui.link(one.group, view.link("groups", one.group))
            if one.reason:
                ui.label(one.reason).classes("oq-muted")


async def _resend(view: View, message: ReceivedMessage) -> None:
    text = reading.as_text(message)
    fields = [
        Field(name="topic", label="Topic", value=message.topic, required=True),
        Field(name="tags", label="Tag", value=message.tags or ""),
        Field(name="keys", label="Keys", value=" ".join(message.keys)),
    ]
    is_text = text.body_encoding == "text" and not text.is_body_cut
    if is_text:
        fields.append(Field(name="body", label="Body", kind="area", value=text.body))
    note = "Properties are kept." if is_text else "Properties and the binary body are kept."
    given = await ask("Edit and resend", fields, button="Send", text=note)
    if given is None:
        return
    keys = str(given["keys"]).split()
    action = Action("resend message", f"{message.topic} {message.message_id} to {given['topic']}")
    receipt = await view.console.change(
        view.actor,
        view.cluster,
        action,
        lambda: view.admin.delivery.resend(
            message,
            topic=str(given["topic"]).strip(),
            body=str(given["body"]).encode() if is_text else None,
            tags=str(given["tags"]),
            keys=" ".join(keys),
        ),
    )
    ui.notify(f"Sent: {receipt.message_id}", type="positive", timeout=8000)
