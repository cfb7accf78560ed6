"""Header fields of a command: the common result of the JSON and binary decoders."""

from __future__ import annotations

from typing import Final, TypeAlias

from orbitmq.protocol.codes import LanguageCode

Header: TypeAlias = tuple[int, int, int, int, LanguageCode, str | None, dict[str, str]]
"""``(code, opaque, flag, version, language, remark, ext_fields)``.

A plain tuple, because one is made for every frame: it is taken apart in one assignment and costs a tenth of an
object. Fields that were sent without a value are not in ``ext_fields``.
"""

CODE: Final = 0
OPAQUE: Final = 1
FLAG: Final = 2
VERSION: Final = 3
EXT_FIELDS: Final = 6
"""Indices of a Header, for callers that need one or two of its members."""

LANGUAGES_BY_NAME: dict[str, LanguageCode] = {language.name: language for language in LanguageCode}

LANGUAGES_BY_CODE: dict[int, LanguageCode] = {language.value: language for language in LanguageCode}
"""Languages invented after this table are OTHER; Java reads them as null, which no answer can carry."""
