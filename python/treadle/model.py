"""Models: which tensors there are."""

from __future__ import annotations

import ctypes
import os
import typing

from . import _abi, _library, errors

#: treadle's types of elements, by torch's names.
DTYPES = {
    _abi.TREADLE_FP32: "float32",
    _abi.TREADLE_BF16: "bfloat16",
    _abi.TREADLE_FP16: "float16",
    _abi.TREADLE_FP8_E4M3: "float8_e4m3fn",
    _abi.TREADLE_INT32: "int32",
}
#: Where the values of weights come from, by name.
WEIGHTS = {"files": _abi.TREADLE_WEIGHTS_FILES, "random": _abi.TREADLE_WEIGHTS_RANDOM}
#: What follows the last norm, by name.
HEADS = {"lm": _abi.TREADLE_HEAD_LM, "score": _abi.TREADLE_HEAD_SCORE}
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "int32": 4}


class Tensor(typing.NamedTuple):
    """A tensor of a model, by Hugging Face's name."""

    name: str
    shape: tuple[int, ...]
    dtype: str  #: torch's name: "bfloat16"
    layer: int  #: the decoder layer, -1 outside
    same_as: str | None  #: tied: the tensor whose values it has


def weights_of(what: str, weights: str | None) -> int:
    """The number of "files", "random" or None."""
    if weights is None:
        return _abi.TREADLE_WEIGHTS_NONE
    if weights not in WEIGHTS:
        raise errors.Refused(f"{what}: weights is {weights!r}, and must be 'files', 'random' or None")
    return WEIGHTS[weights]


def head_of(what: str, head: str) -> int:
    """The number of "lm" or "score"."""
    if head not in HEADS:
        raise errors.Refused(f"{what}: head is {head!r}, and must be 'lm' or 'score'")
    return HEADS[head]


class Model:
    """The tensors of a model.

    path: a Hugging Face folder (config.json and safetensors) or a config.json. Names, shapes and types of a checkpoint
        are compared with the family's. A folder without weights will do for layouts and plans; a switch is not loaded
        with it.
    families: a folder of family files, instead of those built in.
    scale_down: a smaller model of the same structure, whose weights are made up, with at most this many elements; 0:
        the model itself.
    weights: "files": refused where there are none; "random": made up, whatever lies beside the config; None: files of a
        folder, made up for a config.json.
    head: "lm", that of a language model; "score": one number for each token, as a critic or a reward model has it
        (score.weight, score.bias).
    score_zeros: files without score.weight mean zeros, as for a critic; else they are refused.
    Raises Refused with the file, the tensor and the rule."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        families: str | os.PathLike[str] | None = None,
        *,
        scale_down: int = 0,
        weights: str | None = None,
        head: str = "lm",
        score_zeros: bool = False,
    ) -> None:
        options = _library.sized(
            _abi.treadle_model_options,
            families=_library.given("families", families) if families is not None else None,
            scale_down=scale_down,
            weights=weights_of("Model", weights),
            head=head_of("Model", head),
            score_zeros=score_zeros,
        )
        pointer = ctypes.c_void_p()
        _library.call(
            "treadle_model_open",
            _library.given("the path of the model", path),
            ctypes.byref(options),
            ctypes.byref(pointer),
        )
        self._object = _library.Object(pointer, "treadle_model_close")
        self._tensors: list[Tensor] | None = None

    def _use(self) -> ctypes.c_void_p:
        return self._object.use("Model")

    @property
    def family(self) -> str:
        """The name of the family file that covers it: "llama"."""
        return _library.text(_library.value("treadle_model_family", self._use()))

    @property
    def elems(self) -> int:
        """Elements, each canonical one once."""
        return int(_library.value("treadle_model_elems", self._use()))

    @property
    def bytes(self) -> int:
        """Bytes of these elements."""
        return int(_library.value("treadle_model_bytes", self._use()))

    @property
    def has_weights(self) -> bool:
        """Was it opened with a checkpoint?"""
        return bool(_library.value("treadle_model_has_weights", self._use()))

    @property
    def weights(self) -> str | None:
        """Where values of its weights come from: "files", "random" (made up), or None: there are none."""
        source = _library.value("treadle_model_weights", self._use())
        return next((name for name, number in WEIGHTS.items() if number == source), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was taken in another way than its config or its files say, a line each: of what the command warns when
        it opens the model."""
        info = _library.sized(_abi.treadle_model_info)
        _library.value("treadle_model_get_info", self._use(), ctypes.byref(info))
        return tuple(line for line in _library.text(info.notes).split("\n") if line)

    @property
    def tensors(self) -> list[Tensor]:
        """All names of tensors: each expert has one, and tied tensors come last."""
        if self._tensors is None:
            made = []
            info = _library.sized(_abi.treadle_tensor_info)
            for number in range(_library.value("treadle_model_tensor_count", self._use())):
                _library.call("treadle_model_tensor", self._use(), number, ctypes.byref(info))
                same_as = info.same_as
                made.append(
                    Tensor(
                        _library.text(info.name),
                        tuple(info.shape[: info.ndim]),
                        DTYPES[info.dtype],
                        info.layer,
                        _library.text(same_as) if same_as is not None else None,
                    )
                )
            self._tensors = made
        return list(self._tensors)

    def __repr__(self) -> str:
        return f"<treadle.Model {self.family}, {self.elems:,} elements, {self.bytes:,} bytes>"
