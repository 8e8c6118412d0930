"""The Ray cluster of a run: one that is there, or one of this machine that is made for it."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import tempfile
import time
import typing

from .. import errors
from ._ray import ray

STORE = 80 << 20  #: bytes of a Ray of this machine for its object store: the least that Ray takes
REACHING = 10.0  #: seconds in which somebody must answer at an address
LEAVING = 5.0  #: seconds in which its processes end


def _look(address: str) -> None:
    """Does somebody listen there? Ray would ask for minutes. Raises Refused."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "://" in address:  # of another form, which Ray knows
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACHING).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, f"{error}") from error


def _no_cluster(address: str, why: str) -> errors.Refused:
    return errors.Refused(
        f"there is no Ray cluster at '{address}': {why}. Start one (ray start --head), name another one (--address), "
        "or use this machine alone (--address local)"
    )


@contextlib.contextmanager
def cluster(address: str) -> typing.Iterator[str]:
    """Connects to it, and gives it in words. "auto": RAY_ADDRESS, or the one that runs here; "local": one that is made.
    Raises Refused if there is none."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    _look(address)
    folder = tempfile.mkdtemp(prefix="treadle-ray-") if address == "local" else None
    options: dict[str, typing.Any] = {}
    if folder:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options = {"include_dashboard": False, "object_store_memory": STORE, "num_gpus": 0, "_temp_dir": folder}
    try:
        try:
            made = ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, ValueError) as error:
            raise _no_cluster(address, (str(error).splitlines() or [""])[0].rstrip(".")) from error
        yield f"Ray {ray.__version__} at {made.address_info['gcs_address']}"
    finally:
        ray.shutdown()
        if folder:
            _remove(folder)


def _remove(folder: str) -> None:
    """Of Ray's processes, which are ending and may still write there."""
    end = time.monotonic() + LEAVING
    while os.path.exists(folder) and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.1)
