"""Log output of servers on standard error: text lines, or one JSON object per line."""

import atexit
import datetime
import enum
import logging
import sys

import orjson

from orbitmq.platform.log_lines import MAX_MESSAGE_LENGTH, RateLimit, escaped, escaped_json, escaped_lines


class LogFormat(enum.StrEnum):
    """Format of a log line."""

    TEXT = "text"
    JSON = "json"


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created).astimezone()
        stamp = f"{time:%Y-%m-%d %H:%M:%S}.{int(record.msecs):03d}"
        source, message = _source(record), escaped(record.getMessage())
        # Most messages begin with their component, which is often the name of the logger.
        text = message if message.startswith(f"{source}: ") else f"{source}: {message}"
        text = f"{stamp} {record.levelname:<7} {text}"
        if record.exc_info:
            text += "\n" + escaped_lines(self.formatException(record.exc_info))
        return text


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "source": _source(record),
            "message": _writable(record.getMessage()[: 2 * MAX_MESSAGE_LENGTH]),
        }
        if record.exc_info:
            line["exception"] = _writable(self.formatException(record.exc_info))
        return escaped_json(orjson.dumps(line).decode())


def _writable(text: str) -> str:
    """The text without lone surrogates, which names given by peers may contain and JSON cannot."""
    return text.encode("utf-8", "replace").decode()


def _source(record: logging.LogRecord) -> str:
    return record.name.removeprefix("orbitmq.")


def set_up_logs(form: LogFormat) -> None:
    """Write the log to standard error, rate-limited."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form is LogFormat.JSON else _Text())
    limit = RateLimit(handler)
    handler.addFilter(limit)
    atexit.register(limit.flush)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("orbitmq").setLevel(logging.INFO)
    # The commands print the addresses themselves.
    logging.getLogger("orbitmq.remoting").setLevel(logging.WARNING)


def set_up_server(form: LogFormat) -> None:
    """Set up logging and raise the limit of file descriptors to the maximum."""
    from orbitmq.remoting.limits.descriptors import raise_descriptor_limit  # noqa: PLC0415 - for servers only

    set_up_logs(form)
    raise_descriptor_limit()
