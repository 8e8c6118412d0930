"""A controller that looks after its workers and does something else while one is killed (test_death.py)."""

import os
import signal
import sys
import time

import cluster
import workers
from treadle.ray import ClassWithInitArgs, WorkerGroup

cluster.start(cpus=2, gpus=2)
group = WorkerGroup(cluster.pool(2), ClassWithInitArgs(workers.Slow), name_prefix="critic")
pids = group.pid()
print(cluster.folder(), flush=True)  # for who starts it, since this process ends at once
group.watch(every=0.2)
if sys.argv[1:] == ["end"]:  # with workers that are watched
    sys.exit()
future = group.sleep(600)
os.kill(pids[1], signal.SIGKILL)
time.sleep(600)
