"""Commands that receive options as values: dataclasses whose fields are annotated as Typer parameters."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command for Typer, which reads options from the signature of a function.

    Each parameter of ``command`` is a dataclass, or one that Typer knows. The returned function has the fields of
    the dataclasses as its own parameters, in order, and passes them to ``command`` as values.
    """
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    groups = {name: hints[name] for name in own if dataclasses.is_dataclass(hints[name])}
    parameters = []
    for name, parameter in own.items():
        if name in groups:
            parameters += _parameters_of(groups[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    def with_options(**given: Any) -> None:
        values = {name: _value_of(group, given) for name, group in groups.items()}
        plain = {name: given[name] for name in own if name not in groups}
        command(**values, **plain)

    with_options.__name__ = command.__name__
    with_options.__doc__ = command.__doc__
    with_options.__module__ = command.__module__
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_options


def _parameters_of(group: Any) -> list[inspect.Parameter]:
    annotations = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=annotations[field.name],
        )
        for field in dataclasses.fields(group)
    ]


def _value_of(group: Any, given: Mapping[str, Any]) -> Any:
    return group(**{field.name: given[field.name] for field in dataclasses.fields(group)})
