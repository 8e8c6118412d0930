"""Plans: what a switch moves, and how much memory it takes."""

from __future__ import annotations

import ctypes
import math
import time
import typing

from . import _abi, _device, _library, errors
from ._nodes import node_of as nodes_of
from .layout import Layout
from .model import Model

if typing.TYPE_CHECKING:
    import torch  # type: ignore[import-not-found,unused-ignore]


def layout_of(model: Model, given: str | Layout, ranks: int, **options: typing.Any) -> Layout:
    """A layout, given as one or as its text."""
    if not isinstance(given, Layout):
        return Layout(model, given, ranks, **options)
    if given.ranks != ranks:
        raise errors.Refused(f"{given.text} is on {given.ranks} ranks, and not on {ranks}")
    return given


def _real(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _ratio(moved: int, bound: int) -> float | None:
    return 1.0 if moved == bound else moved / bound if bound else None


def _peak_rss() -> int:
    """The most resident bytes of this process so far."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


def plan(
    model: Model,
    train: str | Layout,
    infer: str | Layout,
    ranks: int,
    *,
    rank_map: str = "contiguous",
    cap: int = 0,
    budget: int = 0,
    page: int = 0,
    alias: bool = True,
    rank: int | None = None,
    by_rank: bool = False,
    nodes: int | typing.Sequence[int] | None = None,
    device: str | torch.device = "cpu",
) -> dict[str, typing.Any]:
    """What `treadle plan --json` prints, with its keys (docs/cli.md): bytes moved, their lower bound, waves, peak.

    cap, budget, page: in bytes; 0: chosen, for the device: "cpu", "cuda", which need not be here, or "auto". rank: the
    figures of one rank alone. by_rank: rows of all ranks also above 4,096. nodes: which ranks share a node (machine): a
    number of nodes of equally many neighbours, or the node of each rank, a number of any kind; then bytes between nodes
    are told, too. Raises Refused."""
    begin, processor_begin, rss_begin = time.perf_counter(), time.process_time(), _peak_rss()
    if isinstance(infer, Layout) and rank_map != "contiguous":
        raise errors.Refused(
            f"plan: rank_map is '{rank_map}', and {infer.text} is a layout that has its own: make it with that one"
        )
    source = layout_of(model, train, ranks)
    target = layout_of(
        model,
        infer,
        ranks,
        **({"rank_map": rank_map, "train": source, "nodes": nodes} if rank_map != "contiguous" else {}),
    )
    options = _library.sized(
        _abi.treadle_report_options,
        page_bytes=page,
        cap_bytes=cap,
        budget_bytes=budget,
        alias=alias,
        memory=_abi.TREADLE_MEMORY_CUDA if _device.is_cuda("plan", device) else _abi.TREADLE_MEMORY_HOST,
        one_rank=rank is not None,
        rank=rank or 0,
        watch=_library.watcher(),
    )
    node_of = nodes_of(nodes, ranks, "plan")
    if node_of is not None:
        options.node_of = (ctypes.c_int32 * ranks)(*node_of)
    pointer = ctypes.c_void_p()
    _library.call("treadle_report_create", source._use(), target._use(), ctypes.byref(options), ctypes.byref(pointer))
    seconds, processor_seconds = time.perf_counter() - begin, time.process_time() - processor_begin
    report = _library.Object(pointer, "treadle_report_destroy", source._object, target._object)
    info = _library.sized(_abi.treadle_report_info)
    _library.value("treadle_report_get_info", report.pointer, ctypes.byref(info))
    answer: dict[str, typing.Any] = {
        "ranks": info.ranks,
        "model_bytes": info.model_bytes,
        "moved_bytes": info.moved_bytes,
        "lower_bound_bytes": info.lower_bound_bytes,
        "ratio": _ratio(info.moved_bytes, info.lower_bound_bytes),
        "resident_bytes": info.resident_bytes,
        "infer_bytes": info.infer_bytes,
        "copied_bytes": info.copied_bytes,
        "aliased_bytes": info.aliased_bytes,
        "waves": info.waves,
        "cap": info.cap_bytes,
        "cap_min": info.cap_min_bytes,
        "peak_bytes": info.peak_bytes,
        "peak_bound_bytes": info.bound_bytes,
        "inbound_max_over_model": _real(info.inbound_max),
        "inbound_mean_over_model": _real(info.inbound_mean),
        "link_load_max_over_mean": _real(info.link_load),
        "plan_seconds": seconds,
        "plan_cpu_seconds": processor_seconds,
        "plan_peak_rss_bytes": _peak_rss() - rss_begin,
        "rank_map": target.rank_map,
    }
    if node_of is not None:
        answer |= _nodes(report, info, node_of, rank)
    if budget:
        answer |= {"budget": budget, "fits": info.fits, "budget_min": info.budget_min_bytes}
    if rank is not None or info.ranks <= 4096 or by_rank:
        answer["by_rank"] = [_row(report, r) for r in (range(info.ranks) if rank is None else [rank])]
    return answer


def _nodes(report: _library.Object, info: typing.Any, node_of: list[int], rank: int | None) -> dict[str, typing.Any]:
    """The keys of `treadle plan --nodes --json`."""
    rows = []
    for node in range(info.nodes) if rank is None else [node_of[rank]]:
        one = _library.sized(_abi.treadle_node_info)
        _library.call("treadle_report_node", report.pointer, node, ctypes.byref(one))
        rows.append(
            {
                "node": node,
                "ranks": one.ranks,
                "moved_bytes": one.moved_bytes,
                "lower_bound_bytes": one.lower_bound_bytes,
                "sent_bytes": one.sent_bytes,
            }
        )
    return {
        "nodes": info.nodes,
        "node_moved_bytes": info.node_moved_bytes,
        "node_lower_bound_bytes": info.node_lower_bound_bytes,
        "node_ratio": _ratio(info.node_moved_bytes, info.node_lower_bound_bytes) if rank is None else None,
        "node_inbound_max_bytes": info.node_inbound_max_bytes,
        "node_outbound_max_bytes": info.node_outbound_max_bytes,
        "node_link_load_max_over_mean": _real(info.node_link_load),
        "relayed_bytes": info.relayed_bytes,
        "staging_bytes": info.staging_bytes,
        "by_node": rows,
    }


def _row(report: _library.Object, rank: int) -> dict[str, int]:
    info = _library.sized(_abi.treadle_plan_info)
    _library.call("treadle_report_rank", report.pointer, rank, ctypes.byref(info))
    return {
        "rank": rank,
        "train_bytes": info.from_bytes,
        "infer_bytes": info.to_bytes,
        "moved_bytes": info.moved_bytes,
        "lower_bound_bytes": info.lower_bound_bytes,
        "copied_bytes": info.copied_bytes,
        "aliased_bytes": info.aliased_bytes,
        "peak_bytes": info.peak_bytes,
    }
