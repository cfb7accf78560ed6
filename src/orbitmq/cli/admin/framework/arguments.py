"""Arguments and options that several commands have, with their completion."""

from typing import Annotated

import typer

from orbitmq.cli.admin.framework.completion import complete_broker, complete_group, complete_topic
from orbitmq.cli.time_expressions import TIME_HELP

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic.", autocompletion=complete_topic)]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.", autocompletion=complete_group)]
Broker = Annotated[
    str,
    typer.Argument(
        metavar="BROKER",
        help="Broker: its name, which means its master, or its address.",
        autocompletion=complete_broker,
    ),
]
AtBroker = Annotated[
    str,
    typer.Option(
        "--broker", "-b", help="Only at this broker: a name or an address.", autocompletion=complete_broker
    ),
]
From = Annotated[str, typer.Option("--from", metavar="TIME", help=f"Only what was stored since TIME: {TIME_HELP}.")]
To = Annotated[str, typer.Option("--until", metavar="TIME", help="Only what was stored until TIME.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        help="Format of a message: %t topic, %B broker, %q queue, %o offset, %i id, %I broker's id, %k keys, "
        "%g tags, %b body, %x body in hex, %s size, %T store time, %M the same in ms, %P properties, "
        "%{name} one property, %% a percent sign; \\n, \\t.",
    ),
]
