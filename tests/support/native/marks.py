"""Marks of tests that need the native extension."""

from __future__ import annotations

import pytest

from orbitmq import native

needs_native = pytest.mark.skipif(
    not native.load().is_compiled, reason="the native extension was not built or is switched off"
)
