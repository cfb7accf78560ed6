"""Choice of queues on the command line: ``--queue 2``, ``--queue broker-a:0``."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.protocol.bodies import MessageQueue


class QueueChoice:
    """Some queues of a topic, or all."""

    def __init__(self, chosen: Iterable[str]) -> None:
        """Raises BadParameter for what is neither NUMBER nor BROKER:NUMBER."""
        self._chosen: set[tuple[str, int]] = set()
        """Names of brokers, empty for any, with numbers of queues."""
        for text in chosen:
            broker, _, number = text.rpartition(":")
            if not number.isdecimal():
                raise typer.BadParameter(f"--queue {text!r} is neither a number nor BROKER:NUMBER")
            self._chosen.add((broker, int(number)))

    def has(self, queue: "MessageQueue") -> bool:
        number = queue.queue_id
        return not self._chosen or ("", number) in self._chosen or (queue.broker_name, number) in self._chosen

    def of(self, queues: Iterable["MessageQueue"]) -> set["MessageQueue"]:
        """The chosen ones of these. Raises ConfigError if there are none."""
        everything = set(queues)
        found = {queue for queue in everything if self.has(queue)}
        if everything and not found:
            known = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in sorted(everything))
            raise ConfigError(f"the topic has no such queue; it has {known}")
        return found
