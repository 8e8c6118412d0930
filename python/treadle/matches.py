"""Which tensors of an engine an update may write: what the engine stores as it was loaded and computes with from there,
and what it has made something else of.

A name and a shape prove nothing: an engine that packs its weights keeps some tensors that look right and that nothing
reads. So whether a tensor is the engine's own stands on a list (proved.json, proved_sglang.json), by the class of its
layer, the layer's quantisation method, the kernel that multiplies with it, and the device. The tests make the list from
real engines: noise in the tensor has to change what a forward pass gives, its bytes are those that were loaded, and
with these bytes back the forward pass gives what it gave. What the list does not know is refused."""

from __future__ import annotations

import json
import os
import typing

from . import errors
from .layout import Layout, Storage, key_of

if typing.TYPE_CHECKING:
    from .switch import Switch

_TIED = " (tied)"  # after the class of a layer that the model has under two names


class Key(typing.NamedTuple):
    """By what the list says how a tensor is treated."""

    layer: str  #: the class of its layer
    method: str  #: the class of the layer's quantisation method, or ""
    kernel: str  #: the function that multiplies with it, or "": the layer's own forward pass reads it
    device: str  #: "cpu", "cuda"
    tensor: str  #: its name in the layer: "weight"


class Found(typing.NamedTuple):
    """A tensor of the engine."""

    name: str
    key: Key
    shape: tuple[int, ...]
    dtype: str  #: torch's name
    strides: tuple[int, ...]  #: in elements
    address: int  #: of its first byte; 0 without bytes
    parameter: bool
    owner: int  #: a number of the module that has it, which may have several names
    layer: typing.Any  #: that module; None in a recorded list
    tensor: typing.Any  #: None in a recorded list


class Row(typing.NamedTuple):
    """How a tensor gets new weights."""

    name: str
    kind: str  #: "own", "window", "layer" or "refused"
    bytes: int  #: of this rank, as the layout stores it
    proof: str  #: where it is known from, or why it is refused


class Report(typing.NamedTuple):
    """What Match.attach did."""

    rows: list[Row]

    def share(self, kind: str) -> float:
        """Of the bytes of all rows those of a kind, 0 to 1."""
        whole = sum(row.bytes for row in self.rows)
        return sum(row.bytes for row in self.rows if row.kind == kind) / whole if whole else 0.0


def proved() -> dict[Key, tuple[str, str]]:
    """The list: kind and proof by key."""
    rows = []
    for name in ("proved.json", "proved_sglang.json"):
        with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
            rows += json.load(file)
    return {Key(*row["key"]): (row["kind"], row["proof"]) for row in rows}


class Match:
    """What treadle.match found on this rank.

    own: tensors that the switch writes where they are, by the layout's names: Switch(infer_tensors=match.own). window:
    tensors that will lie in the infer window. layer: tensors whose layers are processed again after each update.
    refused: the others, each with the reason."""

    def __init__(self) -> None:
        self.own: dict[str, typing.Any] = {}
        self.window: dict[str, list[Found]] = {}
        self.layer: dict[str, list[Found]] = {}
        self.refused: dict[str, str] = {}
        self.rows: list[Row] = []

    def check(self) -> None:
        """Raises Refused where a tensor is refused, with the first names and their reasons."""
        if self.refused:
            first = [f"'{name}': {why}" for name, why in list(self.refused.items())[:3]]
            more = f"; {len(self.refused) - 3} more" if len(self.refused) > 3 else ""
            raise errors.Refused(f"the engine's weights cannot be updated: {'; '.join(first)}{more}")

    def attach(self, switch: Switch) -> Report:
        """Gives the engine what the switch does not write in place: tensors of `window` become views of the infer
        window, and layers of `layer` are processed again, from weights of the infer window. In mode INFER, after each
        update; also in `bind`, so that a layer that cannot be processed fails the arrow on all ranks. Raises Refused
        where a tensor is refused."""
        self.check()
        if self.window or self.layer:
            weights = switch.infer.torch()
            for name, founds in self.window.items():
                for found in founds:
                    found.tensor.data = weights[name].view(found.shape)
            for module, tensors in self._layers(weights):
                reload_of(module)(module, tensors)
        return Report(list(self.rows))

    def _layers(self, weights: typing.Mapping[str, typing.Any]) -> list[tuple[typing.Any, dict[str, typing.Any]]]:
        """Each layer once, with the weights of all its tensors that are processed."""
        layers: dict[int, tuple[typing.Any, dict[str, typing.Any]]] = {}
        for name, founds in self.layer.items():
            for found in founds:
                layers.setdefault(id(found.layer), (found.layer, {}))[1][found.key.tensor] = weights[name]
        return list(layers.values())

    def __repr__(self) -> str:
        return (
            f"<treadle.Match {len(self.own)} own, {len(self.window)} window, {len(self.layer)} layer, "
            f"{len(self.refused)} refused>"
        )


def reload_of(layer: typing.Any) -> typing.Callable[[typing.Any, typing.Mapping[str, typing.Any]], None]:
    """The function that has a layer process its weights again, of the engine that the layer is of."""
    if _of("vllm", layer):
        from .vllm._reload import reload_layer

        return reload_layer
    raise errors.Refused(
        f"{type(layer).__name__} is not a layer of an engine whose weights can be processed again (vLLM)"
    )


def match(
    model: typing.Any,
    layout: Layout,
    rank: int,
    engine_model: typing.Any,
    *,
    prove: bool = False,
    forward: typing.Callable[[], typing.Any] | None = None,
    unproved: str = "refuse",
) -> Match:
    """What an update has to do for each tensor of an engine on `rank` of `layout`.

    engine_model: the engine's module (torch), after it has loaded and processed its weights; or what engine_tensors()
        made of one.
    prove: tensors that the list does not know are tried now: noise in them, then their bytes again. It needs `forward`,
        which runs the engine and returns what can be compared (the same each time), and a model with the weights that
        the engine has loaded. Nothing may use the engine meanwhile; where a tensor is refused, its layer may be left
        with noise, and the engine has to be started anew.
    unproved: what happens to tensors that are neither listed nor proved: "refuse", or "layer": their layer is processed
        again.
    Raises Refused for other options. Local."""
    if unproved not in ("refuse", "layer"):
        raise errors.Refused(f"match: unproved is '{unproved}', and must be 'refuse' or 'layer'")
    if prove and forward is None:
        raise errors.Refused(
            "match: prove needs forward, a function that runs the engine and returns what can be compared"
        )
    tensors = engine_model if isinstance(engine_model, list) else engine_tensors(engine_model)
    known = proved()
    if prove and forward is not None:
        known.update(prove_all(layout, rank, tensors, forward, known))
    return _decide(layout.storages(rank), tensors, known, unproved)


def _decide(
    storages: typing.Sequence[Storage], tensors: list[Found], known: typing.Mapping[Key, tuple[str, str]], unproved: str
) -> Match:
    made = Match()
    names: dict[str, list[Found]] = {}
    for found in tensors:
        names.setdefault(found.name, []).append(found)
    for storage in storages:
        name = str(key_of(storage))
        sharing = _sharing(names.get(name, []), tensors)
        kinds = [_kind(storage, found, known, unproved) for found in sharing] or [
            ("refused", "the engine has no such tensor")
        ]
        kind, proof = max(kinds, key=lambda one: ("own", "window", "layer", "refused").index(one[0]))
        made.rows.append(Row(name, kind, storage.bytes, proof))
        if kind == "own":
            made.own[name] = sharing[0].tensor
        elif kind == "window":
            made.window[name] = sharing
        elif kind == "layer":
            made.layer[name] = [found for found, (one, _) in zip(sharing, kinds) if one == "layer"]
        else:
            made.refused[name] = proof
    has = [found for storage in storages for found in names.get(str(key_of(storage)), [])]
    addresses, places = (
        {found.address for found in has if found.address},
        {(found.owner, found.key.tensor) for found in has},
    )
    for found in tensors:
        if found.parameter and (found.owner, found.key.tensor) not in places and found.address not in addresses:
            made.refused[found.name] = (
                f"the engine has it, of shape {list(found.shape)}, and the layout has not: nothing would update it"
            )
            made.rows.append(Row(found.name, "refused", 0, made.refused[found.name]))
    return made


def _sharing(named: list[Found], tensors: list[Found]) -> list[Found]:
    """The tensor of a name, and those under other names that are the same memory (tied), each layer's tensor once."""
    addresses = {found.address for found in named if found.address}
    every = named + [found for found in tensors if found.address in addresses and found not in named]
    once: dict[tuple[int, str], Found] = {}
    for found in every:
        once.setdefault((found.owner, found.key.tensor), found)
    return list(once.values())


def _kind(
    storage: Storage, found: Found, known: typing.Mapping[Key, tuple[str, str]], unproved: str
) -> tuple[str, str]:
    kind, proof = known.get(found.key, ("", ""))
    if not kind:
        words = (
            f"{found.key.layer} with {found.key.method or 'no quantisation method'} and kernel '{found.key.kernel}' "
            f"on {found.key.device} is not on the list"
        )
        return (unproved, words) if unproved == "layer" else ("refused", words)
    if kind != "own":
        return kind, proof
    if found.shape != storage.shape or found.dtype != storage.dtype:
        return (
            "refused",
            f"the engine has it as {list(found.shape)} of {found.dtype}, and the layout as "
            f"{list(storage.shape)} of {storage.dtype}",
        )
    return ("own" if _contiguous(found.shape, found.strides) else "window"), proof


def _contiguous(shape: typing.Sequence[int], strides: typing.Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


# ---- What an engine has ----


def engine_tensors(engine_model: typing.Any) -> list[Found]:
    """All parameters and buffers of a module, and the tensors among the attributes of its layers, under all their
    names."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    paths: dict[int, int] = {}
    modules = list(engine_model.named_modules(remove_duplicate=False))
    for _, module in modules:
        paths[id(module)] = paths.get(id(module), 0) + 1
    found = []
    for path, module in modules:
        plain = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers), ("attribute", plain)):
            for name, tensor in tensors.items():
                if tensor is not None:
                    key = Key(
                        type(module).__name__ + (_TIED if paths[id(module)] > 1 else ""),
                        _method(module),
                        _kernel(module),
                        tensor.device.type,
                        name,
                    )
                    found.append(
                        Found(
                            f"{path}.{name}" if path else name,
                            key,
                            tuple(tensor.shape),
                            str(tensor.dtype).removeprefix("torch."),
                            tuple(tensor.stride()),
                            tensor.data_ptr() if tensor.numel() else 0,
                            kind == "parameter",
                            id(module),
                            module,
                            tensor,
                        )
                    )
    return found


def _of(package: str, module: typing.Any) -> bool:
    return any(kind.__module__.split(".")[0] == package for kind in type(module).__mro__)


def _method(module: typing.Any) -> str:
    method = getattr(module, "quant_method", None)
    return type(method).__name__ if method is not None else ""


def _kernel(module: typing.Any) -> str:
    """What multiplies with a layer's weights. vLLM on processors: the last name that its cpu_linear calls; elsewhere
    its method's function. SGLang's layers have the names of vLLM's, and say whether they were packed for Intel's
    AMX."""
    if _of("sglang", module):
        return "sglang intel_amx" if getattr(module, "use_intel_amx_backend", False) else "sglang"
    function = vars(module).get("cpu_linear") or getattr(getattr(module, "quant_method", None), "_gemm_impl", None)
    if function is None:
        return ""
    code = getattr(function, "__code__", None)
    if getattr(function, "__name__", "") == "<lambda>" and code is not None:
        return str(code.co_names[-1]) if code.co_names else "?"
    return str(getattr(function, "__name__", "?"))


# ---- Proof ----


def prove_all(
    layout: Layout,
    rank: int,
    tensors: list[Found],
    forward: typing.Callable[[], typing.Any],
    known: typing.Mapping[Key, object] = {},
) -> dict[Key, tuple[str, str]]:
    """Proves what is not known, by the first tensor of each key: "own", "layer" or "refused", and how or why."""
    values = loaded(layout, rank)
    made: dict[Key, tuple[str, str]] = {}
    for found in tensors:
        if found.name in values and found.key not in known and found.key not in made:
            made[found.key] = _prove(found, values[found.name], forward)
    return made


def _prove(found: Found, expected: typing.Any, forward: typing.Callable[[], typing.Any]) -> tuple[str, str]:
    """expected: what the files have for it, a tensor of torch."""
    import torch

    before = forward()
    as_loaded = found.shape == tuple(expected.shape) and torch.equal(_bytes(found.tensor), _bytes(expected))
    if as_loaded and _matters(found.tensor.copy_, expected, forward, before):
        return (
            "own",
            "it has the bytes that were loaded; noise in it changed a forward pass, "
            "and these bytes brought the same one back",
        )
    try:
        reload = reload_of(found.layer)
        if _matters(lambda values: reload(found.layer, {found.key.tensor: values}), expected, forward, before):
            return (
                "layer",
                "its layer, processed again with noise, changed a forward pass; with the bytes that were loaded, "
                "it brought the same one back",
            )
    except Exception as error:  # noqa: BLE001
        return "refused", f"its layer cannot be processed again: {type(error).__name__}: {error}"
    return "refused", "nothing that is written to it changes a forward pass and is undone by the bytes that were loaded"


def _bytes(tensor: typing.Any) -> typing.Any:
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _matters(
    write: typing.Callable[[typing.Any], object],
    expected: typing.Any,
    forward: typing.Callable[[], typing.Any],
    before: typing.Any,
) -> bool:
    """Does noise change the forward pass, and what was there bring it back?"""
    import torch

    with torch.no_grad():
        try:
            write(torch.empty_like(expected).normal_(0, 0.3))
            noisy = forward()
        finally:
            write(expected)
    return bool(noisy != before and forward() == before)


def loaded(layout: Layout, rank: int) -> dict[str, typing.Any]:
    """What the model's files have for each storage tensor of a rank, as tensors of torch in host memory."""
    import ctypes

    import torch

    from . import _abi, _library

    room = torch.zeros(max(1, layout.window_bytes(rank)), dtype=torch.uint8)
    _library.call(
        "treadle_layout_load_weights", layout._use(), rank, _abi.TREADLE_WEIGHTS_FILES, ctypes.c_void_p(room.data_ptr())
    )
    return {
        str(key_of(s)): room[s.offset_bytes : s.offset_bytes + s.bytes]
        .view(getattr(torch, s.dtype))
        .reshape(s.shape)
        .clone()
        for s in layout.storages(rank)
    }


# ---- Recorded lists ----


def record(tensors: list[Found]) -> list[list[typing.Any]]:
    """Tensors of an engine as JSON: addresses and owners become numbers, equal where memory or a module is shared."""
    addresses: dict[int, int] = {0: 0}
    owners: dict[int, int] = {}
    return [
        [
            f.name,
            list(f.key),
            list(f.shape),
            f.dtype,
            list(f.strides),
            addresses.setdefault(f.address, len(addresses)),
            f.parameter,
            owners.setdefault(f.owner, len(owners)),
        ]
        for f in tensors
    ]


def recorded(rows: typing.Iterable[typing.Sequence[typing.Any]]) -> list[Found]:
    """What record() wrote, for match() in place of an engine's module."""
    return [
        Found(name, Key(*key), tuple(shape), dtype, tuple(strides), address, parameter, owner, None, None)
        for name, key, shape, dtype, strides, address, parameter, owner in rows
    ]
