"""The plug-in for SGLang without the package: what is registered, layouts of engines, manifests, and failures.
tools/test-plugins has the package itself."""

import contextlib
import http.server
import importlib.util
import io
import json
import subprocess
import sys
import threading
import types
import unittest
import unittest.mock

import treadle
from treadle.sglang import _client, _interface, _manifest

PLAIN = {"tp_size": 2, "pp_size": 1, "dp_size": 1, "custom_weight_loader": ["treadle.sglang.load"]}
MANIFEST = {
    "store": "127.0.0.1:9",
    "group": "g",
    "hash": "h",
    "version": 1,
    "attempt": "a",
    "ranks": 3,
    "first_rank": 2,
    "model": "{}",
    "layout": "",
    "timeout": 1.0,
}


def tensor(said):
    import numpy

    return numpy.frombuffer(said if isinstance(said, bytes) else json.dumps(said).encode(), numpy.uint8)


class TestModule(unittest.TestCase):
    def test_imports_nothing(self):
        code = (
            "import sys, treadle.sglang as s; s.load, s.layout_text, s.update, s.connect; "
            "print([m for m in ('sglang', 'torch', 'numpy') if m in sys.modules])"
        )
        self.assertEqual(
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout, "[]\n"
        )

    def test_names(self):
        module, _, name = treadle.sglang.LOADER.rpartition(".")
        self.assertIs(getattr(sys.modules[module], name), treadle.sglang.load)
        with self.assertRaisesRegex(AttributeError, "no attribute 'lod'"):
            treadle.sglang.lod


class TestLayout(unittest.TestCase):
    def test_text(self):
        for more, text in (
            ({}, "sglang:tp=2"),
            ({"pp_size": 2, "tp_size": 4}, "sglang:tp=4,pp=2"),
            ({"tp_size": 8, "dp_size": 2, "enable_dp_attention": True, "ep_size": 4}, "sglang:tp=8,attn_dp=2,ep=4"),
            ({"tp_size": 8, "attn_dp_size": 4, "enable_dp_lm_head": True}, "sglang:tp=8,attn_dp=4,dp_lm_head=on"),
            ({"attn_cp_size": 2, "moe_dp_size": 2}, "sglang:tp=2,attn_cp=2,moe_dp=2"),
            (
                {"moe_a2a_backend": "deepep", "ep_size": 2, "moe_dense_tp_size": 1},
                "sglang:tp=2,ep=2,moe_dense_tp=1,a2a=deepep",
            ),
            ({"moe_runner_backend": "triton_kernel"}, "sglang:tp=2,moe=triton_kernels"),
        ):
            self.assertEqual(treadle.sglang.layout_text({**PLAIN, **more}), text)
            self.assertEqual(treadle.sglang.layout_text(types.SimpleNamespace(**{**PLAIN, **more})), text)
            resolved = types.SimpleNamespace(tp_size=77, resolved_dict=lambda more=more: {**PLAIN, **more})
            self.assertEqual(treadle.sglang.layout_text(resolved), text)

    def test_refusals(self):
        for more, words in (
            ({"quantization": "fp8"}, "quantization 'fp8': its weights are quantised"),
            ({"enable_lora": True}, "enable_lora True: LoRA"),
            ({"speculative_algorithm": "EAGLE"}, "speculative_algorithm 'EAGLE': its draft model"),
            ({"enable_eplb": True}, "enable_eplb True: it moves its experts"),
            ({"ep_num_redundant_experts": 2}, "ep_num_redundant_experts 2"),
            ({"cpu_offload_gb": 4}, "cpu_offload_gb 4"),
            ({"weight_cache_mode": "client"}, "weight_cache_mode 'client'"),
            ({"moe_runner_backend": "flashinfer_trtllm"}, "moe_runner_backend 'flashinfer_trtllm'.*knows auto, triton"),
            ({"moe_a2a_backend": "mooncake"}, "moe_a2a_backend 'mooncake'"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                treadle.sglang.layout_text({**PLAIN, **more})
        with self.assertRaisesRegex(treadle.Refused, "dict has no tp_size"):
            treadle.sglang.layout_text({})

    def test_engines(self):
        _interface.check_args(PLAIN)
        for args, words in (
            ({"tp_size": 1}, "SGLang 0.4.1 has no custom weight loaders; 0.5.12 to 0.5.23 have"),
            (
                {**PLAIN, "custom_weight_loader": None},
                r"are \[\]: start it with --custom-weight-loader treadle.sglang.load",
            ),
            ({**PLAIN, "custom_weight_loader": ["a.b"]}, r"are \['a.b'\]"),
            ({**PLAIN, "pp_size": 2}, "pp_size 2"),
            ({**PLAIN, "dp_size": 2}, "dp_size 2"),
            ({**PLAIN, "quantization": "awq"}, "quantization 'awq'"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                _interface.check_args(args, "0.4.1")

    def test_interface(self):
        class Engine:
            def update_weights_from_tensor(self, tensors, bucket):
                raise AssertionError

        with self.assertRaisesRegex(
            treadle.Refused,
            r"takes tensors by update_weights_from_tensor\(tensors, bucket\); "
            r"the plug-in fills the interface of 0.5.12 to 0.5.23",
        ):
            _interface.check_engine(Engine())
        with self.assertRaisesRegex(treadle.Refused, "engine is a list, and must be a URL or a sglang.Engine"):
            _client.client_of([])
        with self.assertRaisesRegex(treadle.Refused, "pause is 'in_place', and must be 'abort' or 'retract'"):
            treadle.sglang.connect("http://nowhere", {}, pause="in_place")
        with self.assertRaisesRegex(treadle.Refused, "connect makes the switch"):
            treadle.sglang.update("http://nowhere", object())


class TestManifest(unittest.TestCase):
    def test_read(self):
        self.assertEqual(_manifest.read([("treadle", tensor(MANIFEST))])._asdict(), MANIFEST)

    def test_others(self):
        for given, words in (
            ([], "no tensor"),
            ([("model.norm.weight", None)], "1 tensors, the first 'model.norm.weight'"),
            ([("treadle", tensor(MANIFEST)), ("x", None)], "2 tensors"),
            ([("treadle", tensor(b"\x80\x04."))], "not JSON"),
            ([("treadle", tensor([1]))], "the manifest has list"),
            ([("treadle", tensor({**MANIFEST, "more": 1}))], "use one version of treadle everywhere"),
            ([("treadle", tensor({**MANIFEST, "version": "1"}))], "'version' is '1', and must be a int"),
            ([("treadle", tensor({**MANIFEST, "ranks": True}))], "'ranks' is True"),
            ([("treadle", tensor({**MANIFEST, "timeout": None}))], "'timeout' is None, and must be a float"),
        ):
            with self.assertRaisesRegex(treadle.Refused, words):
                _manifest.read(given)

    def test_no_exception_leaves_the_loader(self):
        for given in (
            None,
            [],
            [("treadle", tensor(b"{"))],
            [("treadle", tensor(MANIFEST))],
            [("treadle", tensor({**MANIFEST, "store": "nowhere", "version": 0}))],
        ):
            said = io.StringIO()
            with contextlib.redirect_stderr(said):
                self.assertIsNone(treadle.sglang.load(None, given))
            self.assertIn("treadle: ", said.getvalue())


class Server(http.server.BaseHTTPRequestHandler):
    """Answers as SGLang's routes do, in a given order; the last answer of a route stays."""

    def do_GET(self):
        self._answer()

    def do_POST(self):
        self._answer()

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.strip("/")
        self.server.calls.append((path, json.loads(body) if body else None, self.headers.get("Authorization")))
        answers = self.server.answers.get(path, [(200, {"success": True, "message": ""})])
        code, said = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def log_message(self, *_):
        pass


class TestHttp(unittest.TestCase):
    def setUp(self):
        self.server = http.server.HTTPServer(("127.0.0.1", 0), Server)
        self.server.calls, self.server.answers = [], {"server_info": [(200, {**PLAIN, "version": "0.5.23"})]}
        thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def test_same_engine(self):
        """Two clients of one URL are one engine."""
        from treadle.sglang import _trainer

        client = treadle.sglang.Http(self.url)
        self.server.answers["server_info"] = [(200, {**PLAIN, "version": "0.5.23"})]
        for engine in (client, self.url, self.url.rstrip("/"), treadle.sglang.Http(self.url, api_key="secret")):
            self.assertTrue(_trainer._same(engine, client))
        for engine in ("http://127.0.0.1:1", None, object()):
            self.assertFalse(_trainer._same(engine, client))

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_nobody_is_there(self):
        with self.assertRaisesRegex(treadle.System, "^http://127.0.0.1:1/server_info: "):
            treadle.sglang.connect("http://127.0.0.1:1", {}, model="nowhere", rank=0, ranks=1)

    def test_update(self):
        client = treadle.sglang.Http(self.url, api_key="secret")
        self.assertEqual(client.workers(), 2)
        self.server.answers["flush_cache"] = [(400, ""), (400, ""), (200, "")]
        client.pause("keep")
        client.start_weight_update()
        client.finish_weight_update("7")
        client.reset_caches()
        client.resume()
        paths = [path for path, _, _ in self.server.calls]
        self.assertEqual(
            paths,
            [
                "server_info",
                "pause_generation",
                "begin_weight_update",
                "end_weight_update",
                "update_weight_version",
                *["flush_cache"] * 3,
                "continue_generation",
            ],
        )
        self.assertEqual(self.server.calls[1][1], {"mode": "retract"})
        self.assertEqual(self.server.calls[4][1], {"new_version": "7", "abort_all_requests": False})
        self.assertEqual({key for _, _, key in self.server.calls}, {"Bearer secret"})

    def test_stale_caches_do_not_serve(self):
        client = treadle.sglang.Http(self.url)
        client._stale = True  # as after an update
        self.server.answers["flush_cache"] = [(400, ""), (200, "")]
        client.resume()
        self.assertEqual(
            [path for path, _, _ in self.server.calls],
            ["server_info", "flush_cache", "flush_cache", "continue_generation"],
        )
        client.resume()
        self.assertEqual([path for path, _, _ in self.server.calls][4:], ["continue_generation"])
        client._stale = True
        self.server.answers["flush_cache"] = [(400, "")]
        with (
            unittest.mock.patch.object(_client, "_FLUSH", 0.05),
            self.assertRaisesRegex(treadle.System, "keys and values of the old weights"),
        ):
            client.resume()
        self.assertNotIn("continue_generation", [path for path, _, _ in self.server.calls][5:])

    def test_sessions(self):
        """One that trainers left open is taken over; a server before 0.5.21 has none."""
        client = treadle.sglang.Http(self.url)
        self.server.answers["begin_weight_update"] = [
            (400, {"success": False, "message": "a weight-update session is already open"}),
            (400, {"message": "busy"}),
            (404, {}),
        ]
        client.start_weight_update()
        client.finish_weight_update()
        with self.assertRaisesRegex(treadle.System, "begin_weight_update: .*busy"):
            client.start_weight_update()
        client.start_weight_update()
        client.finish_weight_update()
        self.assertEqual([path for path, _, _ in self.server.calls].count("end_weight_update"), 1)

    def test_refusals(self):
        self.server.answers["server_info"] = [(200, {"tp_size": 1, "version": "0.4.0"})]
        with self.assertRaisesRegex(treadle.Refused, "SGLang 0.4.0 has no custom weight loaders"):
            treadle.sglang.Http(self.url)
        self.server.answers["server_info"] = [(401, {"message": "no key"})]
        with self.assertRaisesRegex(treadle.System, "server_info answered 401: no key"):
            treadle.sglang.Http(self.url)
        with self.assertRaisesRegex(treadle.System, "127.0.0.1:1/server_info: "):
            treadle.sglang.Http("http://127.0.0.1:1")


if __name__ == "__main__":
    unittest.main()
