"""A module under FSDP2 trains; an engine in the same processes generates with vLLM's layout. Weights go from the
module's own tensors straight to where the engine reads them.

    torchrun --nproc-per-node 4 examples/python/01_fsdp2_to_engine.py [MODEL]
    torchrun --nnodes 2 --node-rank K --master-addr 10.0.0.1 --nproc-per-node 2
             examples/python/01_fsdp2_to_engine.py MODEL     (on machine K of two)

MODEL: a Hugging Face folder of a llama model; without one a small one is made."""

import os
import sys

import common
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import treadle


class Engine:
    """What an inference engine has: tensors by vLLM's names, which are adopted once."""

    def adopt(self, tensors):
        self.tensors = tensors

    def generate(self):
        return float(self.tensors["model.norm.weight"].float().sum())


def train_step(net):
    with torch.no_grad():
        for parameter in net.parameters():  # in place of a backward pass and an optimizer
            parameter.add_(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    path = common.model_path(sys.argv[1:], int(os.environ["RANK"]), dist.barrier)
    net = common.module(path)
    for layer in net.model.layers.children():
        fully_shard(layer)
    fully_shard(net)

    model = treadle.Model(path)
    # Store, rank and size of the default group; torch.distributed moves nothing from here on.
    group = treadle.Group.torch()
    train = treadle.Layout.of(model, net.named_parameters(), group)  # meshes and placements
    infer = treadle.Layout(model, "vllm:tp=2", group.size)
    engine = Engine()
    with treadle.Switch(group, train, infer, train_tensors=net.named_parameters()) as sw:
        engine.adopt(sw.infer.torch())  # name -> tensor, whose addresses never change
        for _ in range(3):
            train_step(net)
            version = sw.to_infer()  # the engine has the new weights
            answer = engine.generate()
            if group.rank == 0:
                print(
                    f"version {version}: the engine's norm sums up to {answer:g}; "
                    f"{sw.stats['pulled_bytes']:,.0f} bytes from other ranks"
                )
            sw.to_train()
    dist.destroy_process_group()


main()
