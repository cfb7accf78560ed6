"""``python -m bench rebuild``: a store's queues and index from its log, by the broker's own code and by Spark.

Both are the commands that people type, each in a process of its own, on the same store in turns, and what they
write is compared byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench.apart import apart
from bench.figures import Figure, figure
from bench.machine import GIB, MIB, describe_machine, free_space, load_average
from bench.messages import BORN_HOST, TAGS, open_store, store_root
from bench.report import formatted
from orbitmq.store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOPICS = 4
QUEUES = 8
MIN_BODY, MAX_BODY = 128, 1024

BROKER = "orbitmq store rebuild"
SPARK = "orbitmq pipeline rebuild"
_PATIENCE = 1800


def rebuild(
    quick: Annotated[bool, typer.Option("--quick", help="A store of 32 MiB; its figures say little.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="How often each of them builds.")] = 3,
    cores: Annotated[int, typer.Option(min=1, help="How many tasks Spark runs at once.")] = 2,
    json_to: Annotated[str | None, typer.Option("--json", help="Write JSON to this file; - is stdout.")] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Where to make a temporary folder, removed afterwards.")
    ] = None,
) -> None:
    """Measure how long queues and index of a store of 1 GiB take to be built from its log."""
    console = Console(stderr=json_to == "-", width=None if sys.stdout.isatty() else 150)
    size = 32 * MIB if quick else GIB
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-", dir=directory) as home:
        if free_space(home) < 3 * size:
            raise typer.BadParameter(f"{home} has no room for {3 * size / GIB:.1f} GiB", param_hint="--dir")
        machine, load = describe_machine(home), load_average()
        records = apart(fill_store, home, size)
        figures = _measured(store_root(home), rounds, cores)
    results = {
        "machine": {"cpu": machine.cpu, "cores": machine.cores, "python": machine.python},
        "load": [load, load_average()],
        "store": {"bytes": size, "records": records, "queues": TOPICS * QUEUES},
        "figures": [one.as_json() for one in figures],
    }
    _print(console, results, figures)
    if json_to is not None:
        text = json.dumps(results, indent=2) + "\n"
        if json_to == "-":
            sys.stdout.write(text)
        else:
            with open(json_to, "w", encoding="utf-8") as file:
                file.write(text)


def fill_store(home: str, size: int) -> int:
    """Fill a store with messages of 128 B to 1 KiB, each with a key, a tag and a unique key; returns how many."""
    rng = random.Random(1)
    content = rng.randbytes(4 * MAX_BODY)
    count = 0
    with open_store(home) as store:
        now = store.clock.now_ms()
        while store.log.end < size:
            start, length = rng.randrange(2 * MAX_BODY), rng.randint(MIN_BODY, MAX_BODY)
            items = (
                f"UNIQ_KEY\x01C0000207302A251A69D7{count:012X}",
                f"KEYS\x01order-{count}",
                "WAIT\x01true",
                f"TAGS\x01{TAGS[count % len(TAGS)]}",
                "MSG_REGION\x01DefaultRegion",
                "TRACE_ON\x01true",
                "CLUSTER\x01DefaultCluster",
            )
            store.append(
                StoredMessage(
                    f"BenchTopic-{count % TOPICS}",
                    count // TOPICS % QUEUES,
                    content[start : start + length],
                    "".join(f"{item}\x02" for item in items).encode(),
                    born_timestamp=now,
                    born_host=BORN_HOST,
                )
            )
            count += 1
    return count


def _measured(root: str, rounds: int, cores: int) -> list[Figure]:
    broker: list[float] = []
    spark: list[float] = []
    inside: dict[str, list[float]] = {BROKER: [], SPARK: []}
    made = None
    for _ in range(rounds):
        for name, times, arguments in (
            (BROKER, broker, ["store", "rebuild", root, "--yes", "--json"]),
            (SPARK, spark, ["pipeline", "rebuild", root, "--master", f"local[{cores}]", "--json"]),
        ):
            seconds, results = _run(arguments)
            times.append(seconds)
            inside[name].append(float(results["seconds"]))
            digest = _digest(root)
            assert made in {None, digest}, f"{name} has built something else"
            made = digest
    ratios = [one / other for one, other in zip(broker, spark, strict=True)]
    inner = [one / other for one, other in zip(inside[BROKER], inside[SPARK], strict=True)]
    return [
        figure(BROKER, "the command", "s", broker),
        figure(BROKER, "building alone", "s", inside[BROKER]),
        figure(SPARK, f"the command, on {cores} cores", "s", spark),
        figure(SPARK, "building alone, once Spark runs", "s", inside[SPARK]),
        figure(f"{SPARK} to {BROKER}", "times as fast, the command", "", ratios),
        figure(f"{SPARK} to {BROKER}", "times as fast, building alone", "", inner),
    ]


def _run(arguments: Sequence[str]) -> tuple[float, Mapping[str, Any]]:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise typer.BadParameter(f"{' '.join(arguments)} failed: {done.stderr}")
    return seconds, json.loads(done.stdout)


def _digest(root: str) -> str:
    """Of the contents of queues and index; the names of index files are moments."""
    digest = hashlib.sha256()
    for folder in ("consumequeue", "index"):
        for directory, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(names):
                with open(os.path.join(directory, name), "rb") as file:
                    path = os.path.relpath(file.name, root) if folder == "consumequeue" else folder
                    digest.update(path.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _print(console: Console, results: Mapping[str, Any], figures: Sequence[Figure]) -> None:
    store, machine = results["store"], results["machine"]
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores; load {results['load'][0]}, then {results['load'][1]}"
    )
    console.print(f"{store['records']:,} records in {store['bytes'] / GIB:.2f} GiB, {store['queues']} queues")
    table = Table(box=None, pad_edge=False)
    for heading in ("subject", "measure", "min", "median", "max", "unit"):
        table.add_column(heading, justify="left" if heading in {"subject", "measure", "unit"} else "right")
    for one in figures:
        table.add_row(one.subject, one.measure, *map(formatted, (one.low, one.median, one.high)), one.unit)
    console.print(table)
