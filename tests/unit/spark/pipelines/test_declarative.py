"""Problems of a declarative pipeline are found without Spark, with file and line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.pipelines.declarative.check import problems_of
from orbitmq.spark.pipelines.declarative.job import EXAMPLES, init_project
from orbitmq.spark.pipelines.declarative.project import find_spec, read_project
from orbitmq.spark.pipelines.spark_job import PipelineError
from support.cli.command import run

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "from pyspark import pipelines as dp\nfrom orbitmq.spark.declarative import topic, topic_sink\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "shop", EXAMPLES)
    return tmp_path / "shop"


def problems(project: Path) -> list[str]:
    folder = f"{project.resolve()}/"
    return [str(found).removeprefix(folder) for found in problems_of(read_project(find_spec(project)))]


def added(project: Path, text: str, name: str = "more.py") -> list[str]:
    (project / "transformations" / name).write_text(text)
    return problems(project)


def test_every_example_is_well(project: Path) -> None:
    assert problems(project) == []
    assert {path.name for path in (project / "transformations").iterdir()} >= {"sessions.py", "customers.sql"}
    assert not list(project.rglob("__pycache__"))
    assert "pyspark.sql.connect.session" not in sys.modules  # nothing was started


def test_a_project_is_made_only_where_nothing_is(project: Path) -> None:
    with pytest.raises(PipelineError, match="is there already"):
        init_project(project)
    with pytest.raises(PipelineError, match="there is no example 'kafka': choose from sessions"):
        init_project(project / "new", ["kafka"])
    assert not (project / "new").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("name: shop\n", ":1: 'storage' is missing, or is not text"),
        ("name: shop\nstorage: here\n", ":2: storage is an absolute URI, such as file:///var/lib/pipeline"),
        ("name: [1\n", ":2: this is not YAML: "),
        ("- 1\n", ":1: a spec is a table of name, storage"),
        ("name: shop\nstorage: file:///x\ntopics: []\n", ":3: Spark knows no 'topics' in a spec: there are name"),
        ("name: a\nstorage: file:///x\nlibraries: [1]\n", ":3: libraries is a list of 'glob: {include: path}'"),
        (
            "name: a\nstorage: file:///x\nlibraries:\n  - glob: {include: '**/*.py'}\n",
            ":4: '**/*.py' cannot be included: it is the path of a file, or a folder with /**",
        ),
        (
            "name: a\nstorage: file:///x\nconfiguration:\n  spark.x: 1\n",
            ':4: the value of spark.x has to be text: write it in quotes, "1"',
        ),
        ("name: a\nstorage: file:///x\nlibraries:\n  - glob: {include: none/**}\n", ":1: no file is included by"),
        ("name: a\nstorage: file:///x\n", ":1: nothing is defined: there is no table, view or sink"),
    ],
)
def test_a_broken_spec_is_reported_with_its_line(project: Path, spec: str, message: str) -> None:
    (project / "spark-pipeline.yml").write_text(spec)
    assert any(found.startswith(f"spark-pipeline.yml{message}") for found in problems(project)), problems(project)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "more.py:1: Python cannot read it: invalid syntax"),
        ("x = 1\nspark.range(3)\n", "more.py:2: AttributeError: 'spark.range' is used outside of the functions"),
        (
            HEAD + "@dp.append_flow(target='nowhere')\ndef flow():\n    return topic('a')\n",
            "more.py:3: there is no table and no sink 'nowhere' to write to",
        ),
        (HEAD + "@dp.table\ndef Customers():\n    ...\n", "more.py:3: 'Customers' is defined twice: also in "),
        (
            HEAD + "def f():\n    return topic('a', startingOffset='earliest')\n",
            "more.py:4: there is no option 'startingoffset' for reading topics: did you mean startingOffsets?",
        ),
        (
            "def f():\n    return spark.readStream.format('orbitmq').option('subscibe', 'a').load()\n",
            "more.py:2: there is no option 'subscibe' for reading topics: did you mean subscribe?",
        ),
        (HEAD + "topic_sink('out', retries='many')\n", "retries=many is not possible: it is a whole number"),
        (HEAD + "topic_sink('out', retries=[])\n", "OptionError: the option retries is text, a number"),
        ("raise SystemExit('no')\n", "more.py:1: SystemExit: no"),
    ],
)
def test_a_broken_definition_is_reported_with_its_line(project: Path, text: str, message: str) -> None:
    assert any(message in found for found in added(project, text)), problems(project)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-- it\n\nDROP TABLE a;\n", "more.sql:3: 'DROP TABLE a' defines nothing"),
        ("CREATE MATERIALIZED VIEW customers AS SELECT 1", "more.sql:1: 'customers' is defined twice"),
        (
            "SET a = b;\nCREATE FLOW f AS INSERT INTO away SELECT 1",
            "more.sql:2: there is no table and no sink 'away'",
        ),
        (
            "CREATE STREAMING TABLE t AS SELECT (1",
            "more.sql:1: a quotation mark, comment or bracket is never closed",
        ),
        (
            "CREATE STREAMING TABLE t AS SELECT '1",
            "more.sql:1: a quotation mark, comment or bracket is never closed",
        ),
    ],
)
def test_broken_sql_is_reported_with_its_line(project: Path, text: str, message: str) -> None:
    assert any(found.startswith(f"transformations/{message}") for found in added(project, text, "more.sql")), (
        problems(project)
    )


def test_sql_that_only_looks_broken_is_well(project: Path) -> None:
    text = "/* a; ' */ CREATE STREAMING TABLE `t;` AS SELECT ';(' AS a -- it's\n FROM STREAM customer_changes;\n;"
    assert added(project, text, "more.sql") == []


def test_other_files_are_no_definitions(project: Path) -> None:
    assert added(project, "", "notes.txt") == [
        "transformations/notes.txt:1: Spark takes only .py and .sql files as definitions"
    ]


def test_the_command_says_what_is_wrong_and_fails(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "transformations")  # the spec is looked for from here up
    assert run("pipeline", "validate").out == "✓ shop: 6 files, nothing wrong found\n"
    (project / "spark-pipeline.yml").write_text("name: shop\n")
    ran = run("pipeline", "validate")
    assert (ran.code, ran.out) == (1, "")
    assert "spark-pipeline.yml:1: 'storage' is missing" in ran.err
    assert run("pipeline", "run", project).err == ran.err  # before Spark is started


def test_a_project_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    ran = run("pipeline", "validate", tmp_path)
    assert (ran.code, ran.err) == (
        1,
        f"orbitmq: there is no spark-pipeline.yml in {tmp_path}: 'orbitmq pipeline init NAME' makes a project\n",
    )
    (tmp_path / "spark-pipeline.yml").touch()
    (tmp_path / "spark-pipeline.yaml").touch()
    assert "keep one of them" in run("pipeline", "validate", tmp_path).err
