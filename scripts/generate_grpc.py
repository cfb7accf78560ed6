"""Renews the generated files of ``src/orbitmq/proxy/proto`` from its ``.proto`` files; needs grpcio-tools.

    python scripts/generate_grpc.py

The descriptor set is what the message classes are made of, the stubs are what mypy reads. ``tests/unit/proxy``
checks that both belong to the ``.proto`` files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

SOURCES = Path(__file__).parents[1] / "src"
FOLDER = Path("orbitmq/proxy/proto")


def generate(target: Path) -> None:
    """Write the descriptor set and the stubs below this folder."""
    (target / FOLDER).mkdir(parents=True, exist_ok=True)
    includes = [f"-I{SOURCES}", f"-I{Path(grpc_tools.__file__).parent / '_proto'}"]
    files = sorted(str(FOLDER / file.name) for file in (SOURCES / FOLDER).glob("*.proto"))
    descriptors = target / FOLDER / "descriptors.binpb"
    arguments = [
        *includes,
        "--include_imports",
        f"--descriptor_set_out={descriptors}",
        f"--pyi_out={target}",
        *files,
    ]
    if protoc.main(["protoc", *arguments]):
        sys.exit("protoc failed")


if __name__ == "__main__":
    generate(SOURCES)
