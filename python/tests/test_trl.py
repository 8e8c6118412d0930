"""The plug-in for TRL without TRL: what is replaced, with stand-ins of its modules; refusals and failures.
tools/test-plugins has the package itself."""

import subprocess
import sys
import textwrap
import unittest

import standins

# As TRL 1.16 has them, without what they do.
STANDINS = {
    "trl/__init__.py": "__version__ = '1.16.0'",
    "trl/generation/__init__.py": "",
    "trl/generation/vllm_client.py": """
        class VLLMClient:
            backend = {"backend": "treadle"}
            def __init__(self, base_url="http://s:1", **kwargs): self.base_url = base_url
            def get_server_info(self): return {"weight_transfer_config": self.backend}
            def init_communicator(self, device=0): raise NotImplementedError("NCCL")
            def update_model_params(self, model): ...
            def weight_update(self): ...
        """,
    "trl/generation/vllm_generation.py": """
        from .vllm_client import VLLMClient
        def empty_cache(): print("emptied")
        class Accelerator:
            is_main_process = True
            def wait_for_everyone(self): print("waited")
        class VLLMGeneration:
            def __init__(self, model, dist, mode, sleeps=False):
                self.model, self._dist, self.mode, self.enable_sleep_mode = model, dist, mode, sleeps
                self.accelerator = Accelerator()
                self._init_vllm()
            def _init_vllm(self):
                if self.mode == "server":
                    self.vllm_client = VLLMClient(base_url="http://s:1")
                    self.vllm_client.init_communicator()
            def sync_weights(self): print("TRL's own")
            def generate(self, prompts, images, num_generations, profiler=None): return prompts
        """,
}
BEFORE = """
    import types, treadle, treadle.trl
    from trl.generation import vllm_client, vllm_generation
    PLAIN = {"is_zero3": False, "is_fsdp": False, "fsdp_version": None}
    plain = lambda **changed: types.SimpleNamespace(**{**PLAIN, **changed})
    def refused(work):
        try:
            print("not refused", work())
        except treadle.Error as error:
            print(type(error).__name__, error)
"""


def run(code, **changed):
    """What a process says in which TRL's modules are stand-ins."""
    done = standins.run({**STANDINS, **changed}, textwrap.dedent(BEFORE) + textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestTrl(unittest.TestCase):
    def test_nothing_is_imported(self):
        said = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, treadle.trl; print([m for m in ('trl', 'torch', 'vllm', "
                "'treadle.trl._generation') if m in sys.modules])",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(said.stdout, "[]\n")

    def test_installed(self):
        """Twice is fine, and the later options are those of trainers that are made later; modules that have the class
        already use treadle's methods, too."""
        said = run("""
            kind = vllm_generation.VLLMGeneration
            treadle.trl.install(timeout=5)
            treadle.trl.install(undo=True, timeout=7)
            made = kind(object(), plain(), "server")
            client = type(made.vllm_client)
            print(client.__module__, vllm_client.VLLMClient is client, made._treadle_options)
            print(made.generate("a", None, 1))
            """)
        self.assertEqual(
            said, "treadle.trl._client True Options(undo=True, finite=True, timeout=7, cap=0, address=None)\na\n"
        )

    def test_trainers_before(self):
        """A trainer that was made before install() keeps TRL's way."""
        said = run("""
            vllm_client.VLLMClient.init_communicator = lambda self: None
            made = vllm_generation.VLLMGeneration(object(), plain(), "server")
            treadle.trl.install()
            made.sync_weights()
            print(made.generate("a", None, 1))
            """)
        self.assertEqual(said, "TRL's own\na\n")

    def test_updates(self):
        """All processes wait for each other before; then the server, or the engines; what was asleep counts as awake
        only after the update."""
        said = run("""
            from treadle.trl import _client, _colocated, _generation
            class Server:
                def __init__(self, url, options): self.url = url
                def send(self, module): print("sent", module, self.url)
            class Engines(_colocated.Colocated):
                fails = False
                def __init__(self, module, llm, options): self.mixed = False
                def send(self):
                    if self.fails: raise treadle.Refused("NaN")
                    print("written")
            _generation.Server, _generation.Colocated = Server, Engines
            treadle.trl.install()
            vllm_generation.VLLMGeneration("net", plain(), "server").sync_weights()
            made = vllm_generation.VLLMGeneration("net", plain(), "colocate", True)
            made.llm, made._llm_weights_sleeping = types.SimpleNamespace(wake_up=lambda tags: print("woke", tags)), True
            Engines.fails = True
            refused(made.sync_weights)
            print(made._llm_weights_sleeping)
            Engines.fails = False
            made.sync_weights()
            print(made._llm_weights_sleeping)
            treadle.trl.install(undo=True)
            refused(lambda: vllm_generation.VLLMGeneration("net", plain(), "colocate", True))
            """).splitlines()
        woken = ["waited", "emptied", "woke ['weights']"]
        self.assertEqual(
            said[:-1], ["waited", "sent net http://s:1", *woken, "Refused NaN", "True", *woken, "written", "False"]
        )
        self.assertRegex(said[-1], "^Refused vllm_enable_sleep_mode discards")

    def test_other_versions(self):
        for path, old, new, words in (
            (
                "vllm_generation.py",
                "def sync_weights(self)",
                "def sync_weights(self, step)",
                "VLLMGeneration.sync_weights takes self, step; .* 1.16, where it takes self",
            ),
            ("vllm_generation.py", "def generate(", "def make(", "has no VLLMGeneration.generate"),
            ("vllm_client.py", "def weight_update", "def updating", "VLLMClient has no weight_update"),
        ):
            path = f"trl/generation/{path}"
            said = run("refused(treadle.trl.install)", **{path: STANDINS[path].replace(old, new)})
            self.assertRegex(said, f"^Refused TRL 1.16.0:? {words}")

    def test_without(self):
        """A TRL that has no such class."""
        said = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, types; sys.modules['trl'] = types.ModuleType('trl'); import "
                "treadle.trl; treadle.trl.install()",
            ],
            capture_output=True,
            text=True,
        )
        self.assertIn("Refused: TRL of an unknown version has no class for generation with vLLM", said.stderr)

    def test_trainings(self):
        """What is not moved is refused before vLLM is touched."""
        said = run("""
            treadle.trl.install()
            kind = vllm_generation.VLLMGeneration
            for dist in (plain(is_zero3=True), plain(is_fsdp=True, fsdp_version=1)):
                refused(lambda: kind(object(), dist, "colocate"))
            refused(lambda: kind(types.SimpleNamespace(peft_config={}), plain(), "server"))
            refused(lambda: kind(types.SimpleNamespace(is_quantized=True), plain(), "colocate"))
            kind(object(), plain(is_fsdp=True, fsdp_version=2), "colocate")
            """).splitlines()
        self.assertEqual(
            [line.split(":")[0].split(" ", 2)[2].split(",")[0] for line in said],
            [
                "ZeRO-3 keeps its shards in no form that torch declares",
                "flattens its shards",
                "model has adapters (peft)",
                "model is quantised",
            ],
        )

    def test_servers(self):
        """A server with another backend; tensors one by one."""
        said = run("""
            treadle.trl.install()
            for backend in ({"backend": "nccl"}, None):
                vllm_client.VLLMClient.backend = backend
                refused(lambda: vllm_generation.VLLMGeneration(object(), plain(), "server"))
            client = vllm_client.VLLMClient()
            refused(lambda: client.update_named_params([], iter(())))
            refused(lambda: client.update_named_param("a.weight", None))
            refused(client.weight_update)
            """).splitlines()
        self.assertIn(
            "Refused the vLLM server at http://s:1 has the weight transfer backend 'nccl'; "
            """start it with --weight-transfer-config '{"backend": "treadle"}'""",
            said[0],
        )
        self.assertIn("backend None", said[1])
        self.assertEqual(
            [line[:42] for line in said[2:]],
            [
                "Refused VLLMClient.update_named_params tak",
                "Refused VLLMClient.update_named_param take",
                "Refused VLLMClient.weight_update takes ten",
            ],
        )

    def test_mixed(self):
        """An engine whose update failed in the middle does not generate."""
        said = run("""
            from treadle.trl import _colocated
            treadle.trl.install()
            made = vllm_generation.VLLMGeneration(object(), plain(), "colocate")
            made._treadle = object.__new__(_colocated.Colocated)
            made._treadle.mixed = True
            refused(lambda: made.generate("a", None, 1))
            """)
        self.assertRegex(said, "^State vLLM's weights may be of two versions")


if __name__ == "__main__":
    unittest.main()
