"""However a store is cut into parts, damaged or not, the parts together are the same rows, each once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.message.record import MAGIC_V1, encode_record
from orbitmq.store import StoredMessage
from support.spark.store_rows import rows_of
from support.store import golden
from support.store.stores import LOG_FILE, edit_log, open_small, send

if TYPE_CHECKING:
    from pathlib import Path

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])

unhurried = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def stores_of_apache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {name: golden.unpack(name, tmp_path_factory.mktemp(name)) for name in golden.SETS}


@unhurried
@given(name=st.sampled_from(golden.SETS), size=st.integers(500, 300_000))
def test_stores_of_apache_have_the_same_rows_in_parts_of_any_size(
    stores_of_apache: dict[str, str], name: str, size: int
) -> None:
    options = {"columns": "msg_id,queue_offset", "includeSystemTopics": "true"}
    whole = rows_of(stores_of_apache[name], **options)
    assert rows_of(stores_of_apache[name], splitSize=str(size), **options) == whole


@pytest.fixture(scope="module")
def tricky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose bodies look like records: whole ones of other places, halves of them, and their magic."""
    root = tmp_path_factory.mktemp("tricky")
    rng = random.Random(5)
    magic = MAGIC_V1.to_bytes(4, "big")
    with open_small(root) as store:
        for number in range(200):
            inner = encode_record(
                topic=b"inner",
                queue_id=0,
                body=rng.randbytes(20),
                physical_offset=number,
                born_host=HOST,
                store_host=HOST,
            )
            body = rng.choice([inner, inner[:40], magic * 9, bytes(70), rng.randbytes(150), b"x" * 900, b"x"])
            store.append(StoredMessage("T", number % 3, body))
    return root


@unhurried
@given(size=st.integers(1, 6000))
def test_bodies_that_look_like_records_are_no_records(tricky: Path, size: int) -> None:
    rows = rows_of(tricky, splitSize=str(max(size, 20)), columns="msg_id,body")
    assert len(rows) == 200
    assert rows == rows_of(tricky, columns="msg_id,body")


@unhurried
@given(data=st.data(), size=st.integers(50, 6000))
def test_damage_is_left_out_in_the_same_way_in_parts_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, size: int
) -> None:
    root = tmp_path_factory.mktemp("damaged")
    with open_small(root) as store:
        send(store, 60, size=100)
        end = store.log.end
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, end - 1))
        damage = data.draw(st.binary(min_size=1, max_size=60) | st.integers(1, 400).map(bytes))
        edit_log(root, at, damage[: LOG_FILE - at % LOG_FILE])
    options = {"failOnDamage": "false", "columns": "msg_id,body"}
    whole = rows_of(root, **options)
    assert rows_of(root, splitSize=str(size), **options) == whole
