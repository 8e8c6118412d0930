"""treadle moves a language model's weights between the layout it is trained in and the layout it generates in, on the same devices.

    model = treadle.Model("path/to/hf-model")
    group = treadle.Group.torch()
    train = treadle.Layout(model, "megatron:tp=2", group.size)
    infer = treadle.Layout(model, "vllm:tp=2", group.size)
    with treadle.Switch(group, train, infer) as switch:
        switch.load()
        version = switch.to_infer()  # the weights are in switch.infer, name -> memory: .torch(), .numpy(), DLPack
        switch.to_train()

Neither numpy nor torch is imported before it is asked for. Errors are treadle.Error and its kinds."""

from .attached import Attached, attach
from .checker import Checker
from .errors import Cancelled, Different, Error, NoMemory, Peer, Refused, State, System, Timeout
from .group import Group
from .layout import Layout, Piece, Run, Storage
from .model import Model, Tensor
from .plans import plan
from .switch import Switch
from .windows import Memory, Window

__version__ = "@VERSION@"

__all__ = [
    "Attached", "Cancelled", "Checker", "Different", "Error", "Group", "Layout", "Memory", "Model", "NoMemory", "Peer", "Piece", "Refused", "Run",
    "State", "Storage", "Switch", "System", "Tensor", "Timeout", "Window", "attach", "plan",
]
