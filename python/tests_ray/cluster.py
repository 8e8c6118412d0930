"""A small Ray of this machine for tests: 8 slots that Ray takes for GPUs, and a folder of its own."""

import os
import shutil
import tempfile
import time

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # Ray writes a token into the home folder otherwise
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # failures that tests make

import ray  # noqa: E402

import treadle.ray as tr  # noqa: E402

CPUS = 0.3  # of a slot
#: Of Ray's head: a node that does not answer three questions, each for 10 s, is dead; 5 are Ray's own.
SOON = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_failure_threshold": 3}
_folder = ""


def start(cpus=8, gpus=8):
    global _folder
    _folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    ray.init(
        address="local",
        num_cpus=cpus,
        num_gpus=gpus,
        include_dashboard=False,
        object_store_memory=100 << 20,
        namespace="tests",
        log_to_driver=False,
        _temp_dir=_folder,
    )


def stop():
    ray.shutdown()
    remove(_folder)


def remove(folder):
    """A folder of Ray's, whose processes are ending and may still write there."""
    gone = 0
    for _ in range(100):
        gone = 0 if os.path.exists(folder) else gone + 1
        if gone == 5:
            return
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)


def wait_until_free(**resources):
    """Ray counts what was given back a little later."""
    while any(ray.available_resources().get(key, 0) < value for key, value in resources.items()):
        time.sleep(0.1)


def folder():
    return _folder


def pool(*counts, **options):
    given = {"use_gpu": True, "max_colocate_count": 3, "cpus": CPUS, **options}
    return tr.ResourcePool(list(counts), **given)
