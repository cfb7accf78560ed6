"""The locks pin every dependency with hashes, and no version with a known vulnerability is allowed."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from support.paths import PROJECT

LOCKS = ("requirements.lock", "requirements-server.lock", "requirements-build.lock")
VULNERABLE = {
    # a deep document ends the process
    "orjson": ("3.9.14", "3.11.5"),
    # CVE-2025-4565, of each branch
    "protobuf": ("4.25.7", "5.26.1", "5.29.4", "6.30.2", "6.31.0"),
    # CVE-2024-7246
    "grpcio": ("1.65.3",),
}
"""Versions that were released with a published vulnerability."""


def pinned(lock: str) -> dict[str, str]:
    """Each requirement of a lock with its options."""
    text = (PROJECT / lock).read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {line.split()[0]: line for line in lines}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_dependency_is_pinned_with_hashes(lock: str) -> None:
    found = pinned(lock)
    assert found
    for requirement, line in found.items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[^=;]+;?", requirement), requirement
        assert "--hash=sha256:" in line, requirement


@pytest.mark.parametrize("name", VULNERABLE)
def test_versions_with_known_vulnerabilities_are_not_allowed(name: str) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(one for group in project["optional-dependencies"].values() for one in group),
    ]
    asked = [requirement for requirement in map(Requirement, declared) if requirement.name == name]
    assert asked
    for requirement in asked:
        allowed = [version for version in VULNERABLE[name] if Version(version) in requirement.specifier]
        assert allowed == [], f"{requirement} allows {allowed}"
