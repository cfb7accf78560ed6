"""Messages as consumers get them, and what there is to count of the work that was done for them."""

from __future__ import annotations

import sqlalchemy as sa

from orbitmq import ReceivedMessage
from orbitmq.protocol.message.properties import encode
from orbitmq.protocol.message.record import decode_record, encode_record

GROUP = "billing"

work = sa.Table(
    "work", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("done", sa.String(99))
)
"""What handlers write. Nothing keeps it from being written twice."""


def received(message_id: str, *, topic: str = "orders", keys: str = "", body: bytes = b"x") -> ReceivedMessage:
    properties = {"UNIQ_KEY": message_id, "KEYS": keys}
    stored = encode_record(
        topic=topic.encode(),
        queue_id=0,
        body=body,
        properties=encode(properties),
        born_host=bytes(8),
        store_host=bytes(8),
    )
    return ReceivedMessage(decode_record(stored), "broker-a")


def done(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return [str(text) for text in connection.scalars(sa.select(work.c.done).order_by(work.c.id))]
