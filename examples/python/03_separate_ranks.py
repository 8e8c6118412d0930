"""Trainer and engine as separate processes of one group: ranks 0 and 1 train, ranks 2 and 3 generate. The engine pulls
each new version straight into tensors of its own, while the trainer keeps its weights.

    torchrun --nproc-per-node 4 examples/python/03_separate_ranks.py [MODEL]"""

import os
import sys

import common
import torch
import torch.distributed as dist

import treadle


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    path = common.model_path(sys.argv[1:], int(os.environ["RANK"]), dist.barrier)
    model = treadle.Model(path)
    group = treadle.Group.torch()
    train = treadle.Layout(model, "megatron:tp=2,on=0-1", group.size)  # 4 ranks in all, of which two hold it
    infer = treadle.Layout(model, "vllm:tp=2,on=2-3", group.size)
    engine = {s.name: torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in infer.storages(group.rank)}
    with treadle.Switch(group, train, infer, infer_tensors=engine) as sw:
        sw.load()
        sw.to_infer()
        for _ in range(3):
            for tensor in sw.train.torch().values():  # none on the engine's ranks
                tensor.mul_(2)
            version = sw.update()  # all ranks: the next version
            if group.rank == 2:
                print(
                    f"version {version}: {sw.stats['pulled_bytes']:,.0f} bytes pulled; "
                    f"the engine's norm sums up to {engine['model.norm.weight'].float().sum():g}"
                )
    dist.destroy_process_group()


main()
