"""Empty calls to 8 workers one after another, each waited for: by a group, and by Ray alone. One JSON object. Exit 1
where the group takes more than 1.2 of Ray's own time.

python measure.py [CALLS]"""

import json
import sys
import time

import cluster
import ray
import treadle.ray as tr
from treadle.ray import ClassWithInitArgs, Dispatch, WorkerGroup, register

WORKERS, BLOCKS, BAR = 8, 10, 1.2


class Empty(tr.Worker):
    @register(Dispatch.ONE_TO_ALL)
    def empty(self):
        pass


class Plain:
    def empty(self):
        pass


def seconds(call, times):
    began = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - began


def main():
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    cluster.start()
    group = WorkerGroup(cluster.pool(WORKERS), ClassWithInitArgs(Empty))
    plain = [ray.remote(Plain).options(num_cpus=0.01).remote() for _ in range(WORKERS)]

    def by_ray():
        ray.get([actor.empty.remote() for actor in plain])

    seconds(by_ray, 20), seconds(group.empty, 20)
    of_group = of_ray = 0.0
    for _ in range(BLOCKS):  # in turn, since others use the machine
        of_ray += seconds(by_ray, calls // BLOCKS)
        of_group += seconds(group.empty, calls // BLOCKS)
    figures = {"workers": WORKERS, "calls": calls, "group_s": of_group, "ray_s": of_ray, "ratio": of_group / of_ray}
    print(json.dumps({key: round(value, 3) for key, value in figures.items()}))
    cluster.stop()
    sys.exit(figures["ratio"] > BAR)


if __name__ == "__main__":
    main()
