"""``orbitmq store rebuild`` asks, builds, and says what it did."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from support.cli.command import fingerprint, run, run_apart
from support.store import golden
from support.store.stores import open_small, send, tree

if TYPE_CHECKING:
    from pathlib import Path


def test_queues_that_were_deleted_are_built_again(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text("\n".join(f"{key}={value}" for key, value in golden.config("basic").items()))
    before = tree(root, "consumequeue")
    shutil.rmtree(os.path.join(root, "consumequeue"))
    ran = run("store", "rebuild", root, "--yes", "--conf", conf)
    assert ran.code == 0, ran.err
    assert "45 queues with 2,998 messages" in " ".join(ran.out.split())
    assert tree(root, "consumequeue") == before
    assert run("store", "verify", root).code == 0


def test_a_size_that_no_file_tells_is_named(tmp_path: Path) -> None:
    root = golden.unpack("ipv6", tmp_path)
    shutil.rmtree(os.path.join(root, "consumequeue"))
    ran = run("store", "rebuild", root, "--yes")
    assert ran.code == 0
    assert ran.err.startswith("orbitmq: mappedFileSizeConsumeQueue=6000000 is assumed")


def test_without_yes_it_asks_and_no_means_no(tmp_path: Path) -> None:
    root = golden.unpack("ipv6", tmp_path)
    os.remove(os.path.join(root, "lock"))
    before = {
        path: found for path, found in fingerprint(root).items() if "/consumequeue" in path or "/index" in path
    }
    ran = run("store", "rebuild", root, stdin="n\n")
    assert ran.code == 1
    assert "Replace consumequeue and index" in ran.err
    after = {
        path: found for path, found in fingerprint(root).items() if "/consumequeue" in path or "/index" in path
    }
    assert after == before
    assert run("store", "rebuild", root, stdin="y\n").code == 0


def test_the_json_says_what_was_built(tmp_path: Path) -> None:
    shown = run("store", "rebuild", golden.unpack("extra", tmp_path), "--yes", "--json").json
    assert (shown["records"], shown["queues"], shown["indexFiles"], shown["damages"]) == (444, 9, 1, [])


def test_an_open_store_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store)
        ran = run_apart("store", "rebuild", tmp_path, "--yes")
    assert ran.code == 1
    assert ran.err == f"orbitmq: the store {tmp_path} is open in another process: stop that one first\n"
