"""Folders of the project that tests read from."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PROJECT = TESTS.parent
DATA = TESTS / "data"
