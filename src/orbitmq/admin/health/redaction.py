"""Redaction: settings without what must not leave a cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

REDACTED = "(left out)"

_SECRET = re.compile(
    r"password|passwd|secret|credential|token|accesskey|access_key|privatekey|private_key|exporterheader",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """True if a setting of this name may hold a secret."""
    return _SECRET.search(name) is not None


def redacted(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with secrets replaced; an empty one stays empty, which is worth knowing."""
    return {name: REDACTED if value and is_secret(name) else value for name, value in settings.items()}
