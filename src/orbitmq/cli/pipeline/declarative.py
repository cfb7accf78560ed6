"""``orbitmq pipeline init|validate|run``: projects of Spark Declarative Pipelines."""

import pathlib
from typing import Annotated

import typer

from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers
from orbitmq.cli.output import complain, for_people, many, safe
from orbitmq.cli.pipeline.options import Conf, DryRun, Json, Master, job_errors, show

Where = Annotated[
    pathlib.Path | None,
    typer.Argument(metavar="[PROJECT]", help="The spec file or its folder. \\[default: this folder or one above]"),
]


def init(
    folder: Annotated[
        pathlib.Path, typer.Argument(help="The folder of the new project; its name becomes the pipeline's name.")
    ],
    example: Annotated[
        list[str] | None,
        typer.Option(help="The example to copy: sessions, orders, dead-letters or cdc; may be repeated."),
    ] = None,
) -> None:
    """Create a pipeline project: a spec file, an example that reads topics, and sample messages for them."""
    with job_errors():
        from orbitmq.spark.pipelines.declarative.job import EXAMPLES, init_project  # noqa: PLC0415

        made = init_project(folder, example or EXAMPLES[:1])
    console = for_people()
    for path in made:
        console.print(f"[green]✓[/] {safe(str(path))}", soft_wrap=True)
    console.print(f"\norbitmq pipeline validate {safe(str(folder))}\norbitmq pipeline run {safe(str(folder))}")


def validate(project: Where = None) -> None:
    """Check a pipeline without Spark, Java or a broker."""
    with job_errors():
        from orbitmq.spark.pipelines.declarative.check import problems_of  # noqa: PLC0415
        from orbitmq.spark.pipelines.declarative.project import find_spec, read_project  # noqa: PLC0415

        found = read_project(find_spec(project))
        problems = problems_of(found)
    for problem in problems:
        complain(str(problem))
    if problems:
        raise typer.Exit(1)
    for_people().print(f"[green]✓[/] {safe(found.name)}: {many(len(found.files), 'file')}, nothing wrong found")


def run(
    project: Where = None,
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    refresh: Annotated[list[str] | None, typer.Option(help="Refresh only this table; may be repeated.")] = None,
    full_refresh: Annotated[
        list[str] | None, typer.Option(help="Empty this table and compute it from the start; may be repeated.")
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Empty all tables and compute them from the start.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Update all tables and sinks of a pipeline with the messages that the topics have now.

    Topics that do not exist get the messages of the project's folder samples.
    """
    with job_errors():
        from orbitmq.spark.pipelines.declarative.job import Refresh, open_project, run_project  # noqa: PLC0415
        from orbitmq.spark.pipelines.progress import JobProgress  # noqa: PLC0415
        from orbitmq.spark.pipelines.spark_job import settings_of  # noqa: PLC0415

        if full_refresh_all and (refresh or full_refresh):
            raise typer.BadParameter("--full-refresh-all cannot be combined with --refresh or --full-refresh")
        summary = run_project(
            open_project(project),
            nameserver=nameserver,
            refresh=Refresh(refresh or (), full_refresh or (), full_refresh_all),
            dry_run=dry_run,
            master=master,
            conf=settings_of(conf or []),
            progress=JobProgress(),
        )
    show(summary, json=json)
