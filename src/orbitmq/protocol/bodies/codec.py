"""The one codec of all bodies: a dataclass's fields and type hints say how its JSON reads and writes.

A body is a dataclass with slots derived from ``Body`` whose fields all have defaults. ``Body`` defines equality and
``repr`` once: generated for each of a hundred classes they would take half of the load time. Property names are the
field names in camel case, or what ``java(...)`` in the field's metadata says.
Reading follows fastjson: unknown properties are passed over, absent and null ones keep the field's default, numbers
and booleans may come as text, an unknown enum name counts as null. A wrong shape raises ``ProtocolError`` with
the path of the property. Writing gives the properties in alphabetical order without the ``None`` ones.

The hints understood are ``str``, ``int``, ``float``, ``bool``, ``Any``, enums, bodies, ``list``, ``tuple[X, ...]``
(a Java array of numbers), ``dict`` with ``str``, ``int`` or body keys, ``SetOf`` and ``X | None``.
"""

import base64
import binascii
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self, TypeAlias, TypeVar

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import BlankArray, ObjectKey, dumps, loads

T = TypeVar("T")

SetOf: TypeAlias = Annotated[list[T], "Set"]
"""A Java ``Set`` inside another collection: a list here, to keep the order in which it came."""

BitSet: TypeAlias = Annotated[int, "BitSet"]
"""A Java ``BitSet``, as the integer with the same bits; Base64 of its bytes on the wire."""

_Convert: TypeAlias = Callable[[Any], Any]


def java(name: str, *read_too: str) -> dict[str, Any]:
    """Field metadata: the property's name in Java, and other names under which it may come in."""
    return {"java": (name, *read_too)}


class Body:  # noqa: PLW1641 - bodies change
    """Base of everything that travels or rests as a JSON object."""

    __slots__ = ()

    DERIVED: ClassVar[dict[str, str]] = {}
    """Properties that Java computes and writes but does not read, and the attribute that computes each here."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _names(type(self)))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(type(self)))
        return f"{type(self).__qualname__}({values})"

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview | str) -> Self:
        """Read a body. Raises ``ProtocolError`` and nothing else."""
        return cls.from_json(loads(data))

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """The typed form of a value that ``loads`` returned."""
        try:
            body: Self = _body_decoder(cls)(value)
        except ProtocolError as error:
            raise ProtocolError(f"{cls.__name__}: {error}") from None
        return body

    def to_json(self) -> dict[str, Any]:
        """The plain form, ready for ``dumps``."""
        plain: dict[str, Any] = _body_encoder(type(self))(self)
        return plain

    def encode(
        self,
        *,
        pretty: bool = False,
        browser_compatible: bool = False,
        sort_maps: bool = False,
        ascii_only: bool = False,
    ) -> bytes:
        """The bytes Java would send; the options are those of ``fastjson.dumps``."""
        return dumps(
            self.to_json(),
            pretty=pretty,
            browser_compatible=browser_compatible,
            sort_maps=sort_maps,
            ascii_only=ascii_only,
        )


_known_names: dict[type[Body], tuple[str, ...]] = {}


def _names(cls: type[Body]) -> tuple[str, ...]:
    if cls not in _known_names:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # every Body is a dataclass
        _known_names[cls] = tuple(field.name for field in fields)
    return _known_names[cls]


def _fields(cls: type[Body]) -> list[tuple[str, tuple[str, ...], Any]]:
    """Field name, property names and hint of every field."""
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # every Body is a dataclass
        head, *tail = field.name.split("_")
        camel = head + "".join(word[:1].upper() + word[1:] for word in tail)
        found.append((field.name, field.metadata.get("java", (camel,)), hints[field.name]))
    return found


def _split(hint: Any) -> tuple[Any, tuple[Any, ...], str | None]:
    """A hint without ``| None`` as its plain type, its arguments and its mark (``Set``, ``BitSet``)."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
    mark = None
    if typing.get_origin(hint) is Annotated:
        hint, mark = typing.get_args(hint)
    return typing.get_origin(hint) or hint, typing.get_args(hint), mark


# --- reading ---


_decoders: dict[type[Body], _Convert] = {}


def _body_decoder(cls: type[Body]) -> _Convert:
    if cls not in _decoders:
        _decoders[cls] = _compile_decoder(cls)
    return _decoders[cls]


def _compile_decoder(cls: type[Body]) -> _Convert:
    known: dict[Any, tuple[str, _Convert]] = {}
    for field, names, hint in _fields(cls):
        convert = _decoder(hint)
        known.update((name, (field, convert)) for name in names)

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise _mismatch("an object", value)
        arguments = {}
        for name, item in value.items():
            if item is None or name not in known:
                continue
            field, convert = known[name]
            try:
                converted = convert(item)
            except ProtocolError as error:
                raise _within(name, error) from None
            if converted is not None:
                arguments[field] = converted
        return cls(**arguments)

    return decode


def _decoder(hint: Any) -> _Convert:
    kind, arguments, mark = _split(hint)
    if kind is Any:
        return lambda value: value
    if mark == "BitSet":
        return _bit_set
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind is list:
        return functools.partial(_list, _decoder(arguments[0]))
    if kind is tuple:
        convert = functools.partial(_list, _decoder(arguments[0]))
        return lambda value: tuple(convert(value))
    if kind is dict:
        return functools.partial(_dict, _key_decoder(arguments[0]), _decoder(arguments[1]))
    if issubclass(kind, enum.Enum):
        return functools.partial(_enum, kind, kind.__members__, tuple(kind))
    if issubclass(kind, Body):
        return _body_decoder(kind)
    raise TypeError(f"no JSON form for {hint!r}")


def _key_decoder(hint: Any) -> _Convert:
    if hint is str or hint is int:
        return _SCALARS[hint]
    convert = _body_decoder(hint)

    def decode(key: Any) -> Any:
        if isinstance(key, ObjectKey):
            return convert(dict(key.items))
        # fastjson 1 also takes, and some writers send, the object as a string in the place of the key.
        return convert(loads(key) if isinstance(key, str) else key)

    return decode


def _list(convert: _Convert, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _mismatch("an array", value)
    try:
        return [convert(item) for item in value if item is not None]
    except ProtocolError as error:
        raise _within("[]", error) from None


def _dict(convert_key: _Convert, convert: _Convert, value: Any) -> dict[Any, Any]:
    if type(value) is not dict:
        raise _mismatch("an object", value)
    found = {}
    for key, item in value.items():
        if item is not None:
            try:
                found[convert_key(key)] = convert(item)
            except ProtocolError as error:
                raise _within(key, error) from None
    return found


def _enum(kind: type[enum.Enum], members: dict[str, enum.Enum], ordered: tuple[Any, ...], value: Any) -> Any:
    if type(value) is str:
        return members.get(value)
    if type(value) is int and 0 <= value < len(ordered):
        return ordered[value]
    raise _mismatch(f"a name of {kind.__name__}", value)


def _str(value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, int | float):
        return dumps(value).decode()
    raise _mismatch("a string", value)


def _int(value: Any) -> int:
    found = value
    if type(found) is str:
        # The bound keeps int() away from digit runs it is slow on; it is more than a long ever needs.
        found = int(found) if found.isascii() and found.removeprefix("-").isdigit() and len(found) < 40 else None
    elif type(found) is float and found.is_integer():
        found = int(found)
    if type(found) is not int or not -(2**63) <= found < 2**63:
        raise _mismatch("an integer", value)
    return found


def _float(value: Any) -> float:
    if type(value) is float or type(value) is int:
        return float(value)
    if type(value) is str:
        try:
            return float(value)
        except ValueError:
            pass
    raise _mismatch("a number", value)


def _bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value in _BOOLEANS:
        return _BOOLEANS[value]
    if type(value) is int and value in (0, 1):
        return bool(value)
    raise _mismatch("true or false", value)


_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_SCALARS: dict[Any, _Convert] = {str: _str, int: _int, float: _float, bool: _bool}


def _bit_set(value: Any) -> int:
    if type(value) is str:
        try:
            return int.from_bytes(base64.b64decode(value, validate=True), "little")
        except (binascii.Error, ValueError):
            raise _mismatch("Base64", value) from None
    # fastjson without RocketMQ's own writer for bit sets gives the bytes as Java numbers.
    octets = _list(_int, value)
    if not all(-128 <= octet < 256 for octet in octets):
        raise _mismatch("bytes", value)
    return int.from_bytes(bytes(octet & 0xFF for octet in octets), "little")


def _mismatch(wanted: str, value: Any) -> ProtocolError:
    text = repr(value) if isinstance(value, str | int | float) else type(value).__name__
    return ProtocolError(f"expected {wanted}, found {text[:60]}")


def _within(name: Any, error: ProtocolError) -> ProtocolError:
    return ProtocolError(f"{str(name)[:60]}: {error}")


# --- writing ---


_encoders: dict[type[Body], _Convert] = {}


def _body_encoder(cls: type[Body]) -> _Convert:
    if cls not in _encoders:
        _encoders[cls] = _compile_encoder(cls)
    return _encoders[cls]


def _compile_encoder(cls: type[Body]) -> _Convert:
    plan: list[tuple[str, str, _Convert | None]] = [
        (names[0], field, _property_encoder(hint)) for field, names, hint in _fields(cls)
    ]
    plan += [(name, attribute, None) for name, attribute in cls.DERIVED.items()]
    plan.sort(key=lambda entry: entry[0])

    def encode(body: Any) -> dict[str, Any]:
        plain = {}
        for name, attribute, convert in plan:
            value = getattr(body, attribute)
            if value is not None:
                plain[name] = value if convert is None else convert(value)
        return plain

    return encode


def _property_encoder(hint: Any) -> _Convert | None:
    convert = _encoder(hint)
    if _split(hint)[0] is not list:
        return convert
    if convert is None:
        return lambda value: value or BlankArray()
    return lambda value: convert(value) or BlankArray()


def _encoder(hint: Any) -> _Convert | None:
    """Function that makes a value plain; ``None`` where it already is."""
    kind, arguments, mark = _split(hint)
    if kind is float:
        return float
    if mark == "BitSet":
        return _bit_set_text
    if kind in _SCALARS or kind is Any:
        return None
    if kind in (list, tuple):
        return _array_encoder(_encoder(arguments[0]), spread_out=mark == "Set")
    if kind is dict:
        return _object_encoder(_key_encoder(arguments[0]), _encoder(arguments[1]))
    if issubclass(kind, enum.Enum):
        return lambda value: value.name
    return _body_encoder(kind)


def _array_encoder(convert: _Convert | None, *, spread_out: bool) -> _Convert | None:
    if spread_out:
        plain = _array_encoder(convert, spread_out=False)
        return lambda value: (value if plain is None else plain(value)) or BlankArray()
    if convert is None:
        return None
    return lambda value: [convert(item) for item in value]


def _object_encoder(convert_key: _Convert | None, convert: _Convert | None) -> _Convert | None:
    if convert_key is None:
        if convert is None:
            return None
        return lambda value: {key: convert(item) for key, item in value.items()}
    if convert is None:
        return lambda value: {convert_key(key): item for key, item in value.items()}
    return lambda value: {convert_key(key): convert(item) for key, item in value.items()}


def _key_encoder(hint: Any) -> _Convert | None:
    if hint in _SCALARS:
        return None
    convert = _body_encoder(hint)
    return lambda key: ObjectKey(tuple(convert(key).items()))


def _bit_set_text(bits: int) -> str:
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
