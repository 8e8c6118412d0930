"""The command `treadle` of the wheel: becomes the program beside this file."""

from __future__ import annotations

import os
import sys
import typing


def program() -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "treadle")


def main() -> typing.NoReturn:
    os.execv(program(), [program(), *sys.argv[1:]])
