"""Coverage-guided fuzzing of what reads bytes of strangers (``make fuzz-guided``), with atheris and libFuzzer.

The first byte of an input selects the reader. An error that is not one of its own, or a hang, ends the run with the
input in a file ``crash-…``. Only Python code is guided; ``make fuzz SANITIZE=1`` is for the compiled kernel.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def readers() -> list[tuple[Callable[[bytes], object], tuple[type[Exception], ...]]]:
    """Each reader, and the errors that it may raise. Imported late: only what is imported then is instrumented."""
    from orbitmq.auth.plain.addresses import read_patterns
    from orbitmq.broker.ha.proof import MAGIC, MasterProof
    from orbitmq.filter import FilterError, compile_sql, parse_tags
    from orbitmq.platform.settings import ConfigError
    from orbitmq.protocol import bodies
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.command.frame import FrameParser
    from orbitmq.protocol.errors import ProtocolError
    from orbitmq.protocol.fastjson import loads
    from orbitmq.protocol.message.record import iter_records
    from orbitmq.proxy.http2.hpack import HeaderDecoder, HpackError
    from orbitmq.remoting.connect.proxy_header import read_proxy_header
    from orbitmq.store.replication.frames import FrameError, LogStream, ReportStream

    def text(data: bytes) -> str:
        return data.decode("utf-8", "replace")

    def proof(data: bytes) -> None:
        master = MasterProof({"inner": b"s"}.get)
        master.feed(MAGIC)
        master.feed(data)

    return [
        (lambda data: [Command.decode(frame) for frame in FrameParser().feed(data)], (ProtocolError,)),
        (lambda data: list(iter_records(data)), (ProtocolError,)),
        (loads, (ProtocolError,)),
        (bodies.HeartbeatData.decode, (ProtocolError,)),
        (bodies.AclInfo.decode, (ProtocolError,)),
        (lambda data: compile_sql(text(data)), (FilterError,)),
        (lambda data: parse_tags(text(data)), (FilterError,)),
        (read_proxy_header, (ProtocolError,)),
        (lambda data: HeaderDecoder().decode(data, 16384), (HpackError,)),
        (lambda data: list(LogStream().feed(data)), (FrameError,)),
        (ReportStream().feed, (FrameError,)),
        (proof, (FrameError,)),
        (lambda data: read_patterns([text(data)], ""), (ConfigError,)),
    ]


def seeds(folder: Path, count: int) -> None:
    """The fuzzer's own templates as the first inputs of the readers that they are for."""
    from faults.fuzz.frames import batch

    samples = [frame for number in range(20) for frame in batch(1, number).frames]
    for number, sample in enumerate(samples):
        (folder / f"frame-{number}").write_bytes(b"\0" + sample[:4096])
    for kind in range(count):
        (folder / f"kind-{kind}").write_bytes(bytes([kind]))
    for kind, sample in (
        (2, b'{"a":[1,{"$ref":"$"}]}'),
        (5, b"a > 3 AND b IN ('x')"),
        (7, b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n"),
    ):
        (folder / f"sample-{kind}").write_bytes(bytes([kind]) + sample)


def main(arguments: Sequence[str]) -> None:
    try:
        import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        sys.exit("make fuzz-guided needs atheris, for CPython 3.11 and newer on Linux: pip install atheris==3.0.0")
    with atheris.instrument_imports(
        include=["orbitmq.protocol", "orbitmq.filter", "orbitmq.proxy", "orbitmq.remoting"]
    ):
        known: Any = readers()

    def one(data: bytes) -> None:
        if not data:
            return
        read, errors = known[data[0] % len(known)]
        with contextlib.suppress(*errors):
            read(data[1:])

    with tempfile.TemporaryDirectory(prefix="orbitmq-guided-") as folder:
        seeds(Path(folder), len(known))
        atheris.Setup(["guided", "-timeout=10", "-max_len=4096", *arguments, folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
