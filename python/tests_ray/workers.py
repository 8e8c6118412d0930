"""Classes of workers for tests."""

import os
import signal
import time

import numpy
import ray

import treadle
import treadle.ray as tr
from treadle.ray import Dispatch, Execute, register


def changed(batch, function):
    return treadle.Batch.of({"a": numpy.array([function(value) for value in batch["a"].tolist()])}, dict(batch.meta))


def twice_each(group, x, y):
    """A mode of one's own for four workers: rank k gets item k % 2."""
    return [[x[rank % 2] for rank in range(4)], [y[rank % 2] for rank in range(4)]], {}


class Basic(tr.Worker):
    """4 of them, with x = 2."""

    def __init__(self, x=2):
        self.x = x

    @register()
    def foo(self, y):
        return self.x + y

    @register(Dispatch.ONE_TO_ALL)
    def one_to_all(self, x, y):
        return self.x + y + x

    @register(Dispatch.ALL_TO_ALL)
    def all_to_all(self, x, y):
        return self.x + y + x

    @register(Dispatch.DP_COMPUTE)
    def dp_compute(self, x, y):
        return self.x + y + x

    @register({"dispatch_fn": twice_each, "collect_fn": lambda group, results: results})
    def own(self, x, y):
        return self.x + y + x

    @register({"dispatch_fn": lambda group: ([[1, 2]], {}), "collect_fn": lambda group, results: results})
    def own_wrong(self):
        pass

    @register(Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def rank_zero(self, x, y):
        return self.x + y + x

    @register(Dispatch.ONE_TO_ALL)
    def environment(self, names):
        return {name: os.environ.get(name) for name in names}

    @register(Dispatch.ONE_TO_ALL)
    def devices(self):
        return self.get_visible_devices()

    @register(Dispatch.ONE_TO_ALL)
    def place(self):
        return self.rank, self.world_size, self.get_master_addr_port()

    def not_registered(self, y):
        return self.rank + y


class Rows(tr.Worker):
    def __init__(self, x):
        self.x = x

    @register(Dispatch.DP_COMPUTE_PROTO)
    def add(self, batch):
        return changed(batch, lambda value: value + self.rank + self.x)

    @register(Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def twice(self, batch):
        return changed(batch, lambda value: 2 * value + 5 + self.rank)

    @register(Dispatch.DP_COMPUTE_PROTO)
    def whole(self, batch):
        """One value: rows that this worker got, and how many of them are padding."""
        return treadle.Batch.of({"rows": [len(batch)] * len(batch), "padding": [self.padding] * len(batch)})

    @register(Dispatch.DP_COMPUTE_PROTO)
    def fewer(self, batch):
        return batch[:1]

    @register(Dispatch.DP_COMPUTE_PROTO)
    def difference(self, one, other):
        pairs = zip(one["a"].tolist(), other["a"].tolist(), strict=True)
        return treadle.Batch.of({"a": [a - b for a, b in pairs]})

    @register(Dispatch.DP_COMPUTE_METRIC)
    def metric(self, batch):
        return len(batch), self.padding

    @register(Dispatch.DP_COMPUTE_METRIC, blocking=False)
    def total(self, batch):
        return sum(batch["a"].tolist())

    @register(Dispatch.DP_COMPUTE, blocking=False)
    def own_item(self, item):
        return item + 1000 * self.rank

    @register(Dispatch.DP_COMPUTE_PROTO, materialize_futures=False)
    def late(self, batch):
        return changed(batch.get(), lambda value: value + 0.5)

    @register(Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def fails(self, batch):
        if self.rank == 1:
            raise ValueError("row 17 is not a number")
        time.sleep(600)
        return batch

    @register(Dispatch.DP_COMPUTE_PROTO, blocking=False)
    def raises(self, batch):
        raise ValueError("no such row")

    @register(Dispatch.DP_COMPUTE_PROTO)
    def columns(self, batch):
        return batch


class Own:
    """Rows of another kind: with a length, chunk and concat."""

    def __init__(self, values):
        self.values = list(values)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, where):
        return Own(self.values[where])

    def chunk(self, parts):
        size = len(self) // parts
        return [self[at * size : (at + 1) * size] for at in range(parts)]

    @staticmethod
    def concat(parts):
        return Own([value for part in parts for value in part.values])


class OwnRows(tr.Worker):
    @register(Dispatch.DP_COMPUTE_PROTO)
    def add(self, rows):
        return Own([value + 100 * self.rank for value in rows.values])


class Meshes(tr.Worker):
    """8 ranks: inference dp 2, tp 4; training pp 2, dp 2, tp 2."""

    def __init__(self):
        rank = self.rank
        self.infer_tp, self.infer_dp = rank % 4, rank // 4
        self.tp, self.dp, self.pp = rank % 2, rank // 2 % 2, rank // 4
        self.register_mesh("infer", self.infer_dp, self.infer_tp == 0)
        self.register_mesh("train", self.dp, self.tp == 0 and self.pp == 1)

    @register(tr.nd_mesh("infer"))
    def generate(self, batch):
        return changed(batch, lambda value: value + (self.infer_tp + 1) * self.infer_dp)

    @register(tr.nd_mesh("infer"), blocking=False)
    def generate_later(self, batch):
        return self.generate(batch)

    @register(tr.nd_mesh("train"))
    def train(self, batch):
        return changed(batch, lambda value: value + (self.tp + 1) * (self.dp + 2) * (self.pp + 3))

    @register(tr.nd_mesh("other"))
    def nowhere(self, batch):
        return batch

    def again(self):
        self.register_mesh("infer", 0)


class Inner(tr.Worker):
    def __init__(self, x):
        self.x = x + self.rank


class Nested(tr.Worker):
    def __init__(self, x):
        self.x, self.inner = x + self.rank, Inner(x)

    @register()
    def both(self):
        return self.x, self.inner.x


class Zeros(tr.Worker):
    @register(Dispatch.DP_COMPUTE_PROTO)
    def zeros(self, batch):
        return changed(batch, lambda value: value + self.rank)


class Slow(tr.Worker):
    def place(self):
        return self.rank, self.world_size, ray.get_runtime_context().get_node_id()

    @register(Dispatch.ONE_TO_ALL)
    def pid(self):
        return os.getpid()

    @register(Dispatch.ONE_TO_ALL)
    def die(self, rank):
        if self.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    @register(Dispatch.ONE_TO_ALL, blocking=False)
    def sleep(self, seconds):
        began = time.time()
        time.sleep(seconds)
        return began, time.time()


class Broken(tr.Worker):
    def __init__(self):
        if self.rank == 1:
            raise OSError("no such model")


class Closing(tr.Worker):
    @register()
    def close(self):
        pass
