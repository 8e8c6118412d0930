"""Methods of workers that a group calls: how arguments are divided, who runs, and what comes back.

class Rows(treadle.ray.Worker):
    @treadle.ray.register(Dispatch.DP_COMPUTE_PROTO)
    def add(self, batch): ..."""

from __future__ import annotations

import enum
import typing

from .. import dispatch as _dispatch
from .. import errors

Function = typing.TypeVar("Function", bound=typing.Callable[..., typing.Any])


class Dispatch(str, enum.Enum):
    """How a call's arguments are divided among workers; docs/dispatch.md has a table. DIRECT_ROLLOUT_METHOD and
    RANK_ZERO are refused; the latter is a way to execute. For a mesh there is nd_mesh()."""

    ALL_TO_ALL = "ALL_TO_ALL"
    ONE_TO_ALL = "ONE_TO_ALL"
    DP_COMPUTE = "DP_COMPUTE"
    DP_COMPUTE_PROTO = "DP_COMPUTE_PROTO"
    DP_COMPUTE_PROTO_WITH_FUNC = "DP_COMPUTE_PROTO_WITH_FUNC"
    DP_COMPUTE_METRIC = "DP_COMPUTE_METRIC"
    DIRECT_ROLLOUT_METHOD = "DIRECT_ROLLOUT_METHOD"
    RANK_ZERO = "RANK_ZERO"


class Execute(str, enum.Enum):
    """Who runs the method: all workers, or that of rank 0."""

    ALL = "ALL"
    RANK_ZERO = "RANK_ZERO"


class Mesh(typing.NamedTuple):
    """Rows go by the dp ranks of a mesh, in which workers have registered themselves (Worker.register_mesh)."""

    name: str


def nd_mesh(name: str) -> Mesh:
    """The dispatch mode of a mesh: each worker gets the rows of its dp rank, and those that collect give them back."""
    return Mesh(name)


class Own(typing.NamedTuple):
    """A mode of one's own."""

    dispatch: typing.Callable[..., tuple[typing.Sequence[typing.Any], typing.Mapping[str, typing.Any]]]
    collect: typing.Callable[[typing.Any, list[typing.Any]], typing.Any]


class Mode(typing.NamedTuple):
    """What @register says of a method."""

    name: str
    dispatch: Dispatch | Mesh | Own
    execute: Execute
    blocking: bool
    materialize: bool

    @property
    def kind(self) -> str:
        """As treadle.Dispatch has it."""
        return "ND_MESH" if isinstance(self.dispatch, Mesh) else str(getattr(self.dispatch, "value", "CUSTOM"))

    @property
    def divides_rows(self) -> bool:
        return self.kind in ("DP_COMPUTE_PROTO", "DP_COMPUTE_PROTO_WITH_FUNC", "DP_COMPUTE_METRIC", "ND_MESH")

    @property
    def collects_rows(self) -> bool:
        """Does one batch come back?"""
        return self.divides_rows and self.kind != "DP_COMPUTE_METRIC"


MODE = "_treadle_mode"  #: of a registered function


def register(
    dispatch_mode: Dispatch | Mesh | typing.Mapping[str, typing.Any] = Dispatch.ALL_TO_ALL,
    execute_mode: Execute = Execute.ALL,
    blocking: bool = True,
    materialize_futures: bool = True,
) -> typing.Callable[[Function], Function]:
    """Marks a method of a worker's class as one that a group calls.

    dispatch_mode: one of Dispatch, nd_mesh(name), or a dict of one's own with two functions on the controller:

    - dispatch_fn(group, *args, **kwargs) gives (args, kwargs), each of them a list with an item for each worker
    - collect_fn(group, results) makes what comes back of the list of results

    execute_mode: RANK_ZERO runs rank 0 alone, and its result comes back, not in a list.
    blocking: False gives a Future at once. materialize_futures: False gives the method an argument that is a Future's
    as it is, with get(). Raises Refused for modes that cannot be."""
    if isinstance(dispatch_mode, typing.Mapping):
        missing = [name for name in ("dispatch_fn", "collect_fn") if not callable(dispatch_mode.get(name))]
        if missing:
            raise errors.Refused(
                f"register: dispatch_mode needs the functions dispatch_fn and collect_fn; no {missing[0]}"
            )
        mode: typing.Any = Own(dispatch_mode["dispatch_fn"], dispatch_mode["collect_fn"])
    elif isinstance(dispatch_mode, (Dispatch, Mesh)):
        mode = dispatch_mode
        if mode in (Dispatch.RANK_ZERO, Dispatch.DIRECT_ROLLOUT_METHOD):
            _dispatch.Dispatch(mode.value, [], 1)  # which refuses it
    else:
        raise errors.Refused(
            f"register: dispatch_mode is {dispatch_mode!r}; it is one of treadle.ray.Dispatch, nd_mesh(name), or a dict"
        )
    execute = Execute(execute_mode) if execute_mode in tuple(Execute) else None
    if execute is None:
        raise errors.Refused(f"register: execute_mode is {execute_mode!r}; it is Execute.ALL or Execute.RANK_ZERO")

    def mark(function: Function) -> Function:
        setattr(function, MODE, Mode(function.__name__, mode, execute, blocking, materialize_futures))
        return function

    return mark


def modes_of(cls: type) -> dict[str, Mode]:
    """The registered methods of a class, by name, also those of its bases."""
    found = {name: getattr(getattr(cls, name, None), MODE, None) for name in dir(cls)}
    return {name: mode._replace(name=name) for name, mode in found.items() if mode is not None}
