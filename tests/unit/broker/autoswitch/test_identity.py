from pathlib import Path

import pytest

from orbitmq.broker.autoswitch.identity import Identity, IdentityFiles
from orbitmq.store import LocalDisk, StoreError


def files(folder: Path, name: str = "g") -> IdentityFiles:
    return IdentityFiles(LocalDisk(), str(folder / "brokerIdentity"), "c", name)


def test_an_id_is_applied_for_and_confirmed(tmp_path: Path) -> None:
    assert files(tmp_path).load() is None
    applied = files(tmp_path).apply(3, "10.0.0.1:10911;1700000000000")
    assert (tmp_path / "brokerIdentity-temp").read_text() == "c#g#3#10.0.0.1:10911;1700000000000"
    assert files(tmp_path).load() == applied

    files(tmp_path).confirm(applied)

    assert (tmp_path / "brokerIdentity").read_text() == "c#g#3"
    assert not (tmp_path / "brokerIdentity-temp").exists()
    assert files(tmp_path).load() == Identity("c", "g", 3)


def test_a_refused_id_is_forgotten(tmp_path: Path) -> None:
    files(tmp_path).apply(3, "10.0.0.1:10911;1")
    files(tmp_path).drop()
    assert files(tmp_path).load() is None


def test_a_confirmed_id_comes_before_one_that_was_applied_for(tmp_path: Path) -> None:
    files(tmp_path).confirm(files(tmp_path).apply(3, "10.0.0.1:10911;1"))
    files(tmp_path).apply(4, "10.0.0.1:10911;2")
    assert files(tmp_path).load() == Identity("c", "g", 3)


@pytest.mark.parametrize("text", ["c#g", "c#g#x", "c#g#0", "c#g#3#more", "rubbish"])
def test_damage_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_text(text)
    with pytest.raises(StoreError, match="is damaged"):
        files(tmp_path).load()


def test_the_store_of_another_group_is_refused(tmp_path: Path) -> None:
    files(tmp_path).confirm(files(tmp_path).apply(3, "10.0.0.1:10911;1"))
    with pytest.raises(StoreError, match="belongs to broker g of cluster c, not to h"):
        files(tmp_path, "h").load()
