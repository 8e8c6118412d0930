"""What importing brings, what the wheel has, and types."""

import importlib.util
import os
import subprocess
import sys
import unittest

import treadle
from treadle import _library


def run(code, **options):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, **options).stdout


class TestImport(unittest.TestCase):
    def test_brings_neither_numpy_nor_torch(self):
        self.assertEqual(
            run("import sys, treadle; print([m for m in ('numpy', 'torch', 'mpi4py') if m in sys.modules])"), "[]\n"
        )

    def test_names(self):
        for name in treadle.__all__:
            self.assertEqual(getattr(treadle, name).__name__, name)
            self.assertIn(name, dir(treadle))
        with self.assertRaisesRegex(AttributeError, "has no attribute 'Modl'"):
            treadle.Modl
        self.assertEqual(run("from treadle import *; print(Model.__name__, plan.__name__)"), "Model plan\n")

    @unittest.skipIf(importlib.util.find_spec("ray"), "Ray is installed")
    def test_without_ray(self):
        with self.assertRaisesRegex(ImportError, r"treadle.ray needs Ray: pip install 'treadle\[ray\]'"):
            import treadle.ray  # noqa: F401

    def test_version(self):
        self.assertEqual(treadle.__version__, _library.text(_library.value("treadle_version_text")))
        said = subprocess.run(
            [sys.executable, "-m", "treadle", "--version"], check=True, capture_output=True, text=True
        ).stdout
        self.assertEqual(said, f"treadle {treadle.__version__}\n")

    def test_library_needs_no_mpi(self):
        package = os.path.dirname(treadle.__file__)
        for file in ("lib/libtreadle.so.2", "lib/libtreadle_engine.so.2", "lib/libtreadle_loop.so.2", "bin/treadle"):
            needed = subprocess.run(
                ["readelf", "-d", os.path.join(package, file)], check=True, capture_output=True, text=True
            ).stdout
            self.assertNotIn("libmpi", needed)
            self.assertIn("jansson-treadle", needed)  # its own copy, which nobody else's replaces

    def test_families(self):
        package = os.path.dirname(treadle.__file__)
        self.assertIn("llama.yaml", os.listdir(os.path.join(package, "families")))

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_types(self):
        said = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "-p", "treadle"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(said.returncode, 0, said.stdout)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
    def test_types_of_arrows(self):
        """A version, or a Future of it: by wait, where that is written there."""
        code = (
            "import treadle\n"
            "def f(sw: treadle.Switch, wait: bool) -> None:\n"
            + "".join(
                f"    reveal_type(sw.{arrow}({given}))\n"
                for arrow in ("to_infer", "to_train", "to_forward", "to_host", "update", "next_version")
                for given in ("", "wait=True", "wait=False", "wait=wait")
            )
        )
        said = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "-c", code],
            capture_output=True,
            text=True,
        )
        self.assertEqual(said.returncode, 0, said.stdout)
        future = "concurrent.futures._base.Future[int]"
        found = [line.partition("Revealed type is ")[2].strip('"') for line in said.stdout.splitlines()[:-1]]
        self.assertEqual(found, ["int", "int", future, f"int | {future}"] * 6)


if __name__ == "__main__":
    unittest.main()
