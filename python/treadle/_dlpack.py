"""DLPack, by which array libraries hand each other memory (https://dmlc.github.io/dlpack): capsules of both
versions."""

from __future__ import annotations

import ctypes
import itertools
import sys
import typing

# kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLBool 6, kDLFloat8_e4m3fn 10; and bits.
_CODES = {
    "float64": (2, 64),
    "float32": (2, 32),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "int64": (0, 64),
    "int32": (0, 32),
    "uint8": (1, 8),
    "bool": (6, 8),
    "float8_e4m3fn": (10, 8),
}
_READ_ONLY = 1
_VERSION = (1, 1)


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class _Given:
    """What a capsule needs as long as somebody may use it."""

    __slots__ = ("capsule", "needs")

    def __init__(self, needs: tuple[object, ...]) -> None:
        self.capsule: object = None
        self.needs = needs


_living: dict[int, _Given] = {}  # by the address of the struct
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _forget(address: int) -> None:
    _living.pop(address, None)


_forget_function = _DELETER(_forget)
_names = {_Managed: b"dltensor", _Versioned: b"dltensor_versioned"}
_new = ctypes.pythonapi.PyCapsule_New
_new.argtypes, _new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int


def _references(given: _Given) -> int:
    return sys.getrefcount(given.capsule)


_probe = _Given(())
_probe.capsule = object()
_OURS = _references(_probe)  # what it says of an object that nobody else has


def reap() -> None:
    """Forgets capsules that nobody took. They have no destructor: a consumer that refuses a tensor drops its capsule
    with its exception set, as numpy does with a bf16 tensor, and then no step of Python may run. So the capsule is kept
    here until it is found that nobody else has it."""
    for address, given in list(_living.items()):
        if given.capsule is not None and _references(given) == _OURS:
            if any(_is_valid(given.capsule, name) for name in _names.values()):
                _living.pop(address, None)
            else:  # taken: what has been made of it calls the deleter
                given.capsule = None


def capsule(
    owner: object,
    device: tuple[int, int],
    address: int,
    shape: tuple[int, ...],
    dtype: str,
    read_only: bool,
    max_version: tuple[int, int] | None,
) -> object:
    """A capsule of a row-major tensor at `address` of a device, type and number; `owner` lives as long as who takes it
    wants."""
    versioned = max_version is not None and max_version[0] >= 1
    if read_only and not versioned:
        raise BufferError(
            "the window is read-only, which DLPack can say from version 1.0 on: ask for that, or use torch() or numpy()"
        )
    strides = list(itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=1))[::-1] if shape else []
    sizes = (ctypes.c_int64 * len(shape))(*shape)
    steps = (ctypes.c_int64 * len(shape))(*strides)
    kind: typing.Any = _Versioned if versioned else _Managed
    made = kind()
    tensor = made.tensor
    tensor.data, tensor.ndim, tensor.lanes = address, len(shape), 1
    tensor.device_type, tensor.device_id = device
    tensor.code, tensor.bits = _CODES[dtype]
    tensor.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    made.deleter = ctypes.cast(_forget_function, ctypes.c_void_p).value
    if versioned:
        made.major, made.minor = _VERSION
        made.flags = _READ_ONLY if read_only else 0
    reap()
    where = ctypes.addressof(made)
    given = _living[where] = _Given((owner, made, sizes, steps))
    made_capsule: object = _new(where, _names[kind], None)
    given.capsule = made_capsule
    return made_capsule  # which another thread sees that we have
