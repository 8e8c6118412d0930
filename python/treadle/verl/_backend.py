"""verl's checkpoint engine "treadle", in trainers and in the rollouts' workers that stand beside the engine's.

The engine's own workers are the ranks of the switch, since they hold the params; verl's CheckpointEngineWorkers only
say which server is theirs. The first trainer calls the servers, and verl's order stays: prepare, build_topology,
init_process_group, send and receive, finalize."""

from __future__ import annotations

import asyncio
import typing

from verl.checkpoint_engine.base import CheckpointEngine  # type: ignore[import-not-found,unused-ignore]

from .. import errors
from . import _adapter, _shards
from ._trainer import Sender, Servers


class Received:
    """What a rollout's worker hands to its adapter: nothing, since the engine's workers take the weights themselves."""

    def _refuse(self) -> typing.NoReturn:
        raise errors.Refused(
            "checkpoint_engine.backend 'treadle' gives no full tensors: rollout.name must be vllm or "
            "sglang, with treadle's adapter"
        )

    __iter__ = __aiter__ = _refuse


class Backend(CheckpointEngine):  # type: ignore[misc,unused-ignore]
    """options: checkpoint_engine.engine_kwargs.treadle (docs/plugins-verl.md)."""

    def __init__(self, bucket_size: int, is_master: bool = False, **options: typing.Any) -> None:
        self._sender = Sender(options)
        self._servers: Servers | None = None

    def prepare(self) -> dict[str, typing.Any]:
        """Of a rollout's worker: its server, as its adapter has it."""
        return _adapter.server_here()

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, typing.Any]]
    ) -> tuple[dict[str, list[typing.Any]], dict[str, list[typing.Any]]]:
        """Raises Refused for rollouts whose servers are not known."""
        servers = servers_of(metadata[actor_wg_world_size:])
        return {"servers": [tuple(servers)] * actor_wg_world_size}, {"servers": [None] * rollout_world_size}

    def init_process_group(self, servers: typing.Any) -> None:
        """The group is made when weights are sent, since the engine's workers take part; it is kept as long as the
        servers are the same."""
        self._servers = Servers(*servers) if servers is not None else None

    async def send_weights(self, weights: typing.Any, global_steps: int | None = None) -> dict[str, typing.Any]:
        engine = _shards.engine_of(weights)
        if self._servers is None:
            raise errors.State(
                "send_weights: this process has no servers: init_process_group comes first, and is a trainer's"
            )
        return await asyncio.to_thread(self._sender.send, engine, self._servers, global_steps)

    def receive_weights(self, global_steps: int | None = None) -> Received:
        return Received()

    def finalize(self) -> None:
        """The group and the switch stay for the next update."""


def servers_of(workers: typing.Sequence[typing.Mapping[str, typing.Any]]) -> Servers:
    """Of what the rollouts' workers say of themselves, in their order."""
    for number, one in enumerate(workers):
        if not one:
            raise errors.Refused(
                f"worker {number} of the rollouts has no server that treadle knows: "
                "rollout.name must be vllm or sglang, with treadle's adapter"
            )
    kinds = sorted({str(one["kind"]) for one in workers})
    names = list(dict.fromkeys(str(one["server"]) for one in workers))
    counts = {name: sum(one["server"] == name for one in workers) for name in names}
    if len(kinds) != 1 or len(set(counts.values())) != 1:
        raise errors.Refused(
            f"the rollouts have servers of {' and '.join(kinds)} with {counts} workers: all must be alike"
        )
    if [one["server"] for one in workers] != [name for name in names for _ in range(counts[name])]:
        raise errors.Refused("the workers of one server must stand side by side in verl's rollouts")
    return Servers(kinds[0], tuple(names), counts[names[0]])
