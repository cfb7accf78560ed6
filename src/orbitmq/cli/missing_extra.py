"""Missing extras: the sentence for a command whose packages are not installed."""

from __future__ import annotations

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "click": "cli",
    "yaml": "cli",
    "lark": "cli",
    "numpy": "server",
    "re2": "server",
    "mmh3": "server",
    "cryptography": "server",
    "pyspark": "pipelines",
    "pyarrow": "pipelines",
    "pandas": "pipelines",
    "matplotlib": "pipelines",
    "confluent_kafka": "kafka",
    "fastavro": "formats",
    "google": "formats",
    "grpc": "grpc",
    "nicegui": "dashboard",
    "fastapi": "dashboard",
    "uvicorn": "dashboard",
    "pydantic": "dashboard",
    "starlette": "dashboard",
    "opentelemetry": "otel",
    "prometheus_client": "otel",
    "faststream": "faststream",
    "sqlalchemy": "sql",
}
"""Extra of the package that has each module."""


def sentence_for(error: ImportError) -> str | None:
    """One sentence with the command that installs what is missing; None for a module of no extra."""
    if "orbitmq[" in str(error):
        # Raised by a module of OrbitMQ that needs the package.
        return str(error)
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    if extra is None:
        return None
    return f"this command needs the package {module}, which is not installed: pip install 'orbitmq[{extra}]'"
