"""treadle moves a language model's weights between the layout it is trained in and the layout it generates in, on the
same devices.

    model = treadle.Model("path/to/hf-model")
    group = treadle.Group.torch()
    train = treadle.Layout(model, "megatron:tp=2", group.size)
    infer = treadle.Layout(model, "vllm:tp=2", group.size)
    with treadle.Switch(group, train, infer) as switch:
        switch.load()
        version = switch.to_infer()  # the weights are in switch.infer, name -> memory: .torch(), .numpy(), DLPack
        switch.to_train()

Neither numpy nor torch is imported before it is asked for. Errors are treadle.Error and its kinds."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import balance, config
    from ._foreign import InferEngine
    from .actor import Actor, ActorInfo, PromptSlice
    from .attached import Attached, attach
    from ._columns import Column
    from .batch import Batch
    from .checker import Checker
    from .dispatch import Dispatch, DispatchShare, Meshes
    from .dock import Dock
    from .errors import Cancelled, Different, Error, NoMemory, Peer, Refused, State, System, Timeout
    from .generator import Generator, GeneratorInfo, GeneratorOptions, Sampling
    from .group import Group
    from .layout import Layout, Piece, Run, Storage
    from .matches import Match, match
    from .model import Model, Tensor
    from .pieces import Reward, advantages, draw_prompts, gather, learning_rate, read_prompts
    from .plans import plan
    from .runs import EvalFigures, SftFigures, SftStep, TrainFigures, TrainStep, evaluate, sft, train
    from .switch import Switch
    from .texts import Chat, Token, Tokenizer
    from .trainer import Forward, Loss, LossFigures, LossRow, Slice, StepFigures, Trainer, TrainerOptions, UpdateFigures
    from .windows import Memory, Window

__version__ = "@VERSION@"

_PLACES = {
    "_foreign": ("InferEngine",),
    "actor": ("Actor", "ActorInfo", "PromptSlice"),
    "attached": ("Attached", "attach"),
    "_columns": ("Column",),
    "batch": ("Batch",),
    "checker": ("Checker",),
    "dispatch": ("Dispatch", "DispatchShare", "Meshes"),
    "dock": ("Dock",),
    "errors": ("Cancelled", "Different", "Error", "NoMemory", "Peer", "Refused", "State", "System", "Timeout"),
    "generator": ("Generator", "GeneratorInfo", "GeneratorOptions", "Sampling"),
    "group": ("Group",),
    "layout": ("Layout", "Piece", "Run", "Storage"),
    "matches": ("Match", "match"),
    "model": ("Model", "Tensor"),
    "pieces": ("Reward", "advantages", "draw_prompts", "gather", "learning_rate", "read_prompts"),
    "plans": ("plan",),
    "runs": ("EvalFigures", "SftFigures", "SftStep", "TrainFigures", "TrainStep", "evaluate", "sft", "train"),
    "switch": ("Switch",),
    "texts": ("Chat", "Token", "Tokenizer"),
    "trainer": (
        "Forward",
        "Loss",
        "LossFigures",
        "LossRow",
        "Slice",
        "StepFigures",
        "Trainer",
        "TrainerOptions",
        "UpdateFigures",
    ),
    "windows": ("Memory", "Window"),
}
_MODULES = ("balance", "config")  # whose functions are called by the module's name: treadle.config.read


def __getattr__(name: str) -> object:
    """Each name is imported when it is first asked for, so that importing the package costs next to nothing."""
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    from ._lazy import find

    return find(__name__, _PLACES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Actor",
    "ActorInfo",
    "Attached",
    "Batch",
    "Cancelled",
    "Chat",
    "Checker",
    "Column",
    "Different",
    "Dispatch",
    "DispatchShare",
    "Dock",
    "Error",
    "EvalFigures",
    "Forward",
    "Generator",
    "GeneratorInfo",
    "GeneratorOptions",
    "Group",
    "InferEngine",
    "Layout",
    "Loss",
    "LossFigures",
    "LossRow",
    "Match",
    "Memory",
    "Meshes",
    "Model",
    "NoMemory",
    "Peer",
    "Piece",
    "PromptSlice",
    "Refused",
    "Reward",
    "Run",
    "Sampling",
    "SftFigures",
    "SftStep",
    "Slice",
    "State",
    "StepFigures",
    "Storage",
    "Switch",
    "System",
    "Tensor",
    "Timeout",
    "Token",
    "Tokenizer",
    "TrainFigures",
    "TrainStep",
    "Trainer",
    "TrainerOptions",
    "UpdateFigures",
    "Window",
    "advantages",
    "attach",
    "draw_prompts",
    "evaluate",
    "gather",
    "learning_rate",
    "match",
    "plan",
    "read_prompts",
    "sft",
    "train",
]
