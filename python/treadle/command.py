"""The command `treadle` of the wheel: becomes the program beside this file."""

from __future__ import annotations

import os
import sys
import typing


def main() -> typing.NoReturn:
    program = os.path.join(os.path.dirname(__file__), "bin", "treadle")
    os.execv(program, [program, *sys.argv[1:]])
