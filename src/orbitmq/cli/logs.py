"""What servers write while they run: lines for people, or one JSON object a line for machines."""

import datetime
import enum
import logging
import sys

import orjson


class LogFormat(enum.StrEnum):
    """How a line looks."""

    TEXT = "text"
    JSON = "json"


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created).astimezone()
        stamp = f"{time:%Y-%m-%d %H:%M:%S}.{int(record.msecs):03d}"
        text = f"{stamp} {record.levelname:<7} {_source(record)}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "source": _source(record),
            "message": _writable(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = _writable(self.formatException(record.exc_info))
        return orjson.dumps(line).decode()


def _writable(text: str) -> str:
    """What a peer called itself may hold halves of characters, which no JSON can."""
    return text.encode("utf-8", "replace").decode()


def _source(record: logging.LogRecord) -> str:
    return record.name.removeprefix("orbitmq.")


def set_up_logs(form: LogFormat) -> None:
    """Send what the servers have to say to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form is LogFormat.JSON else _Text())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("orbitmq").setLevel(logging.INFO)
    # That it listens, and where, is said by the commands themselves.
    logging.getLogger("orbitmq.remoting").setLevel(logging.WARNING)
