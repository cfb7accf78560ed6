"""Lazy import of libraries that load slowly, and the check that those of a server are installed."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

SERVER_MODULES = ("cryptography", "lark", "mmh3", "numpy", "re2")
"""Modules of the extra ``server``."""


class _MissingModule(ModuleType):
    """A module that is not installed: an error at its first use, because most programs never use it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = self.__name__.partition(".")[0]
        raise ModuleNotFoundError(f"this needs the package {module}, which is not installed", name=module)


def lazy_module(name: str) -> ModuleType:
    """A module that is executed at its first use, so that a server opens its port before that.

    One that is not installed raises ModuleNotFoundError then.
    """
    if name in sys.modules:
        loaded: ModuleType | None = sys.modules[name]
        return _MissingModule(name) if loaded is None else loaded
    spec = _spec(name)
    if spec is None or spec.loader is None:
        return _MissingModule(name)
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    package, _, child = name.rpartition(".")
    if package:
        # As the import system does, for later imports by the full name.
        setattr(sys.modules[package], child, module)
    return module


def require_server(user: str) -> None:
    """Raise ImportError, in one sentence, if a module of the extra ``server`` is not installed.

    Most are imported at their first use: without this check a server would start, and fail at a request.
    """
    missing = next((name for name in SERVER_MODULES if _spec(name) is None), None)
    if missing is not None:
        sentence = f"{user} needs the package {missing}, which is not installed: pip install 'orbitmq[server]'"
        raise ImportError(sentence, name=missing)


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        # Its package is missing.
        return None
