"""Avro and Protobuf bodies as JSON text, by the rules of a file."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from orbitmq.admin.errors import InvalidRequestError
from orbitmq.admin.message.body_decoders import BodyDecoders

if TYPE_CHECKING:
    from pathlib import Path

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}
RULES = """
[[decoder]]
topics = ["orders", "orders-*"]
format = "avro"
schema = "order.avsc"
wire = "confluent"

[[decoder]]
topics = ["times"]
format = "protobuf"
descriptors = "times.desc"
message = "google.protobuf.Timestamp"
"""


@pytest.fixture
def decoders(tmp_path: Path) -> BodyDecoders:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    (tmp_path / "times.desc").write_bytes(files.SerializeToString())
    (tmp_path / "decoders.toml").write_text(RULES)
    return BodyDecoders.load(tmp_path / "decoders.toml")


def _order() -> bytes:
    file = io.BytesIO()
    at = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)
    value = {"id": 7, "amount": decimal.Decimal("12.50"), "at": at, "raw": b"\x00\xff"}
    fastavro.schemaless_writer(file, ORDER, value)
    return b"\x00\x00\x00\x00\x01" + file.getvalue()


def test_avro_records_are_json(decoders: BodyDecoders) -> None:
    found = decoders.decode("orders-eu", _order())
    assert found is not None
    assert (found.format, found.error) == ("avro Order", "")
    assert json.loads(found.text) == {
        "id": 7,
        "amount": "12.50",
        "at": "2026-11-01T12:00:00+00:00",
        "raw": "AP8=",
    }


def test_protobuf_messages_are_json(decoders: BodyDecoders) -> None:
    body = timestamp_pb2.Timestamp(seconds=1_793_534_400).SerializeToString()
    found = decoders.decode("times", body)
    assert found is not None
    assert (found.format, json.loads(found.text)) == ("protobuf google.protobuf.Timestamp", "2026-11-01T12:00:00Z")


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x00\x00\x00\x01\x0e", _order() + b"!"])
def test_bytes_of_another_schema_are_an_error(decoders: BodyDecoders, body: bytes) -> None:
    found = decoders.decode("orders", body)
    assert found is not None
    assert found.error
    assert not found.text


def test_topics_without_a_rule_are_left_alone(decoders: BodyDecoders) -> None:
    assert decoders.decode("payments", b"x") is None
    assert decoders
    assert not BodyDecoders()


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("[[decoder]]\nformat = 'avro'", "needs topics"),
        ("[[decoder]]\ntopics = ['a']\nformat = 'xml'", "choose from avro, protobuf"),
        ("[[decoder]]\ntopics = ['a']\nformat = 'avro'", "needs schema"),
        ("[[decoder]]\ntopics = ['a']\nformat = 'avro'\nschema = 'none.avsc'", "cannot be read"),
        ("[[decoder]]\ntopics = ['a']\nformat = 'avro'\nschema = 'decoders.toml'", "not an Avro schema"),
        ("[[decoder]]\ntopics = ['a']\nformat = 'avro'\nschema = 'x'\nwire = 'y'", "choose from plain"),
        ("[[decoder]]\ntopics = ['a']\nformat = 'protobuf'\ndescriptors = 'empty'\nmessage = 'X'", "no message X"),
        ("[decoders]", "and nothing else"),
        ("=", "not TOML"),
    ],
)
def test_an_invalid_file_is_one_sentence(tmp_path: Path, rules: str, problem: str) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "decoders.toml").write_text(rules)
    with pytest.raises(InvalidRequestError, match=problem):
        BodyDecoders.load(tmp_path / "decoders.toml")
