"""Own tensors: which storage tensors of a layout lie in memory of the caller."""

from __future__ import annotations

import ctypes
import typing

from . import _abi, _tensors, errors
from ._device import Device
from .layout import Layout, key_of

_SAME_BITS = {"uint16": ("bfloat16", "float16"), "uint8": ("float8_e4m3fn",)}  # numpy has no bf16 and no fp8


class Own:
    """Tensors of the caller on this rank, which lie where storage tensors of a layout should. named_tensors: None:
    there are none."""

    def __init__(
        self, side: str, layout: Layout, rank: int, device: Device, named_tensors: _tensors.Named | None
    ) -> None:
        self.side, self.rank = side, rank
        self._module = named_tensors if _tensors.is_module(named_tensors) else None
        self.given: dict[int, _tensors.Given] = {}
        storages = layout.storages(rank)
        numbers = {key_of(storage): number for number, storage in enumerate(storages)}
        for name, tensor in _tensors.pairs(named_tensors) if named_tensors is not None else ():
            if not isinstance(name, str) and not (isinstance(name, tuple) and len(name) == 2):
                raise errors.Refused(f"{self._words(name)}: names are texts, or (chunk, text)")
            key = _tensors.model_name(name, tensor, layout._rename) if isinstance(name, str) else name
            if key is None:
                continue
            number = numbers.get(key)
            if number is None:
                raise errors.Refused(
                    f"{self._words(name)} is not a storage tensor of {layout.text}{nearest(key, numbers)}"
                )
            if number in self.given:
                raise errors.Refused(f"{self._words(name)} is given twice: {self.given[number].name!r} is it, too")
            given, storage = _tensors.given(name, tensor, self._words(name), device), storages[number]
            if given.shape != storage.shape and not (given.nbytes == storage.bytes == 0):
                raise errors.Refused(
                    f"{self._words(name)} has shape {list(given.shape)}, and {layout.text} has "
                    f"{list(storage.shape)} there"
                )
            if given.dtype != storage.dtype and storage.dtype not in _SAME_BITS.get(given.dtype, ()):
                raise errors.Refused(
                    f"{self._words(name)} is of {given.dtype}, and {layout.text} has {storage.dtype} there"
                )
            if side == "infer" and not given.writable:
                raise errors.Refused(f"{self._words(name)} is read-only, and would be written")
            self.given[number] = given

    def _words(self, name: typing.Any) -> str:
        return f"rank {self.rank}: {self.side} tensor {name!r}"

    def array(self) -> typing.Any:
        made = (_abi.treadle_own_tensor * max(1, len(self.given)))()
        for to, (number, given) in zip(made, self.given.items()):
            to.storage, to.memory, to.bytes = number, given.address or None, given.nbytes
        return made

    def check(self) -> None:
        """Do they lie where they did? Asked before each arrow, since a torch tensor can get another memory, and a
        module other tensors (fully_shard)."""
        present: dict[typing.Any, typing.Any] = dict(_tensors.pairs(self._module)) if self._module is not None else {}
        for given in self.given.values():
            tensor = present.get(given.name) if self._module is not None else given.tensor
            if tensor is None:
                raise errors.State(
                    f"{self._words(given.name)} was in the module when the switch was made, and is no longer"
                )
            if given.nbytes and _tensors.address_of(tensor) != given.address:
                raise errors.State(
                    f"{self._words(given.name)} was at {given.address:#x} when the switch was made, "
                    f"and is at {_tensors.address_of(tensor):#x}: its storage was freed, resized or replaced"
                )


def nearest(key: typing.Any, numbers: typing.Mapping[typing.Any, object]) -> str:
    """The name that is most like it, for a message."""
    import difflib

    found = difflib.get_close_matches(str(key), [str(k) for k in numbers], 1, 0)
    return f"; the nearest is '{found[0]}'" if found else ", which has none on this rank"


def pointer(array: typing.Any) -> typing.Any:
    return ctypes.cast(array, ctypes.POINTER(_abi.treadle_own_tensor))
