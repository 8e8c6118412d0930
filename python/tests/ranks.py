"""Ranks for tests: a function of a test module, run in as many processes, each with its rank, the number of ranks and a
name to meet by.

    # test_switch.move(rank, size, name, folder) in four processes
    answers = ranks.run(4, "test_switch", "move", folder)

What each returns, or raises, comes back as JSON. No process outlives the call."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import typing
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FAKE_CUDA = os.path.join(HERE, "..", "..", "build", "fake-cuda")  # tests/cuda/fake_cuda.h
HAS_FAKE_CUDA = os.path.exists(os.path.join(FAKE_CUDA, "libcuda.so.1"))


class Failed(Exception):
    pass


def said(call: typing.Callable[[], typing.Any]) -> str:
    """What a call raises, as "Refused: why"."""
    try:
        call()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "nothing"


def start(
    size: int,
    module: str,
    function: str,
    *arguments: typing.Any,
    environment: dict[str, str] | None = None,
    where: typing.Callable[[int], list[str]] = lambda rank: [],
) -> list[subprocess.Popen[str]]:
    """where: words before the command of a rank, of something that starts it."""
    name = "test" + secrets.token_hex(8)
    given = json.dumps([size, name, *arguments])
    return [
        subprocess.Popen(
            [*where(rank), sys.executable, __file__, module, function, str(rank), given],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=HERE,
            env={**os.environ, **(environment or {})},
        )
        for rank in range(size)
    ]


def on_fake_cuda(folder: str, **variables: typing.Any) -> dict[str, str]:
    """The environment of processes that work on the stand-in of NVIDIA's driver, with a card of their own in
    `folder`."""
    return {
        "LD_LIBRARY_PATH": FAKE_CUDA,
        "FAKE_CUDA_CARD": os.path.join(folder, "card"),
        **{name: str(value) for name, value in variables.items()},
    }


def finish(processes: list[subprocess.Popen[str]], seconds: float = 120) -> list[typing.Any]:
    """What each rank returned: ["ok", value], or ["raised", class, message]."""
    end = time.monotonic() + seconds
    answers = []
    try:
        for rank, process in enumerate(processes):
            out, err = process.communicate(timeout=max(0.1, end - time.monotonic()))
            try:
                answers.append(json.loads(out.splitlines()[-1]))
            except (IndexError, ValueError):
                raise Failed(f"rank {rank} ended with {process.returncode}: {out[-500:]} {err[-2000:]}") from None
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return answers


def run(size: int, module: str, function: str, *arguments: typing.Any, **options: typing.Any) -> list[typing.Any]:
    """The values that all ranks return; Failed where one raises."""
    return values(start(size, module, function, *arguments, **options))


def values(processes: list[subprocess.Popen[str]]) -> list[typing.Any]:
    answers = finish(processes)
    for rank, answer in enumerate(answers):
        if answer[0] != "ok":
            raise Failed(f"rank {rank}: {answer[1]}: {answer[2]}\n{answer[3]}")
    return [answer[1] for answer in answers]


def make_model(folder: str, *options: str) -> str:
    """A small model with weights, by the wheel's command."""
    path = os.path.join(folder, "model")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "treadle",
            "make-model",
            path,
            "--layers",
            "4",
            "--hidden",
            "256",
            "--vocab",
            "512",
            *options,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return path


class Folder:
    """A folder that goes away with the test class: `class TestX(ranks.Folder, unittest.TestCase)`."""

    folder: str
    model: str

    @classmethod
    def setUpClass(cls) -> None:
        cls._temporary = tempfile.TemporaryDirectory(prefix="treadle-test-")
        cls.folder = cls._temporary.name
        cls.model = make_model(cls.folder)

    @classmethod
    def tearDownClass(cls) -> None:
        cls._temporary.cleanup()


class Interruptible(unittest.TestCase):
    """Tests that send this process SIGINT, which who is started in the background of a shell ignores."""

    def setUp(self) -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)


def main() -> None:
    module, function, rank, given = sys.argv[1:]
    try:
        answer = ["ok", getattr(__import__(module), function)(int(rank), *json.loads(given))]
    except BaseException as error:  # noqa: BLE001
        answer = ["raised", type(error).__name__, str(error), traceback.format_exc()]
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
