"""A stage of tools/gpu-check: tensors of torch over the windows of a switch on a CUDA device.

    python3 gpu_torch.py MODEL

MODEL: a folder with one model.safetensors. Prints one JSON object on one line. Exit status: 0; 1 if something differs;
77 if it is skipped."""

import json
import sys


def end(status: int, words: str) -> None:
    print(json.dumps({"stage": "torch", "pass": status != 1, "skipped": status == 77, "words": words}))
    sys.exit(status)


try:
    import torch
except ImportError:
    end(77, "torch is not installed")
try:
    import treadle
except (ImportError, OSError) as error:
    end(1, f"the Python package cannot be loaded: {error}")


def weights_of(path):
    """Names of a safetensors file to tensors of torch."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    values = torch.frombuffer(data, dtype=torch.uint8)
    return {
        name: values[slice(*about["data_offsets"])].view(torch.bfloat16).reshape(about["shape"])
        for name, about in header.items()
    }


def main(folder):
    if not torch.cuda.is_available():
        end(77, "torch sees no CUDA device")
    model = treadle.Model(folder)
    weights = weights_of(folder + "/model.safetensors")
    layouts = [treadle.Layout(model, text, 1) for text in ("megatron:tp=1", "vllm:tp=1")]
    with treadle.Switch(treadle.Group.alone(), *layouts, device="cuda:0") as sw:
        sw.load()
        sw.to_infer()
        tensors = sw.infer.torch()
        found = [name for name in tensors if name in weights]
        for name in found:
            if tensors[name].device != torch.device("cuda:0"):
                end(1, f"{name} is on {tensors[name].device}")
            if not torch.equal(tensors[name].cpu(), weights[name]):
                end(1, f"{name} has other values than its file")
        address = tensors[found[0]].data_ptr()
        sw.to_train()
        trained = sw.train.torch()
        norm = next(name for name in trained if "norm" in str(name))
        trained[norm].mul_(2)  # work of torch's stream, before the next arrow
        sw.to_infer()
        norms = [name for name in found if "norm" in name]
        changed = sum(not torch.equal(tensors[name].cpu(), weights[name]) for name in norms)
        if changed == 0:
            end(1, f"torch's change of {norm} has not come to the engine's tensors")
        if sw.infer.torch()[found[0]].data_ptr() != address:
            end(1, "addresses have changed")
        del tensors, trained
    end(0, f"{len(found)} tensors of the infer window are those of the file, and torch's changes come after them")


main(sys.argv[1])
