"""Calls that wait until a module is imported: a plug-in that all processes load costs those nothing that never import
the module."""

from __future__ import annotations

import importlib.machinery
import sys
import types
import typing

_Call = typing.Callable[[types.ModuleType], object]


class _Finder:
    """First of sys.meta_path. It finds nothing itself; what the others find is given a call to make once the module has
    been executed."""

    def __init__(self) -> None:
        self.waiting: dict[str, _Call] = {}

    def find_spec(
        self, name: str, path: typing.Any = None, target: typing.Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        call = self.waiting.get(name)
        if call is None:
            return None
        for other in sys.meta_path:
            spec = other.find_spec(name, path, target) if other is not self else None
            if spec is not None:
                if spec.loader is not None:
                    self._follow(spec.loader, name, call)
                return spec
        return None

    def _follow(self, loader: typing.Any, name: str, call: _Call) -> None:
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            self.waiting.pop(name, None)
            call(module)

        loader.exec_module = exec_module


_finder = _Finder()


def when_imported(name: str, call: _Call) -> None:
    """Calls call(module) once the module `name` has been imported: now, if it has been. For one name the last call
    counts."""
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        call(module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting[name] = call
