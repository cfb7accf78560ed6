"""Secret settings: values that answers and logs must not show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MASK = "******"

_SECRET = re.compile(
    r"password|passwd|secret|credential|token|private|initAuthenticationUser|ExporterHeader|apiKey|access.?key",
    re.IGNORECASE,
)
"""Parts of the keys of secret settings, those of other programs in the same file included."""


def is_secret(key: str) -> bool:
    return _SECRET.search(key) is not None


def masked(texts: Mapping[str, str]) -> dict[str, str]:
    """The same settings with secret values replaced."""
    return {key: MASK if text and is_secret(key) else text for key, text in texts.items()}
