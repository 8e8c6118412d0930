"""Configurations of others' runs: what a file of MindSpeed-RL, RLinf or verl says of the switch between its trainer and
its engine.

    config = treadle.config.read("config.yaml")
    treadle.plan(model, config["train"], config["infer"], config["ranks"], nodes=config["nodes"],
                 cap=config["cap"] or 0, rank_map=config.rank_map)

docs/config.md says which keys count. Nothing of the other project is imported."""

from __future__ import annotations

import ctypes
import os
import typing
import warnings as _warnings

from . import _abi, _library

__all__ = ["Config", "read"]

_MAPS = {_abi.TREADLE_CONTIGUOUS: "contiguous", _abi.TREADLE_STRIDED: "strided", _abi.TREADLE_BEST: "best"}


class Config(dict[str, typing.Any]):
    """What `read` answers: a dict, and beside its keys what plan() needs for the same figures, and what was warned
    of."""

    rank_map: str = "contiguous"
    warnings: tuple[str, ...] = ()


def read(path: str | os.PathLike[str], overrides: typing.Iterable[str] = ()) -> Config:
    """What the file says, as dict(model, train, infer, ranks, nodes, offload, cap, source): the key `config` of
    `treadle plan --config FILE --json`.

    model: a path or a hub's name. train, infer: layouts as text. offload: what leaves the device while the engine
    generates, a list of "params", "grads", "optimizer", as Switch takes it. cap: the bytes of the run's buckets.
    source: "MindSpeed-RL", "RLinf" or "verl". None: the file does not say. Beside the keys, `rank_map` is how the
    engine's places are assigned to ranks, and `warnings` what was warned of, by warnings.warn, too.

    overrides: texts "section.key=value", which go before the file. Of verl, the file is the composed one (--cfg job).
    Raises Refused with the path and the line of each key that is wrong, unknown, of the environment, or has no layout
    here; System for a file that cannot be read."""
    given = [_library.given("override", text) for text in overrides]
    texts = (ctypes.c_char_p * len(given))(*given)
    pointer = ctypes.c_void_p()
    _library.call("treadle_switch_config_read", _library.given("path", path), texts, len(given), ctypes.byref(pointer))
    file = _library.Object(pointer, "treadle_switch_config_destroy")
    info, count = _library.sized(_abi.treadle_switch_config_info), ctypes.c_size_t()
    _library.value("treadle_switch_config_get_info", file.pointer, ctypes.byref(info))
    lines = _library.value("treadle_switch_config_warnings", file.pointer, ctypes.byref(count))
    offload = {"params": info.offload_params, "grads": info.offload_grads, "optimizer": info.offload_optimizer}
    config = Config(
        model=None if info.model is None else _library.text(info.model),
        train=_library.text(info.train),
        infer=_library.text(info.infer),
        ranks=info.ranks or None,
        nodes=info.nodes or None,
        offload=[name for name, leaves in offload.items() if leaves],
        cap=info.cap_bytes or None,
        source=_library.text(info.source),
    )
    config.rank_map = _MAPS[info.rank_map]
    config.warnings = tuple(_library.text(lines[i]) for i in range(count.value))
    for line in config.warnings:
        _warnings.warn(line, stacklevel=2)
    return config
