"""Which SGLang has the interface that the plug-in fills, and what it calls its things."""

from __future__ import annotations

import inspect
import typing

from .. import errors
from . import LOADER, _layout

WORKS = "0.5.12 to 0.5.23"
_TAKES = ["named_tensors", "load_format", "flush_cache"]


def check_engine(engine: typing.Any) -> None:
    """Raises Refused for an Engine of an SGLang that takes tensors otherwise, with its version."""
    takes = [name for name in inspect.signature(engine.update_weights_from_tensor).parameters if name != "self"]
    if takes != _TAKES:
        raise errors.Refused(
            f"SGLang {_version()} takes tensors by update_weights_from_tensor({', '.join(takes)}); "
            f"the plug-in fills the interface of {WORKS}, which takes {', '.join(_TAKES)}"
        )


def check_args(server_args: typing.Any, version: str | None = None) -> None:
    """Raises Refused for an engine whose workers could not take an update: SGLang ends them if it is asked for a loader
    that it was not given."""
    given = _layout.view(server_args)
    if "custom_weight_loader" not in given:
        raise errors.Refused(f"SGLang {version or _version()} has no custom weight loaders; {WORKS} have")
    loaders = given["custom_weight_loader"] or []
    if LOADER not in loaders:
        raise errors.Refused(
            f"the engine's custom weight loaders are {loaders}: start it with --custom-weight-loader {LOADER}"
        )
    _layout.layout_text(given)
    if (pp := given.get("pp_size") or 1) > 1:
        raise errors.Refused(
            f"the engine has pp_size {pp}: SGLang's update reaches the first of its pipeline "
            "stages alone; pp_size 1 works"
        )
    if (copies := _layout.replicas(given)) > 1:
        raise errors.Refused(
            f"the engine has dp_size {copies}: SGLang refuses updates of replicas; start engines of their own"
        )


def worker_args() -> typing.Any:
    """The ServerArgs of the worker that this process is."""
    try:
        from sglang.srt.runtime_context import get_server_args as get  # type: ignore[import-not-found,unused-ignore]
    except ImportError:  # before 0.5.17
        from sglang.srt.server_args import get_global_server_args as get  # type: ignore[import-not-found,unused-ignore]
    return get()


def worker_rank() -> int:
    """Of this process among the engine's workers, as their process group of torch has them."""
    import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]

    return int(dist.get_rank())


def gather(numbers: tuple[int, int]) -> list[tuple[int, int]]:
    """The two numbers that each worker says, by SGLang's own process group for words. Nothing is unpickled."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    import torch.distributed as dist
    from sglang.srt.distributed.parallel_state import get_world_group  # type: ignore[import-not-found,unused-ignore]

    said = [torch.zeros(2, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(said, torch.tensor(numbers, dtype=torch.int64), group=get_world_group().cpu_group)
    return [(int(one[0]), int(one[1])) for one in said]


def _version() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        return "of an unknown version"
