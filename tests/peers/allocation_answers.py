"""Random questions about shares of queues with the answers of Apache's Java client.

``PYTHONPATH=tests python -m peers.allocation_answers`` makes ``tests/data/client/allocation.jsonl.gz`` anew.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from peers.apache import class_path

ANSWERS = Path(__file__).parents[1] / "data" / "client" / "allocation.jsonl.gz"
SEED = 20
QUESTIONS = 1_000

_SOURCE = Path(__file__).with_name("java") / "allocation" / "AllocationAnswers.java"
_SECONDS = 120
_KINDS = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "CONFIG", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY")
_ROOMS = ("hz", "sh", "bj", "", "\u674f", "\U0001f680", "\uff5e")


def questions(seed: int = SEED, count: int = QUESTIONS) -> list[dict[str, Any]]:
    """Questions of all kinds in equal numbers; some that cannot be answered, and lists that nobody sorted."""
    chance = random.Random(seed)
    return [_question(chance, _KINDS[number % len(_KINDS)]) for number in range(count)]


def _question(chance: random.Random, kind: str) -> dict[str, Any]:
    rooms = chance.sample(_ROOMS[: chance.choice((3, 3, 3, len(_ROOMS)))], chance.randint(1, 3))
    nearby = kind == "MACHINE_ROOM_NEARBY"
    queues = _queues(chance, rooms, "-" if nearby else chance.choice(("@", "@", "-")))
    client_ids = [_client_id(chance, rooms if nearby else ()) for _ in range(_size(chance))]
    if chance.random() < 0.9:
        queues.sort()
        client_ids.sort(key=lambda text: text.encode("utf-16-be"))
    if client_ids and chance.random() < 0.05:
        client_ids.append(chance.choice(client_ids))
    client_id = chance.choice(client_ids) if client_ids and chance.random() < 0.95 else _client_id(chance, rooms)
    question: dict[str, Any] = {
        "strategy": kind,
        "client_id": "" if chance.random() < 0.01 else client_id,
        "queues": queues,
        "client_ids": client_ids,
    }
    if nearby:
        question["inner"] = chance.choice(("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"))
    if kind == "CONFIG":
        question["configured"] = _queues(chance, rooms, "-")[: chance.randint(0, 4)]
    if kind == "MACHINE_ROOM":
        question["rooms"] = chance.sample(rooms, chance.randint(1, len(rooms)))
    if "CONSISTENT_HASH" in question.values():
        question["virtual_nodes"] = chance.choice((10, 10, 10, 0, 1, 3, 40))
    return question


def _size(chance: random.Random) -> int:
    return chance.choice(
        (chance.randint(1, 4), chance.randint(1, 12), chance.randint(13, 24), 0 if chance.random() < 0.05 else 1)
    )


def _queues(chance: random.Random, rooms: list[str], between: str) -> list[tuple[str, str, int]]:
    topic = chance.choice(("TopicTest", "orders", "%RETRY%billing", "b%leu"))
    found = []
    for number in range(_size(chance) // 3 if chance.random() < 0.97 else 0, -1, -1):
        name = f"{chance.choice(rooms)}{between}broker-{number}"
        if chance.random() < 0.05:
            name = chance.choice((f"{name}@", f"{name}@@", f"broker{number}", f"{name}@more", f"@{name}"))
        found += [(topic, name, queue) for queue in range(chance.choice((1, 2, 4, 8, 16)))]
    return found if chance.random() < 0.97 else []


def _client_id(chance: random.Random, rooms: list[str] | tuple[str, ...]) -> str:
    room = f"{chance.choice((*rooms, *rooms, 'elsewhere'))}-" if rooms else ""
    return f"{room}10.0.{chance.randint(0, 3)}.{chance.randint(1, 254)}@{chance.randint(2, 99_999)}"


def answered(asked: list[dict[str, Any]]) -> str:
    """The questions with ``name`` and either ``share`` or ``error`` in each, a line for each."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-allocation-") as folder:
        subprocess.run(
            ["javac", "-encoding", "UTF-8", "-cp", class_path(), "-d", folder, str(_SOURCE)],
            check=True,
            timeout=_SECONDS,
        )
        command = [
            "java",
            "-Xmx256m",
            f"-Duser.home={folder}",
            "-cp",
            f"{folder}:{class_path()}",
            _SOURCE.stem,
        ]
        lines = "".join(f"{json.dumps(question, ensure_ascii=False)}\n" for question in asked)
        said = subprocess.run(
            command, input=lines, encoding="utf-8", stdout=subprocess.PIPE, check=True, timeout=_SECONDS
        )
    return said.stdout


if __name__ == "__main__":
    ANSWERS.parent.mkdir(parents=True, exist_ok=True)
    # No time in it, so that the same answers are the same file.
    ANSWERS.write_bytes(gzip.compress(answered(questions()).encode(), mtime=0))
