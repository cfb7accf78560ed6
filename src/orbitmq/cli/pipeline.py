"""``orbitmq pipeline``: whole Spark jobs, each a verb in a file of its own."""

import typer

from orbitmq.cli.pipeline_archive import archive
from orbitmq.cli.pipeline_audit import audit
from orbitmq.cli.pipeline_declarative import init, run, validate
from orbitmq.cli.pipeline_migrate import migrate
from orbitmq.cli.pipeline_rebuild import rebuild
from orbitmq.cli.pipeline_replay import replay

pipeline_app = typer.Typer(
    help="Spark jobs over topics, stores and archives. On one machine, or wherever --master says.",
    no_args_is_help=True,
)

pipeline_app.command("archive")(archive)
pipeline_app.command("audit")(audit)
pipeline_app.command("init")(init)
pipeline_app.command("validate")(validate)
pipeline_app.command("run")(run)
pipeline_app.command("migrate")(migrate)
pipeline_app.command("rebuild")(rebuild)
pipeline_app.command("replay")(replay)
