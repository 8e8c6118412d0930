"""A controller on Ray: resource pools, groups of workers, and calls that divide rows among them (docs/ray.md).

    class Rows(treadle.ray.Worker):
        @register(Dispatch.DP_COMPUTE_PROTO)
        def add(self, batch): ...

    pool = ResourcePool([4, 4], use_gpu=False)
    group = WorkerGroup(pool, ClassWithInitArgs(Rows))
    batch = group.add(batch)

It has the meaning of verl's single_controller. `python -m treadle.ray train` runs `treadle train` on a cluster.
Importing it imports Ray: pip install 'treadle[ray]'."""

from __future__ import annotations

from ._classes import ClassWithInitArgs, ColocatedClasses, create_colocated_worker_cls
from ._futures import Future
from ._group import WorkerGroup
from ._pools import ResourcePool, ResourcePoolManager, merge_resource_pool, split_resource_pool
from ._register import Dispatch, Execute, nd_mesh, register
from ._roles import ActorRollout, Critic, OptimizerStep, RefPolicy, RewardModel
from ._worker import Worker

__all__ = [
    "ActorRollout",
    "ClassWithInitArgs",
    "ColocatedClasses",
    "Critic",
    "Dispatch",
    "Execute",
    "Future",
    "OptimizerStep",
    "RefPolicy",
    "ResourcePool",
    "ResourcePoolManager",
    "RewardModel",
    "Worker",
    "WorkerGroup",
    "create_colocated_worker_cls",
    "merge_resource_pool",
    "nd_mesh",
    "register",
    "split_resource_pool",
]
