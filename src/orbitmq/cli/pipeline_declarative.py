"""``orbitmq pipeline init|validate|run``: users' own pipelines, in the files of Spark Declarative Pipelines."""

import pathlib
from typing import Annotated

import typer

from orbitmq.cli.console import complain, for_people, many, safe
from orbitmq.cli.pipeline_options import Conf, DryRun, Json, Master, job_errors, show
from orbitmq.cli.reaching import DEFAULT_NAME_SERVER, NameServers

Where = Annotated[
    pathlib.Path | None,
    typer.Argument(metavar="[PROJECT]", help="A spec file or its folder; otherwise it is looked for from here up."),
]


def init(
    folder: Annotated[pathlib.Path, typer.Argument(help="The new project's folder; its name is the pipeline's.")],
    example: Annotated[
        list[str] | None, typer.Option(help="sessions, orders, dead-letters or cdc; may be repeated.")
    ] = None,
) -> None:
    """Make a pipeline project: a spec file, and an example whose sources are topics."""
    with job_errors():
        from orbitmq.spark.pipelines.declarative.job import EXAMPLES, init_project  # noqa: PLC0415

        made = init_project(folder, example or EXAMPLES[:1])
    console = for_people()
    for path in made:
        console.print(f"[green]✓[/] {safe(str(path))}", soft_wrap=True)
    console.print(f"\norbitmq pipeline validate {safe(str(folder))}\norbitmq pipeline run {safe(str(folder))}")


def validate(project: Where = None) -> None:
    """Find what is wrong with a pipeline, and start nothing: neither Spark nor Java, and no broker is asked."""
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
    refresh: Annotated[list[str] | None, typer.Option(help="Only this table; may be repeated.")] = None,
    full_refresh: Annotated[
        list[str] | None, typer.Option(help="This table, emptied and from the start; may be repeated.")
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="All tables, emptied and from the start.")
    ] = False,
    dry_run: DryRun = False,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> None:
    """Bring all tables and sinks of a pipeline up to date with what the topics have now."""
    with job_errors():
        from orbitmq.spark.pipelines.declarative.job import Refresh, open_project, run_project  # noqa: PLC0415
        from orbitmq.spark.pipelines.running import settings_of  # noqa: PLC0415
        from orbitmq.spark.pipelines.telling import Telling  # noqa: PLC0415

        if full_refresh_all and (refresh or full_refresh):
            raise typer.BadParameter("all tables, or some: --full-refresh-all stands alone")
        summary = run_project(
            open_project(project),
            nameserver=nameserver,
            refresh=Refresh(refresh or (), full_refresh or (), full_refresh_all),
            dry_run=dry_run,
            master=master,
            conf=settings_of(conf or []),
            telling=Telling(),
        )
    show(summary, json=json)
