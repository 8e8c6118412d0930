"""Packages that are not installed, played by modules that have their names and shapes."""

import os
import subprocess
import sys
import tempfile
import textwrap


def run(modules, code):
    """How a process ended that ran the code, with these modules first on its path: texts by path, indented as one
    likes."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in modules.items():
            path = os.path.join(folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(textwrap.dedent(text))
        return subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": folder}
        )
