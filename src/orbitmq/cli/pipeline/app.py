"""``orbitmq pipeline``: the Spark jobs, one command per file."""

import typer

from orbitmq.cli.pipeline.archive import archive
from orbitmq.cli.pipeline.audit import audit
from orbitmq.cli.pipeline.declarative import init, run, validate
from orbitmq.cli.pipeline.migrate import migrate
from orbitmq.cli.pipeline.rebuild import rebuild
from orbitmq.cli.pipeline.replay import replay

pipeline_app = typer.Typer(
    help="Spark jobs over topics, stores and archives, on this machine or on the cluster of --master.",
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
