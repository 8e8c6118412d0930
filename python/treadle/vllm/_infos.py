"""Dataclasses of what vLLM's phases carry, read without raising: a parser that raised in a worker would leave it out of
step with the others."""

from __future__ import annotations

import dataclasses
import typing

Info = typing.TypeVar("Info")


def read(kind: type[Info], given: typing.Any) -> Info:
    """The dataclass of a dict. Where names or types are others, `problem` says so; nothing is raised."""
    info: typing.Any = kind()
    wanted = {f.name: f for f in dataclasses.fields(typing.cast(typing.Any, kind)) if f.init}
    if not isinstance(given, dict):
        info.problem = f"it is a {type(given).__name__}, and must be an object"
        return typing.cast(Info, info)
    if strange := sorted(set(given) - set(wanted), key=str):
        info.problem = f"it has '{strange[0]}'; its keys are {', '.join(wanted)}"
    for name, about in wanted.items():
        value, types = (
            given.get(name, about.default),
            (int, float) if isinstance(about.default, float) else (type(about.default),),
        )
        if isinstance(value, bool) or not isinstance(value, types):
            info.problem = f"'{name}' is {value!r}, and must be a {types[-1].__name__}"
        else:
            setattr(info, name, value)
    return typing.cast(Info, info)
