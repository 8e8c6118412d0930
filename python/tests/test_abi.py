"""_abi.py, which is made from the headers by patterns, against a C compiler: sizes of structs, offsets of fields,
values of constants."""

import ctypes
import os
import shutil
import subprocess
import tempfile
import unittest

from treadle import _abi

INCLUDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "include")


@unittest.skipUnless(shutil.which("cc"), "there is no C compiler")
class TestAbi(unittest.TestCase):
    def test_structs_and_constants(self):
        structs = {
            n: k
            for n, k in vars(_abi).items()
            if isinstance(k, type) and issubclass(k, ctypes.Structure) and k is not ctypes.Structure
        }
        constants = {n: v for n, v in vars(_abi).items() if n.startswith("TREADLE_") and isinstance(v, int)}
        self.assertGreater(len(structs), 20)
        self.assertGreater(len(constants), 30)
        lines = [
            '#include "treadle_attach.h"',
            '#include "treadle_batch.h"',
            '#include "treadle_control.h"',
            '#include "treadle_device.h"',
            '#include "treadle_tools.h"',
            '#include "treadle_testing.h"',
            "int main(void) {",
        ]
        for name, kind in structs.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            lines += [f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));' for field, *_ in kind._fields_]
        lines += [f'printf("{name} %lld\\n", (long long){name});' for name in constants]
        with tempfile.TemporaryDirectory(prefix="treadle-test-") as folder:
            source, program = os.path.join(folder, "a.c"), os.path.join(folder, "a")
            with open(source, "w", encoding="ascii") as file:
                file.write("\n".join([*lines, "return 0; }"]))
            subprocess.run(["cc", "-std=c11", "-I", INCLUDE, source, "-o", program], check=True)
            said = dict(
                line.split()
                for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
            )
        for name, kind in structs.items():
            self.assertEqual(int(said[name]), ctypes.sizeof(kind), name)
            for field, *_ in kind._fields_:
                self.assertEqual(int(said[f"{name}.{field}"]), getattr(kind, field).offset, f"{name}.{field}")
        for name, value in constants.items():
            self.assertEqual(int(said[name]), value, name)

    def test_functions_are_there(self):
        from treadle import _library

        for name, (library, *_) in _abi.FUNCTIONS.items():
            if library != "treadle_mpi":  # which the wheel has not
                self.assertIsNotNone(_library.function(name))


if __name__ == "__main__":
    unittest.main()
