"""The programs and commands of docs/tutorial-torch.md, word by word, in an empty folder.

They run where torch is (TORCH=1 make test-python installs it)."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

HAS_TORCH = importlib.util.find_spec("torch") is not None
SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
COMMANDS = {"python": "", "treadle": "-m treadle", "torchrun": "-m torch.distributed.run"}


def blocks(page):
    """Of sections 2 and later: the language of each block, the text before it, and what is in it."""
    before = ""
    for part in re.finditer(r"(?ms)^```(\w*)\n(.*?)^```$|^[^`\n].*?$", page[page.index("## 2.") :]):
        if part[2] is None:
            before += part[0] + "\n"
        else:
            yield part[1], before, part[2]
            before = ""


def plain(text):
    """Lines, with any numbers."""
    return [re.sub(r"\d+(\.\d+)?(e[-+]\d+)?", "N", line) for line in text.splitlines()]


class TestTutorialTorch(unittest.TestCase):
    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_page(self):
        with open(os.path.join(SOURCE, "docs", "tutorial-torch.md"), encoding="utf-8") as file:
            page = file.read()
        with tempfile.TemporaryDirectory(prefix="treadle-test-") as folder:
            self.follow(page, os.path.join(folder, "bin"), os.path.join(folder, "empty"))

    def follow(self, page, commands, folder):
        os.mkdir(commands)
        os.mkdir(folder)
        for name, arguments in COMMANDS.items():
            with open(os.path.join(commands, name), "w", opener=lambda p, f: os.open(p, f, 0o755)) as file:
                file.write(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        environment = {
            **os.environ,
            "PATH": commands + os.pathsep + os.environ["PATH"],
            "TREADLE_SOURCE": SOURCE,
            "OMP_NUM_THREADS": "1",
        }
        files, said, largest = [], "", 0.0
        for language, before, text in blocks(page):
            name = re.search(r"Save this as `([^`]+)`", before)
            if language == "sh":
                run = subprocess.run(
                    ["bash", "-euc", text],
                    cwd=folder,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=200,
                )
                self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
                said = run.stdout
                differences = re.findall(r"differ by (\S+)", said)
                largest = max([largest, *map(float, differences)])
            elif not language:
                self.assertEqual(plain(said), plain(text))
            elif name:
                files.append(name[1])
                with open(os.path.join(folder, name[1]), "w", encoding="utf-8") as file:
                    file.write(text)
        self.assertEqual(files, ["net.py", "engine.py", "train.py"])
        self.assertTrue(0 < largest < 1e-3, largest)


if __name__ == "__main__":
    unittest.main()
