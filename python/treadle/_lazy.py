"""Names of a package that are imported when they are first asked for, so that importing the package costs next to
nothing."""

from __future__ import annotations

import sys
import typing


def find(package: str, places: typing.Mapping[str, tuple[str, ...]], name: str) -> object:
    """The package's `name`, of the module that `places` says, for its __getattr__; from then on it is there. Raises
    AttributeError."""
    for module, names in places.items():
        if name in names:
            from importlib import import_module

            found: object = getattr(import_module(f"{package}.{module}"), name)
            setattr(sys.modules[package], name, found)
            return found
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
