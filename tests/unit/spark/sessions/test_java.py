"""A Java for Spark is found where people keep it, and what is missing is reported in a sentence."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.sessions import java
from orbitmq.spark.sessions.java import Java, JavaMissingError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java; what is put into its ``jvm`` is in the usual place."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "FOLDERS", (str(tmp_path / "jvm" / "*"),))
    (tmp_path / "bin").mkdir()
    return tmp_path


def java_in(home: Path, version: str, *, with_release: bool = True) -> str:
    """A Java that says that it is of a version: in its file, or only when it is requests."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    if with_release:
        (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{version}"\n')
    return str(home)


def test_the_one_of_java_home_is_taken_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = java_in(machine / "mine", "21.0.2")
    java_in(machine / "jvm" / "java-17", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", named)
    assert java.find() == Java(21, named)


def test_the_one_of_the_path_is_found_through_its_links(machine: Path) -> None:
    home = java_in(machine / "elsewhere" / "jdk", "17.0.15")
    alternative = machine / "alternative"
    alternative.symlink_to(machine / "elsewhere" / "jdk" / "bin" / "java")
    (machine / "bin" / "java").symlink_to(alternative)
    assert java.find() == Java(17, os.path.realpath(home))


def test_of_the_usual_places_the_oldest_that_will_do_is_taken(machine: Path) -> None:
    for name, version in (("a", "25"), ("b", "17.0.15"), ("c", "1.8.0_402"), ("d", "11.0.2"), ("e", "21.0.1")):
        java_in(machine / "jvm" / name, version)
    assert java.find() == Java(17, str(machine / "jvm" / "b"))


def test_one_that_is_too_old_is_passed_over(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_in(machine / "old", "1.8.0_402"))
    found = java_in(machine / "jvm" / "java-21", "21.0.2")
    assert java.find() == Java(21, found)


def test_one_without_a_release_file_is_requested(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = java_in(machine / "jdk", "17.0.15", with_release=False)
    monkeypatch.setenv("JAVA_HOME", home)
    assert java.find() == Java(17, home)


def test_one_that_cannot_be_run_is_none(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = machine / "jdk" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"\x7fELF, but not of this machine")
    broken.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(machine / "jdk"))
    with pytest.raises(JavaMissingError, match="there is none"):
        java.find()


def test_a_java_home_that_is_not_there_is_none(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(machine / "gone"))
    with pytest.raises(JavaMissingError, match="there is none"):
        java.find()


def test_what_is_missing_is_reported_with_what_to_do(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java_in(machine / "old", "11.0.2"))
    with pytest.raises(JavaMissingError) as raised:
        java.find()
    message = str(raised.value)
    assert "Java 17 or newer" in message
    assert f"only Java 11 in {machine / 'old'}" in message
    assert "apt-get install openjdk-17-jre-headless" in message
    assert "\n" not in message
