"""The plug-in for verl without verl: what is registered where, with stand-ins of its modules; topologies, refusals and
failures. tools/test-plugins has the package itself."""

import importlib.metadata
import json
import textwrap
import types
import unittest
import unittest.mock

import standins

import treadle
from treadle._engines import many, meet
from treadle.verl import _interface, _replicas, _shards


# As verl 0.9.1 has them, without what they do.
STANDINS = {
    "verl/__init__.py": "",
    "verl/checkpoint_engine/__init__.py": "from . import base",
    "verl/checkpoint_engine/base.py": """
        class CheckpointEngine:
            def prepare(self): ...
            @classmethod
            def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata): ...
            def init_process_group(self, **kwargs): ...
            def finalize(self): ...
            async def send_weights(self, weights, global_steps=None): ...
            async def receive_weights(self, global_steps=None): ...
        class CheckpointEngineRegistry:
            found = {}
            def register(backend):
                return lambda kind: CheckpointEngineRegistry.found.setdefault(backend, kind)
        """,
    "verl/utils/__init__.py": "",
    "verl/utils/device.py": "def get_device_name(): return 'cuda'\ndef get_vendor(): return 'nvidia'",
    "verl/workers/__init__.py": "",
    "verl/workers/rollout/__init__.py": "from . import base, replica",
    "verl/workers/rollout/base.py": """
        class BaseRollout:
            async def update_weights(self, weights, wire_format="named_tensors", **kwargs): ...
        _ROLLOUT_REGISTRY = {
            ("vllm", "async"): "verl.workers.rollout.vllm_rollout.ServerAdapter",
            ("sglang", "async"): "another.maker.ServerAdapter",
        }
        """,
    "verl/workers/rollout/replica.py": """
        class RolloutReplicaRegistry:
            _registry = {}
            @classmethod
            def register(cls, name, loader):
                cls._registry[name] = loader
        class Replica:
            def __init__(self, config, is_reward_model=False):
                self.config, self.model_config = config, None
                self.is_reward_model, self.is_teacher_model = is_reward_model, False
        RolloutReplicaRegistry.register("vllm", lambda: Replica)
        """,
    "verl/workers/rollout/vllm_rollout/__init__.py": "",
    "verl/workers/rollout/vllm_rollout/vllm_rollout.py": """
        class ServerAdapter:
            def __init__(self, config, replica_rank=0):
                self.config, self.replica_rank, self.old = config, replica_rank, None
            def _get_server_name_prefix(self): return "vllm_"
            async def update_weights(self, weights, global_steps=None, wire_format="named_tensors", **kwargs):
                self.old = list(weights)
        """,
    "verl/workers/engine/__init__.py": "from .fsdp import transformer_impl",
    "verl/workers/engine/base.py": """
        class EngineRegistry:
            _engines = {"language_model": {}}
            @classmethod
            def register(cls, model_type, backend, device="cuda", vendor=None):
                def decorator(kind):
                    known = cls._engines[model_type].setdefault(backend, {})
                    key = (device, vendor) if vendor else device
                    assert key not in known, "already registered"
                    known[key] = kind
                    return kind
                return decorator
        """,
    "verl/workers/engine/fsdp/__init__.py": "",
    "verl/workers/engine/fsdp/transformer_impl.py": """
        from ..base import EngineRegistry
        class Engine:
            module, asked = None, 0
            def get_per_tensor_param(self, layered_summon=False, **kwargs):
                self.asked += 1
                return (one for one in [("a", 1), ("b", 2)]), None
        for backend in ("fsdp", "fsdp2"):
            EngineRegistry.register("language_model", backend)(Engine)
        """,
}


def run(code, **changed):
    """What a process says in which verl's modules are stand-ins."""
    done = standins.run({**STANDINS, **changed}, textwrap.dedent(code))
    return done.stdout, done.stderr, done.returncode


class TestRegister(unittest.TestCase):
    def test_entry_point(self):
        found = [point for point in importlib.metadata.entry_points(group="verl.plugins") if point.name == "treadle"]
        self.assertEqual([point.value for point in found], ["treadle._verl_entry"])

    def test_nothing_is_imported(self):
        said = run(
            "import sys, treadle._verl_entry; print([m for m in ('verl', 'torch', 'ray', 'vllm', "
            "'treadle.verl._interface') if m in sys.modules])"
        )
        self.assertEqual(said, ("[]\n", "", 0))

    def test_all_registries(self):
        """Before verl imports its modules, or after; twice is fine."""
        code = """
            {first}
            import treadle.verl
            treadle.verl.register(); treadle.verl.register()
            import verl.checkpoint_engine, verl.workers.rollout, verl.workers.engine
            treadle.verl.register()
            from verl.checkpoint_engine.base import CheckpointEngineRegistry
            from verl.workers.rollout.base import _ROLLOUT_REGISTRY
            from verl.workers.rollout.replica import RolloutReplicaRegistry, Replica
            from verl.workers.engine.base import EngineRegistry
            print(CheckpointEngineRegistry.found["treadle"].__module__)
            print(_ROLLOUT_REGISTRY)
            kind = RolloutReplicaRegistry._registry["vllm"]()
            again = RolloutReplicaRegistry._registry["vllm"]()
            print(sum(issubclass(one, Replica) for one in kind.__mro__), kind is again)
            engines = EngineRegistry._engines["language_model"]["fsdp2"]
            print(list(engines), [one.__name__ for one in engines["cuda", "nvidia"].__mro__[:3]])
            engine = engines["cuda", "nvidia"]()
            shards, peft = engine.get_per_tensor_param(layered_summon=True)
            print(type(shards).__name__, peft, engine.asked, list(shards), engine.asked)
            """
        wanted = [
            "treadle.verl._backend",
            "{('vllm', 'async'): 'treadle.verl._vllm.ServerAdapter', ('sglang', 'async'): "
            "'another.maker.ServerAdapter'}",
            "2 True",
            "['cuda', ('cuda', 'nvidia')] ['Engine', 'Handing', 'Engine']",
            "Shards None 0 [('a', 1), ('b', 2)] 1",
        ]
        for first in ("", "import verl.checkpoint_engine, verl.workers.rollout, verl.workers.engine"):
            out, err, code_ = run(code.format(first=first))
            self.assertEqual((out.splitlines(), err, code_), (wanted, "", 0))

    def test_servers_of_sglang(self):
        """What an engine runs with is said by its server's actor: /server_info of verl's servers answers an error."""
        replicas = "verl/workers/rollout/replica.py"
        made = {
            "ray/__init__.py": """
                import types
                actors = {}
                def remote(kind): return kind
                def get(value, timeout): return value
                class _Actor:
                    def __init__(self, inner): self.inner = inner
                    def __getattr__(self, name): return types.SimpleNamespace(remote=getattr(self.inner, name))
                def get_actor(name): return _Actor(actors[name])
                """,
            "verl/workers/rollout/sglang_rollout/__init__.py": "",
            "verl/workers/rollout/sglang_rollout/async_sglang_server.py": """
                class SGLangHttpServer:
                    def get_server_address(self): return "10.0.0.1", 7000
                """,
            replicas: STANDINS[replicas].replace('"vllm"', '"sglang"'),
        }
        code = """
            import types, ray, treadle, treadle.verl
            treadle.verl.register()
            from verl.workers.rollout.replica import RolloutReplicaRegistry
            config = types.SimpleNamespace(checkpoint_engine={"backend": "treadle"}, engine_kwargs={})
            server = RolloutReplicaRegistry._registry["sglang"]()(config).server_class()
            given = types.SimpleNamespace(tp_size=2, another=object(), **config.engine_kwargs["sglang"])
            server.tokenizer_manager = types.SimpleNamespace(server_args=given)
            ray.actors.update(s=server, old=server.__class__.__base__())
            from treadle.verl import _servers
            client = _servers.SGLang("s", 2, 5)
            print(client.url, client.workers(), client.args)
            for name, workers in (("s", 3), ("old", 2)):
                try:
                    _servers.SGLang(name, workers, 5)
                except treadle.Error as error:
                    print(type(error).__name__, error)
            """
        out, err, code_ = run(code, **made)
        wanted = [
            "http://10.0.0.1:7000 2 {'tp_size': 2, 'custom_weight_loader': ['treadle.sglang.load']}",
            "Refused s has 2 workers, and verl's rollout 3",
            "System old.treadle_args: 'SGLangHttpServer' object has no attribute 'treadle_args': "
            "the server was started without treadle; install the wheel where verl starts its servers",
        ]
        self.assertEqual((out.splitlines(), err, code_), (wanted, "", 0))

    def test_another_verl(self):
        """It is refused by name, on standard error, and verl's module is there."""
        base = STANDINS["verl/checkpoint_engine/base.py"].replace("weights, global_steps=None", "weights")
        out, err, code = run(
            "import treadle._verl_entry, verl.checkpoint_engine.base as b; print(b.CheckpointEngineRegistry.found)",
            **{"verl/checkpoint_engine/base.py": base},
        )
        self.assertEqual((out, code), ("{}\n", 0))
        self.assertRegex(
            err,
            r"^treadle: verl's backend 'treadle' is not registered in verl.checkpoint_engine.base: Refused: verl .*: "
            r"CheckpointEngine.send_weights takes weights; "
            r"the plug-in fills the interface of 0.9.1, which takes weights, global_steps\n$",
        )

    def test_a_plug_in_that_cannot_be_imported_says_so(self):
        out, err, code = run("import sys; sys.modules['treadle.verl'] = None; import treadle._verl_entry")
        self.assertEqual((out, code), ("", 0))
        self.assertRegex(err, "^treadle: verl's backend 'treadle' is not registered: ModuleNotFoundError: ")

    def test_adapter(self):
        """Another backend's updates are verl's own. Without the engine's shards nothing is asked for a tensor."""
        code = """
            import asyncio, types, treadle._verl_entry
            from treadle.verl import _adapter
            from treadle.verl._vllm import ServerAdapter
            from treadle.verl._backend import Received
            def config(backend, **options):
                engine = types.SimpleNamespace(backend=backend, engine_kwargs={"treadle": options})
                return types.SimpleNamespace(checkpoint_engine=engine, tensor_model_parallel_size=2)
            other = ServerAdapter(config("naive"))
            asyncio.run(other.update_weights(iter([1, 2]), global_steps=3))
            print(other.old, _adapter.server_here())
            ours = ServerAdapter(config("treadle", cap=5), 3)
            print(_adapter.server_here(), asyncio.run(ours.update_weights(Received())), ours.old)
            def full():
                raise AssertionError("a tensor was asked for")
                yield
            for work in (
                lambda: asyncio.run(ours.update_weights(full())),
                lambda: asyncio.run(ours.update_weights(full(), peft_config={"r": 8})),
                lambda: list(Received()),
                lambda: ServerAdapter(config("treadle", caps=5)),
            ):
                try:
                    print("no error", work())
                except ValueError as error:
                    print(error)
            """
        out, err, _ = run(code)
        lines = out.splitlines()
        self.assertEqual(lines[:2], ["[1, 2] {}", "{'kind': 'vllm', 'server': 'vllm_server_3_0'} None None"], err)
        for line, words in zip(
            lines[2:],
            (
                "full tensors (generator), which would be gathered",
                "LoRA adapters",
                "gives no full tensors",
                "treadle has 'caps', and knows layout, ",
            ),
        ):
            self.assertIn(words, line)
        self.assertEqual(len(lines), 6)

    def test_topology(self):
        code = """
            import asyncio, treadle
            from treadle.verl._backend import Backend
            def worker(server, kind="vllm"):
                return {"kind": kind, "server": server}
            two = [worker("vllm_server_0_0")] * 2 + [worker("vllm_server_1_0")] * 2
            actors, rollouts = Backend.build_topology(3, 4, [{}, worker("vllm_server_7_0"), {}, *two])
            print(len(actors["servers"]), actors["servers"][0], rollouts)
            trainer = Backend(bucket_size=1, is_master=True, timeout=3)
            trainer.init_process_group(servers=actors["servers"][0])
            print(trainer._servers)
            for workers in (
                [{}],
                [*two, worker("vllm_server_2_0")],
                [worker("a"), worker("b", "sglang")],
                [worker("a"), worker("b"), worker("a"), worker("b")],
            ):
                try:
                    print("no error", Backend.build_topology(1, len(workers), [{}, *workers]))
                except treadle.Refused as error:
                    print(error)
            rollout = Backend(bucket_size=1)
            rollout.init_process_group(servers=None)
            from treadle.verl._shards import Shards
            for weights in (Shards(object(), list), iter([])):
                try:
                    asyncio.run(rollout.send_weights(weights))
                except treadle.Error as error:
                    print(type(error).__name__, error)
            """
        out, err, _ = run(code)
        lines = out.splitlines()
        self.assertEqual(
            lines[:2],
            [
                "3 ('vllm', ('vllm_server_0_0', 'vllm_server_1_0'), 2) {'servers': [None, None, None, None]}",
                "Servers(kind='vllm', names=('vllm_server_0_0', 'vllm_server_1_0'), workers=2)",
            ],
            err,
        )
        for line, words in zip(
            lines[2:],
            (
                "worker 0 of the rollouts has no server that treadle knows",
                "all must be alike",
                "servers of sglang and vllm",
                "side by side",
                "State send_weights: this process has no servers",
                "Refused verl's training engine gives full tensors",
            ),
        ):
            self.assertIn(words, line)
        self.assertEqual(len(lines), 8)

    def test_event_loop(self):
        """goes on while weights move, in the checkpoint engine and in the adapter of a colocated trainer."""
        code = """
            import asyncio, threading, types, treadle._verl_entry
            from treadle.verl._backend import Backend
            from treadle.verl._shards import Shards
            from treadle.verl._vllm import ServerAdapter
            config = types.SimpleNamespace(checkpoint_engine={"backend": "treadle"}, tensor_model_parallel_size=2)
            async def main(call, owner, name):
                event = threading.Event()
                def send(engine, servers, step):
                    return {"met": event.wait(20), "engine": engine, "servers": servers, "step": step}
                setattr(owner, name, types.SimpleNamespace(send=send))
                task = asyncio.create_task(call())
                await asyncio.sleep(0.01)
                event.set()
                print(await task)
            backend = Backend(bucket_size=1)
            backend.init_process_group(servers=("vllm", ("a",), 1))
            asyncio.run(main(lambda: backend.send_weights(Shards("engine", list), global_steps=4), backend, "_sender"))
            adapter = ServerAdapter(config)
            adapter._colocated = lambda: "servers"
            shards = Shards("engine", list)
            asyncio.run(main(lambda: adapter.update_weights(shards, global_steps=4), adapter, "_treadle"))
            """
        out, err, _ = run(code)
        self.assertEqual(
            out.splitlines(),
            [
                "{'met': True, 'engine': 'engine', 'servers': Servers(kind='vllm', "
                "names=('a',), workers=1), 'step': 4}",
                "None",
            ],
            err,
        )


class TestRefusals(unittest.TestCase):
    def rollout(self, **changed):
        parts = {
            "quantization": None,
            "data_parallel_size": 1,
            "pipeline_model_parallel_size": 1,
            "disaggregation": types.SimpleNamespace(enabled=False),
            "mtp": None,
            "checkpoint_engine": types.SimpleNamespace(backend="treadle", engine_kwargs={}),
            "engine_kwargs": {},
            **changed,
        }
        return types.SimpleNamespace(**parts)

    def test_rollouts(self):
        model = types.SimpleNamespace(lora_rank=0, lora={})
        _interface.check_rollout(self.rollout(), model)
        _interface.check_rollout(self.rollout(), None)
        for changed, words in (
            ({"quantization": "fp8"}, "rollout.quantization 'fp8': its weights are quantised"),
            ({"data_parallel_size": 2}, "data_parallel_size 2: .*more replicas work"),
            ({"pipeline_model_parallel_size": 2}, "pipeline_model_parallel_size 2"),
            ({"disaggregation": {"enabled": True}}, "disaggregation.enabled True"),
            ({"mtp": {"enable_rollout": True}}, "its draft model"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                _interface.check_rollout(self.rollout(**changed), model)
        for adapted in (types.SimpleNamespace(lora_rank=8, lora={}), {"lora": {"rank": 8}}):
            with self.assertRaisesRegex(treadle.Refused, "rank 8: LoRA adapters"):
                _interface.check_rollout(self.rollout(), adapted)

    def test_chosen(self):
        self.assertTrue(_interface.chosen(self.rollout()))
        for other in (self.rollout(checkpoint_engine={"backend": "naive"}), self.rollout(checkpoint_engine=None), {}):
            self.assertFalse(_interface.chosen(other))
        self.assertEqual(
            _interface.options_of({"checkpoint_engine": {"engine_kwargs": {"treadle": {"cap": 3}}}}), {"cap": 3}
        )

    def test_servers_are_prepared(self):
        rollout = self.rollout(engine_kwargs={"vllm": {"enable_eplb": False}})
        _replicas.prepare("vllm", rollout)
        _replicas.prepare("vllm", rollout)
        self.assertEqual(
            rollout.engine_kwargs, {"vllm": {"enable_eplb": False, "weight_transfer_config": {"backend": "treadle"}}}
        )
        rollout = self.rollout(engine_kwargs={"sglang": {"custom_weight_loader": ["a.b"]}})
        _replicas.prepare("sglang", rollout)
        _replicas.prepare("sglang", rollout)
        self.assertEqual(rollout.engine_kwargs["sglang"]["custom_weight_loader"], ["a.b", "treadle.sglang.load"])
        with self.assertRaisesRegex(treadle.Refused, "weight_transfer_config is {'backend': 'nccl'}"):
            _replicas.prepare(
                "vllm", self.rollout(engine_kwargs={"vllm": {"weight_transfer_config": {"backend": "nccl"}}})
            )

    def test_engines(self):
        def engine(strategy="fsdp2", **config):
            return types.SimpleNamespace(
                engine_config=types.SimpleNamespace(strategy=strategy, **config),
                model_config=types.SimpleNamespace(local_path="/m"),
                module="the module",
            )

        self.assertEqual(_shards.source_of(engine()), ("the module", "/m", ""))
        for one, words in (
            (engine("fsdp"), "'fsdp', and must be fsdp2 or megatron: flat shards"),
            (engine("veomni"), "'veomni', and must be"),
            (engine(param_offload=True), "param_offload"),
            (engine(offload_policy=True), "offload_policy"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                _shards.source_of(one)
        trained = engine()
        trained._qat_enabled = True
        with self.assertRaisesRegex(treadle.Refused, "qat"):
            _shards.source_of(trained)

    def test_adapters_are_verls(self):
        """With LoRA the generator is verl's, at once."""

        class Engine:
            module = types.SimpleNamespace(peft_config={})

            def get_per_tensor_param(self, **options):
                return options, {"r": 8}

        self.assertEqual(
            _shards.handing(Engine)().get_per_tensor_param(base_sync_done=True), ({"base_sync_done": True}, {"r": 8})
        )


class Client:
    def __init__(self, count, fails=""):
        self.count, self.fails, self.calls = count, fails, []

    def workers(self):
        return self.count

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            if name == self.fails:
                raise treadle.System(f"{name} failed")

        return call


class TestMany(unittest.TestCase):
    """Several engines of one group."""

    def test_all_are_called(self):
        clients = [Client(2), Client(1), Client(4)]
        engines = many.Many(clients)
        self.assertEqual(engines.workers(), 7)
        engines.init_weight_transfer_engine({"first_rank": 3})
        engines.pause("abort")
        engines.start_weight_update()
        engines.update_weights({"version": 5})
        engines.finish_weight_update("5")
        engines.reset_caches()
        engines.resume()
        for client, before in zip(clients, (0, 2, 3)):
            self.assertEqual(
                client.calls,
                [
                    ("init_weight_transfer_engine", {"first_rank": 3 + before}),
                    ("pause", "abort"),
                    ("start_weight_update",),
                    ("update_weights", {"version": 5}),
                    ("finish_weight_update", "5"),
                    ("reset_caches",),
                    ("resume",),
                ],
            )

    def test_one_fails(self):
        """Nobody waits for the others."""
        import threading

        end = threading.Event()
        waits = Client(1)
        waits.update_weights = lambda _: end.wait(60)
        try:
            with self.assertRaisesRegex(treadle.System, "update_weights failed"):
                many.Many([waits, Client(1, "update_weights")]).update_weights({})
            self.assertFalse(end.is_set())
        finally:
            end.set()

    def test_layouts(self):
        """Ranks that say no layout are trainers; what they say they were trained with is theirs."""
        config = {
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 64,
            "torch_dtype": "bfloat16",
            "tie_word_embeddings": False,
        }
        said = [
            {"layout": "", "trained": "megatron:tp=2"},
            {"layout": ""},
            {"layout": "vllm:tp=2"},
            {"layout": "vllm:tp=2"},
        ]
        group = types.SimpleNamespace(size=4)
        train, infer = meet.layouts(meet.model_of(json.dumps(config)), None, group, said, "vllm:tp=2")
        self.assertEqual((train.text, infer.text), ("megatron:tp=2,on=0-1", "vllm:tp=2,on=2-3"))


class TestSender(unittest.TestCase):
    """Which Trainer an update asks, and when it meets anew."""

    def setUp(self):
        from treadle.verl import _trainer

        self.module, self.made = _trainer, []
        test = self

        class Trainer:
            rank, many = 0, types.SimpleNamespace(clients=[types.SimpleNamespace()])
            switch = types.SimpleNamespace(stats={"seconds": 0.5, "peak_bytes": 7})

            def __init__(self, tensors, servers, **options):
                test.made.append((servers, options))
                self.version, self.fails, self.closed, self.others = 0, None, False, True

            def ask(self, words, problem=""):
                if problem:
                    raise treadle.Refused(problem)
                return [words, {"same": self.others}]

            def send_weights(self):
                if self.fails:
                    raise self.fails
                self.version += 1
                return self.version

            def close(self):
                self.closed = True

        patch = unittest.mock.patch.object(_trainer, "Trainer", Trainer)
        patch.start()
        self.addCleanup(patch.stop)
        self.servers = _trainer.Servers("vllm", ("a",), 1)

    def engine(self, numpy):
        return types.SimpleNamespace(
            engine_config=types.SimpleNamespace(strategy="fsdp2"),
            model_config=types.SimpleNamespace(local_path="/m"),
            module={"w": numpy.zeros(4, "float32")},
        )

    def test_updates(self):
        import numpy

        sender, engine = self.module.Sender({"cap": 5}), self.engine(numpy)
        self.assertEqual(
            sender.send(engine, self.servers, 10),
            {"treadle/version": 1, "treadle/seconds": 0.5, "treadle/peak_bytes": 7},
        )
        self.assertEqual(sender.send(engine, self.servers, 11)["treadle/version"], 2)
        self.assertEqual(sender.trainer.many.clients[0].global_steps, 11)
        self.assertEqual(
            self.made, [(self.servers, {"model": "/m", "pause": "abort", "trained": "", "problem": "", "cap": 5})]
        )

    def test_meets_anew(self):
        import numpy

        sender, engine = self.module.Sender({}), self.engine(numpy)
        sender.send(engine, self.servers, 1)
        sender.trainer.others = False  # another rank's tensors have moved
        self.assertEqual(sender.send(engine, self.servers, 2)["treadle/version"], 1)
        engine.module = {"w": numpy.zeros(4, "float32")}  # this rank's
        sender.send(engine, self.servers, 3)
        other = self.module.Servers("vllm", ("a", "b"), 1)
        sender.send(engine, other, 4)
        self.assertEqual([servers for servers, _ in self.made], [self.servers] * 3 + [other])
        first = sender.trainer
        first.fails = treadle.Peer("rank 2: it died")
        with self.assertRaisesRegex(treadle.Peer, "rank 2"):
            sender.send(engine, other, 5)
        self.assertTrue(first.closed and sender.trainer is None)
        self.assertEqual(sender.send(engine, other, 6)["treadle/version"], 1)

    def test_problems_are_told_to_the_others(self):
        import numpy

        sender, engine = self.module.Sender({}), self.engine(numpy)
        sender.send(engine, self.servers, 1)
        engine.engine_config.param_offload = True
        with self.assertRaisesRegex(treadle.Refused, "param_offload"):
            sender.send(engine, self.servers, 2)
        self.assertEqual(len(self.made), 1)
        sender.send(engine, self.servers, 3)  # the first meeting is told it, too: this Trainer is a stand-in
        self.assertIn("param_offload", self.made[1][1]["problem"])


if __name__ == "__main__":
    unittest.main()
