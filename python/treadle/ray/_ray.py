"""Ray, as it is installed, and what is asked of it in one place. The rest of this package imports it from here."""

from __future__ import annotations

import importlib
import typing
import warnings

from .. import errors

TRIED = ("2.60.0",)  #: with which `make test-ray` passed

ray: typing.Any
try:
    ray = importlib.import_module("ray")
except ImportError as error:
    raise ImportError("treadle.ray needs Ray: pip install 'treadle[ray]'") from error
if ray.__version__ not in TRIED:
    warnings.warn(f"treadle.ray was not tried with Ray {ray.__version__}, but with {', '.join(TRIED)}", stacklevel=2)

placement: typing.Any = importlib.import_module("ray.util.placement_group")
strategies: typing.Any = importlib.import_module("ray.util.scheduling_strategies")
exceptions: typing.Any = importlib.import_module("ray.exceptions")
serializers: typing.Any = importlib.import_module("ray.util")


def need_cluster(what: str) -> None:
    """Raises State if this process has no cluster. Ray would start one by itself, with all of this machine."""
    if not ray.is_initialized():
        raise errors.State(f"{what}: this process has no Ray cluster; call ray.init() before")


def nodes() -> list[dict[str, typing.Any]]:
    """Those that are alive, in Ray's order."""
    return [node for node in ray.nodes() if node["Alive"]]


def here() -> tuple[str, str]:
    """The address of the node on which this process is, and the node in words."""
    address = str(ray.util.get_node_ip_address())
    return address, f"node {address} ({ray.get_runtime_context().get_node_id()[:8]})"


def said(error: BaseException) -> str:
    """What Ray says in a line, without its tracebacks: of a task that raised, what it raised."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {cause}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if "creation task" in lines[0] and len(lines) > 1:  # its process was up, and Python failed
        return f"{lines[0].partition(', ')[0]}: {lines[-1]}"
    return lines[0]
