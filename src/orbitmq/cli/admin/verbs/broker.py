"""``orbitmq broker``: status, settings, replication and maintenance of brokers.

``orbitmq broker`` without one of these verbs runs a broker.
"""

from typing import Annotated

import typer

from orbitmq.cli.admin.framework.arguments import AtBroker, Broker
from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, command_of, confirm, verb
from orbitmq.cli.admin.framework.view import Pairs, Table, View
from orbitmq.cli.admin.verbs.cluster import broker_table
from orbitmq.cli.admin.verbs.config import config_app

broker_app = typer.Typer(help="Brokers: list, status, config, replication, clean; no verb runs one.")
clean_app = typer.Typer(help="Clean up: expired queues, unused topics, expired logs.", no_args_is_help=True)
broker_app.add_typer(config_app, name="config")
broker_app.add_typer(clean_app, name="clean")


@verb(broker_app, "list")
async def list_brokers(operator: Operator) -> View:
    """List brokers with their live figures."""
    return View.of(broker_table(await operator.admin.brokers.all()))


@verb(broker_app, "status")
async def status(
    operator: Operator,
    broker: Broker,
    pattern: Annotated[
        str, typer.Option("--match", metavar="TEXT", help="Only figures with this in their name.")
    ] = "",
) -> View:
    """Show all live figures of a broker, by RocketMQ's names."""
    runtime = await operator.admin.brokers.runtime(broker)
    found = {name: text for name, text in sorted(runtime.table.items()) if pattern.lower() in name.lower()}
    return View.of(Pairs(found, is_verbatim=True))


@verb(broker_app, "replication")
async def replication(operator: Operator, broker: Broker) -> View:
    """Show the slaves of a master, or how far a slave is."""
    found = await operator.admin.brokers.replication(broker)
    if found.is_master:
        about = {
            "address": found.address,
            "role": "master",
            "logMaxOffset": found.log_max_offset,
            "inSyncSlaves": found.in_sync_slaves,
        }
        rows = [
            (one.address, one.ack_offset, one.lag_bytes, one.is_in_sync, one.bytes_per_second)
            for one in found.slaves
        ]
        slaves = Table("slave ackOffset> lagBytes> inSync bytesPerSecond>", rows)
        return View({"": Pairs(about), "slaves": slaves})
    return View.of(
        Pairs(
            {
                "address": found.address,
                "role": "slave",
                "master": found.master_address,
                "logMaxOffset": found.log_max_offset,
                "masterFlushOffset": found.master_flush_offset,
                "bytesPerSecond": found.bytes_per_second,
                "lastReadMs@": found.last_read_ms,
                "lastWriteMs@": found.last_write_ms,
            }
        )
    )


@verb(broker_app, "epochs")
async def epochs(operator: Operator, broker: Broker) -> View:
    """Show the epochs of a broker's log, where a controller elects masters."""
    found = await operator.admin.brokers.epochs(broker)
    rows = [(one.epoch, one.start_offset, one.end_offset) for one in found.epoch_list]
    return View.of(Table("epoch> startOffset> endOffset>", rows, "the broker has no epochs"))


@verb(broker_app, "producers")
async def producers(operator: Operator, broker: AtBroker = "") -> View:
    """List the producers that are connected."""
    found = await operator.admin.members.all_producers(broker=broker)
    rows = [
        (group, one.client_id, one.address, one.language, one.version)
        for group, members in found.items()
        for one in members
    ]
    return View.of(Table("group client address language version", rows, "no producer is connected"))


BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Broker name.")]


@verb(broker_app, "wipe-write")
async def wipe_write(operator: Operator, broker: BrokerName, change: ChangeOptions) -> View:
    """Take a broker out of the routes for writing, before maintenance."""
    if change.dry_run:
        return View.of(Table("nameServer topics>", []), "dry run: nothing was changed")
    if not change.yes:
        confirm(f"withdraw write permission of the broker {broker} at all name servers")
    found = await operator.admin.brokers.wipe_write_permission(broker)
    return View.of(Table("nameServer topics>", list(found.items())))


@verb(broker_app, "add-write")
async def add_write(operator: Operator, broker: BrokerName, change: ChangeOptions) -> View:
    """Take a broker back into the routes for writing."""
    if change.dry_run:
        return View.of(Table("nameServer topics>", []), "dry run: nothing was changed")
    found = await operator.admin.brokers.add_write_permission(broker)
    return View.of(Table("nameServer topics>", list(found.items())))


@verb(clean_app, "expired-queues")
async def clean_queues(operator: Operator, change: ChangeOptions, broker: AtBroker = "") -> View:
    """Remove consume queues of expired and of deleted messages."""
    if change.dry_run:
        return await _targets(operator, broker)
    return _addresses(await operator.admin.brokers.clean_expired_queues(broker=broker))


@verb(clean_app, "unused-topics")
async def clean_topics(operator: Operator, change: ChangeOptions, broker: AtBroker = "") -> View:
    """Remove the files of topics that are not configured any more."""
    if change.dry_run:
        return await _targets(operator, broker)
    return _addresses(await operator.admin.brokers.clean_unused_topics(broker=broker))


@verb(clean_app, "expired-log")
async def clean_log(operator: Operator, change: ChangeOptions, broker: AtBroker = "") -> View:
    """Remove expired commit log files now, instead of at the hour of deleteWhen."""
    if change.dry_run:
        return await _targets(operator, broker)
    if not change.yes:
        confirm("delete expired messages now")
    return _addresses(await operator.admin.brokers.delete_expired_log(broker=broker))


async def _targets(operator: Operator, broker: str) -> View:
    """The brokers that a clean-up would go to."""
    chosen = await operator.admin.brokers.targets(broker=broker)
    table = Table("broker", [(one.address,) for one in chosen])
    return View.of(table, "dry run: nothing was removed")


def _addresses(found: list[str]) -> View:
    return View.of(Table("broker", [(address,) for address in found]))


brokers = command_of(list_brokers)
