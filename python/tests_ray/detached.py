"""A controller that makes workers which outlive it: python detached.py ADDRESS (test_detached.py)."""

import sys

import cluster
import ray
import workers
from treadle.ray import ClassWithInitArgs, WorkerGroup

ray.init(address=sys.argv[1], namespace="tests", log_to_driver=False)
pool = cluster.pool(2, name_prefix="kept", detached=True)
group = WorkerGroup(pool, ClassWithInitArgs(workers.Basic, 40), name_prefix="kept", detached=True)
print(" ".join(group.worker_names))
