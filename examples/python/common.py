"""What the examples share: a small model where none is given, and its modules."""

import os
import subprocess
import sys
import tempfile


def model_path(arguments, rank=0, barrier=lambda: None):
    """The model that is given, or a small one, which rank 0 makes."""
    if arguments:
        return arguments[0]
    path = os.path.join(tempfile.gettempdir(), f"treadle-example-model-{os.getuid()}")
    if rank == 0 and not os.path.exists(os.path.join(path, "config.json")):
        subprocess.run(
            [sys.executable, "-m", "treadle", "make-model", path, "--layers", "4", "--hidden", "256", "--vocab", "512"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    barrier()
    return path


def module(path):
    """A module with the parameters of a checkpoint under Hugging Face's names. A real program has its model, as of
    transformers."""
    import torch

    import treadle

    net = torch.nn.Module()
    model = treadle.Model(path)
    with treadle.Switch(treadle.Group.alone(), treadle.Layout(model, "hf", 1), treadle.Layout(model, "vllm", 1)) as sw:
        sw.load()
        for name, tensor in sw.train.torch().items():
            *parts, last = name.split(".")
            at = net
            for part in parts:
                if not hasattr(at, part):
                    setattr(at, part, torch.nn.Module())
                at = getattr(at, part)
            setattr(at, last, torch.nn.Parameter(tensor.float()))
    return net
