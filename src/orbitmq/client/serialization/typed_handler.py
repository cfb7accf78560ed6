"""Typed handlers: ``def handle(order: Order, message: Message)`` gets the decoded body, and the message if it asks.

A handler with one parameter that is not annotated, or annotated as message, gets the message as it is.
"""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.message import Message, ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.serialization.serializer import Serializer

_ANYTHING = (Any, object, inspect.Parameter.empty)
_MESSAGES = (Message, ReceivedMessage)
_MESSAGE_NAMES = frozenset({"Message", "ReceivedMessage", "PulledMessage", "PoppedMessage", "Any", "object"})


def typed_handler(
    handler: Callable[..., Any], serializer: Serializer, *, takes_list: bool, is_async: bool
) -> Callable[[Any], Any]:
    """The handler as a function of one argument, decoding bodies by its annotations.

    Raises InvalidMessageError for parameters that cannot be filled.
    """
    parameters = _parameters(handler)
    if parameters is None:
        return handler
    if not 1 <= len(parameters) <= 2:
        count = len(parameters) or "no"
        raise InvalidMessageError(
            f"the handler {_name(handler)} has {count} parameters: one for the message, or one for the "
            "body and one for the message"
        )
    kinds = [_annotation(handler, parameter, takes_list) for parameter in parameters]
    if not takes_list and any(_is_message(kind, takes_list=True) for kind in kinds):
        raise InvalidMessageError(
            f"the handler {_name(handler)} takes a list of messages: register it with batch=True, or set "
            "consume_message_batch_max_size"
        )
    is_message = [_is_message(kind, takes_list) for kind in kinds]
    if len(kinds) == 1 and (is_message[0] or kinds[0] in _ANYTHING):
        return handler
    if len(kinds) == 2 and not any(is_message):
        # ``def handle(order: Order, message)``
        is_message = [False, True] if kinds[1] in _ANYTHING else is_message
    if len(kinds) == 2 and sum(is_message) != 1:
        raise InvalidMessageError(
            f"the handler {_name(handler)} has two parameters: annotate one with the type of the body and the "
            "other one with Message"
        )
    kind = kinds[is_message.index(False)]
    body_first = not is_message[0]
    with_message = len(kinds) == 2
    decode = _decoder(handler, kind, serializer, takes_list)

    def arguments(argument: Any) -> tuple[Any, ...]:
        body = decode(argument)
        if not with_message:
            return (body,)
        return (body, argument) if body_first else (argument, body)

    if is_async:

        @functools.wraps(handler, updated=())
        async def call_async(argument: Any) -> Any:
            return await handler(*arguments(argument))

        return call_async

    @functools.wraps(handler, updated=())
    def call(argument: Any) -> Any:
        return handler(*arguments(argument))

    return call


def _decoder(
    handler: Callable[..., Any], kind: Any, serializer: Serializer, takes_list: bool
) -> Callable[[Any], Any]:
    loads = serializer.loads
    if not takes_list:
        return lambda message: loads(message.body, kind)
    item = _item_of(kind)
    if item is None:
        raise InvalidMessageError(
            f"the handler {_name(handler)} takes a list of messages: annotate its body as list[…], not {kind!r}"
        )
    return lambda messages: [loads(message.body, item) for message in messages]


def _parameters(handler: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """The parameters without default; None if they are unknown or the handler takes any."""
    try:
        # Of the decorated function itself: a decorator may pass arguments of its own. Only one that passes on
        # whatever it is called with has the parameters of the function inside.
        signature = inspect.signature(handler, follow_wrapped=False)
        while hasattr(handler, "__wrapped__") and _takes_any(signature):
            handler = handler.__wrapped__
            signature = inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    found = []
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return None
        if parameter.kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            continue
        if parameter.default is inspect.Parameter.empty:
            found.append(parameter)
    if not found and signature.parameters:
        # All have defaults: the first one gets the message.
        return None
    return found


def _takes_any(signature: inspect.Signature) -> bool:
    return any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in signature.parameters.values())


def _annotation(handler: Callable[..., Any], parameter: inspect.Parameter, takes_list: bool) -> Any:
    """The annotation of a parameter, evaluated. A name of a message class need not be importable."""
    annotation = parameter.annotation
    if not isinstance(annotation, str):
        return annotation
    function = inspect.unwrap(handler.func if isinstance(handler, functools.partial) else handler)
    if not inspect.isroutine(function):
        function = type(function).__call__
    scope = getattr(function, "__globals__", {})
    closure = _closure(function) if inspect.isfunction(function) else {}
    shim = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(shim, scope, closure)["it"]
    except Exception as error:
        # Such as "list[ReceivedMessage]", where the class is imported for type checkers only.
        name = annotation.removesuffix("]").rpartition("[")[2] if takes_list else annotation
        if name.rpartition(".")[2] in _MESSAGE_NAMES:
            return Any
        raise InvalidMessageError(
            f"the annotation {annotation!r} of the handler {_name(handler)} cannot be evaluated: {error}; define "
            "the type in the module, and import it not only for type checkers"
        ) from None


def _closure(function: types.FunctionType) -> dict[str, Any]:
    """Variables of the enclosing functions that have a value by now."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _is_message(kind: Any, takes_list: bool) -> bool:
    if takes_list:
        kind = _item_of(kind)
    return isinstance(kind, type) and issubclass(kind, _MESSAGES)


def _item_of(kind: Any) -> Any:
    """The type of the items of ``list[…]`` or ``Sequence[…]``; None for another type."""
    origin = typing.get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Iterable):
        return typing.get_args(kind)[0]
    return None


def _name(handler: Callable[..., Any]) -> str:
    return getattr(handler, "__qualname__", repr(handler))
