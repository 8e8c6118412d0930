"""The tag of the wheel that is installed: its files ask for no symbols of a later glibc, and for some of that one."""

import importlib.machinery
import importlib.util
import pathlib
import re
import subprocess
import unittest

import treadle

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "make-wheel"


def make_wheel():
    loader = importlib.machinery.SourceFileLoader("make_wheel", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_wheel", loader))
    loader.exec_module(module)
    return module


def newest_symbol(file):
    """Of glibc, among the symbols that a file leaves open: (2, 28)."""
    said = subprocess.run(["readelf", "-W", "--dyn-syms", file], check=True, capture_output=True, text=True).stdout
    return max(
        ((int(major), int(minor)) for major, minor in re.findall(r" UND \S+@GLIBC_(\d+)\.(\d+)", said)), default=(0, 0)
    )


class TestTag(unittest.TestCase):
    def test_is_what_the_symbols_say(self):
        package = pathlib.Path(treadle.__file__).parent
        files = [file for folder in ("lib", "bin") for file in (package / folder).iterdir()]
        self.assertGreater(len(files), 4)
        newest = max(map(newest_symbol, files))
        info = next(package.parent.glob("treadle-*.dist-info"))
        tags = re.findall(r"^Tag: py3-none-manylinux_(\d+)_(\d+)_\w+$", (info / "WHEEL").read_text(), re.M)
        self.assertEqual([tuple(map(int, numbers)) for numbers in tags], [newest])

    def test_versions(self):
        glibc_of = make_wheel().glibc_of
        line = "  0x0010:   Name: {}  Flags: none  Version: 7\n"
        for names, expected in (
            (["GLIBC_2.2.5", "GLIBC_2.14", "GLIBC_2.4"], (2, 14)),
            (["GLIBC_2.9", "GLIBC_2.28"], (2, 28)),
            (["GLIBC_2.17", "GLIBC_ABI_DT_RELR"], (2, 36)),
            (["ZLIB_1.2.9", "LIBYAML_3.0"], (0, 0)),
        ):
            self.assertEqual(glibc_of("".join(map(line.format, names))), expected)
        with self.assertRaisesRegex(SystemExit, "needs GLIBC_PRIVATE, which no version of glibc promises"):
            glibc_of(line.format("GLIBC_PRIVATE"))


if __name__ == "__main__":
    unittest.main()
