"""The switch: windows of one pool of pages, and the arrows between the modes."""

from __future__ import annotations

import ctypes
import os
import threading
import types
import typing
import weakref

from . import _abi, _device, _dlpack, _library, _tensors, errors
from ._own import Own
from ._own import pointer as pointer_to
from .group import Group
from .layout import Layout, Storage, key_of, storage_of
from .model import DTYPES, weights_of
from .windows import Memory, Place, Source, Window

if typing.TYPE_CHECKING:
    import concurrent.futures

    import torch  # type: ignore[import-not-found,unused-ignore]

MODES = {
    _abi.TREADLE_TRAIN: "train",
    _abi.TREADLE_INFER: "infer",
    _abi.TREADLE_FORWARD: "forward",
    _abi.TREADLE_HOST: "host",
    _abi.TREADLE_LOST: "lost",
}
_UPDATE = -1  # in place of a mode: the next version in mode INFER
KEEPS = {"infer": _abi.TREADLE_KEEP_INFER, "host": _abi.TREADLE_KEEP_HOST}
_OFFLOADS = ("params", "grads", "grads=keep", "optimizer")


def infer_storages(switch: typing.Any, layout: Layout, rank: int) -> list[Storage]:
    """The storage tensors of a rank's infer window, where the plan of the switch has them."""
    plan = _library.value("treadle_switch_plan", switch)
    info = _library.sized(_abi.treadle_storage_info)
    made = []
    for number in range(_library.value("treadle_layout_storage_count", layout._use(), rank)):
        _library.call("treadle_plan_storage", plan, number, ctypes.byref(info))
        made.append(storage_of(info))
    return made


def _everywhere(ranks: int, *layouts: Layout) -> bool:
    """Do all ranks hold all of these?"""
    return all(
        _library.value("treadle_layout_holds", layout._use(), rank) for layout in layouts for rank in range(ranks)
    )


class Switch:
    """Takes weights from the layout they are trained in to the layout they generate in, and back. Collective: all ranks
    of the group make it, and take its arrows, in the same order.

    group, train, infer: the ranks and the two layouts, of one model.
    train_tensors, infer_tensors: tensors that exist already, of torch (DTensors, too), numpy or treadle: a module, a
        dict or pairs of names and tensors, of all or some storage tensors of this rank. They are read and written where
        they are, and their addresses stay; the rest lies in windows. Own train tensors are params that stay in mode
        INFER. Own infer tensors hold the weights in mode INFER, and undefined bytes while an arrow leads there.
    device: where windows lie: "cpu", host memory; "cuda:1", that CUDA device, as torch numbers it; "cuda", in turn by
        the rank's number on its node; "auto", "cuda" where there are CUDA devices, else "cpu"; or a torch.device.
    stream: on a CUDA device a stream of torch, or the handle of one, which must stay; what it was given before a call
        comes before the call's work. None: the default stream; and where torch is used its current one, of each call.
    cap: bytes of device memory beyond the larger window; 0: the larger of 256 MiB (CUDA: 1 GiB) and what it takes.
        budget: bytes that no rank may exceed.
    page: bytes of a page of the pool; 0: 2 MiB (CUDA: 4 MiB, and a multiple of 2 MiB).
    keep: where the weights are in mode INFER: "infer", in the infer weights alone, or "host", in host memory too, so
        that a failure loses nothing.
    alias: pages that hold the same in both layouts are shared.
    offload: what leaves the device in mode INFER: of "params", "grads" (dropped), "grads=keep" (to the host),
        "optimizer". None: params, unless a rank has own train tensors, or ranks hold one of the layouts alone (on=), or
        delta or double is on.
    grads_bytes, optimizer_bytes: windows for gradients and optimizer state, of this rank. host: mode HOST can be
        entered.
    kv_block_bytes: of a block of the KV cache, which gets the memory that is free in mode INFER; 0: no cache.
    timeout: seconds, of every wait.
    delta: between machines, an update sends only what has changed since the one before it, bit for bit. What was sent
        last is kept in host memory, and params stay. The stats dense_bytes and delta_bytes say what this rank would
        have sent without, and what it did.
    double: an update writes the next version beside the present one, which the engine has until the commit; the infer
        window needs twice the memory then. Params stay, and there are no own infer tensors and no handles. An update
        that fails leaves the old version, bound.
    undo_bytes: host memory that keeps what this rank's own infer tensors hold while an arrow overwrites them, so that a
        failed one leaves it there; at least their bytes, or 0. With as many more as the rest of the infer window has,
        on all ranks, a failed update leaves the old version, and valid is True.
    net_devices: network devices between machines, "eth0,eth1"; None: that of the address by which the ranks met.
    allow_unfilled: params that nobody has filled (see filled) go along as the zeros that they are. Without it a switch
        to INFER is refused by their names.
    bind, unbind: called in mode INFER with the infer window once its weights are whole, and before it is overwritten.
        What they raise fails the arrow on all ranks. unbind is called, too, after a bind that was interrupted
        (KeyboardInterrupt), by whatever line.

    Raises Refused, NoMemory with the numbers, Peer, Timeout."""

    def __init__(
        self,
        group: Group,
        train: Layout,
        infer: Layout,
        *,
        train_tensors: _tensors.Named | None = None,
        infer_tensors: _tensors.Named | None = None,
        device: str | torch.device = "cpu",
        stream: object = None,
        cap: int = 0,
        budget: int = 0,
        page: int = 0,
        keep: str = "infer",
        alias: bool = False,
        offload: typing.Iterable[str] | None = None,
        grads_bytes: int = 0,
        optimizer_bytes: int = 0,
        host: bool = False,
        kv_block_bytes: int = 0,
        timeout: float = 60,
        bind: typing.Callable[[Window], object] | None = None,
        unbind: typing.Callable[[], object] | None = None,
        net_devices: str | None = None,
        delta: bool = False,
        double: bool = False,
        allow_unfilled: bool = False,
        undo_bytes: int = 0,
    ) -> None:
        leaves = {offload} if isinstance(offload, str) else set(offload or ())
        self._device = _device.choose("Switch", device, stream, group)
        self._stream = stream  # it must stay
        if keep not in KEEPS:
            raise errors.Refused(f"Switch: keep is '{keep}', and must be 'infer' or 'host'")
        if strange := leaves - set(_OFFLOADS):
            raise errors.Refused(f"Switch: offload has '{min(strange)}', and knows {', '.join(_OFFLOADS)}")
        own = [
            given if given is None or _tensors.is_module(given) else _tensors.pairs(given)
            for given in (train_tensors, infer_tensors)
        ]
        if offload is None and own[0] in (None, []) and (delta or double or not _everywhere(group.size, train, infer)):
            leaves, offload = set(), ()
        choose = {True: _abi.TREADLE_ON, False: _abi.TREADLE_OFF}
        options = _library.sized(
            _abi.treadle_switch_options,
            page_bytes=page,
            cap_bytes=cap,
            budget_bytes=budget,
            timeout_seconds=timeout,
            grads_bytes=grads_bytes,
            optimizer_bytes=optimizer_bytes,
            offload_train_param=choose["params" in leaves] if offload is not None else _abi.TREADLE_DEFAULT,
            offload_train_grad=choose[bool(leaves & {"grads", "grads=keep"})],
            keep_grads="grads=keep" in leaves,
            net_devices=None if net_devices is None else _library.given("net_devices", net_devices),
            offload_train_optimizer=choose["optimizer" in leaves],
            keep=KEEPS[keep],
            host=host,
            kv_block_bytes=kv_block_bytes,
            alias=alias,
            delta=delta,
            double_infer=double,
            allow_unfilled=allow_unfilled,
            undo_bytes=undo_bytes,
            memory=self._device.memory(),
        )
        self._bind, self._unbind, self._callbacks = (
            bind,
            unbind,
            group._net.callbacks if group._net is not None else _library.Callbacks(),
        )
        self._inside = 0  # the thread in which a callback runs
        hooks = None
        if bind or unbind:
            hooks = self._hooks()
            options.engine = ctypes.pointer(hooks)
        self._layouts = train, infer
        self._group = group
        self._rank = group.rank
        self._words = f"a switch from {train.text} to {infer.text} ({id(self):#x})"
        self._own = self._find_own(own)
        arrays = [side.array() for side in self._own]
        options.own_train, options.own_train_count = pointer_to(arrays[0]), len(self._own[0].given)
        options.own_infer, options.own_infer_count = pointer_to(arrays[1]), len(self._own[1].given)
        self._windows: dict[int, Window] = {}
        self._started: threading.Thread | None = None  # that waits for a started arrow
        pointer = ctypes.c_void_p()
        _library.call(
            "treadle_switch_create",
            group._take(),
            train._use(),
            infer._use(),
            ctypes.byref(options),
            ctypes.byref(pointer),
            callbacks=self._callbacks,
        )
        self._object: _library.Object | None = _library.Object(
            pointer, "treadle_switch_destroy", group._object, train._object, infer._object, hooks
        )
        self._source = Source(self._object, group, self._words, self._device)

    def _find_own(self, own: typing.Sequence[_tensors.Named | None]) -> tuple[Own, Own]:
        """Where one rank's are refused, all ranks raise. Collective."""
        made: list[Own] = []
        refusal = None
        try:
            made = [
                Own(side, layout, self._rank, self._device, given)
                for side, layout, given in zip(("train", "infer"), self._layouts, own)
            ]
        except errors.Refused as error:
            refusal = error
        self._group._tell(refusal)
        return made[0], made[1]

    # ---- The engine ----

    def _hooks(self) -> typing.Any:
        """The callbacks. They do not keep the switch, which keeps them."""
        this = weakref.ref(self)

        def bind(_context: object, _window: object, _bytes: int) -> int:
            sw = this()
            return sw._call_back(lambda: sw._bind(sw.infer) if sw._bind is not None else None) if sw is not None else 0

        def unbind(_context: object = None) -> int:
            sw = this()
            return sw._call_back(sw._unbind) if sw is not None and sw._unbind is not None else 0

        kind = _abi.treadle_engine_hooks
        function = self._callbacks.function
        return _library.sized(
            kind,
            bind=function(_library.field(kind, "bind"), bind, undo=unbind),
            unbind=function(_library.field(kind, "unbind"), unbind),
        )

    def _call_back(self, call: typing.Callable[[], object]) -> int:
        self._inside = threading.get_ident()
        try:
            return self._callbacks.guard(call)
        finally:
            self._inside = 0

    # ---- Arrows ----

    def _use(self) -> ctypes.c_void_p:
        if self._object is None:
            raise errors.State("Switch: it is closed")
        return self._object.use("Switch")

    @typing.overload
    def _go(self, mode: int, wait: typing.Literal[True]) -> int: ...
    @typing.overload
    def _go(self, mode: int, wait: typing.Literal[False]) -> concurrent.futures.Future[int]: ...
    @typing.overload
    def _go(self, mode: int, wait: bool) -> int | concurrent.futures.Future[int]: ...

    def _go(self, mode: int, wait: bool) -> int | concurrent.futures.Future[int]:
        pointer = self._use()
        for own in self._own:
            own.check()
        self._device.order()
        entered = self._group._enter(self._words)
        if not wait:
            return self._start(mode, pointer, entered)
        try:
            _library.call(
                f"treadle_switch_to_{MODES[mode]}" if mode != _UPDATE else "treadle_switch_update",
                pointer,
                callbacks=self._callbacks,
            )
        finally:
            self._group._leave(entered)
        return int(_library.value("treadle_switch_version", pointer))

    def _start(self, mode: int, pointer: ctypes.c_void_p, entered: bool) -> concurrent.futures.Future[int]:
        import concurrent.futures

        future: concurrent.futures.Future[int] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()

        def finish() -> None:
            """It has this switch, so that neither it nor the tensors that the arrow reads and writes go before the
            arrow has ended."""
            try:
                _library.call("treadle_switch_wait", pointer, callbacks=self._callbacks)
            except BaseException as error:  # noqa: BLE001
                self._group._leave(entered)
                future.set_exception(error)
            else:
                self._group._leave(entered)
                future.set_result(int(_library.value("treadle_switch_version", pointer)))

        thread = threading.Thread(target=finish, name="treadle-switch", daemon=True)
        try:
            if mode == _UPDATE:
                _library.call("treadle_switch_start_update", pointer)
            else:
                _library.call("treadle_switch_start", pointer, mode)
        except BaseException:
            self._group._leave(entered)
            raise
        self._started = thread
        try:
            thread.start()
        except BaseException:  # nobody else would wait for it
            _library.value("treadle_switch_cancel", pointer)
            finish()
            raise
        return future

    @typing.overload
    def to_infer(self, *, wait: typing.Literal[True] = True) -> int: ...
    @typing.overload
    def to_infer(self, *, wait: typing.Literal[False]) -> concurrent.futures.Future[int]: ...
    @typing.overload
    def to_infer(self, *, wait: bool) -> int | concurrent.futures.Future[int]: ...

    def to_infer(self, *, wait: bool = True) -> int | concurrent.futures.Future[int]:
        """To mode INFER: every rank has written every byte of its infer window once, and only then do all have the new
        version, which is returned. wait=False: in a thread beside the caller; a Future of the version. Raises Peer,
        Timeout, Cancelled, Different, State; then the old state stands (keep="host"; see treadle.h for
        keep="infer")."""
        return self._go(_abi.TREADLE_INFER, wait)

    @typing.overload
    def to_train(self, *, wait: typing.Literal[True] = True) -> int: ...
    @typing.overload
    def to_train(self, *, wait: typing.Literal[False]) -> concurrent.futures.Future[int]: ...
    @typing.overload
    def to_train(self, *, wait: bool) -> int | concurrent.futures.Future[int]: ...

    def to_train(self, *, wait: bool = True) -> int | concurrent.futures.Future[int]:
        """To mode TRAIN: params, gradients (undefined, unless kept) and optimizer state are on the device."""
        return self._go(_abi.TREADLE_TRAIN, wait)

    @typing.overload
    def to_forward(self, *, wait: typing.Literal[True] = True) -> int: ...
    @typing.overload
    def to_forward(self, *, wait: typing.Literal[False]) -> concurrent.futures.Future[int]: ...
    @typing.overload
    def to_forward(self, *, wait: bool) -> int | concurrent.futures.Future[int]: ...

    def to_forward(self, *, wait: bool = True) -> int | concurrent.futures.Future[int]:
        """To mode FORWARD: params alone, read-only, for log-probabilities."""
        return self._go(_abi.TREADLE_FORWARD, wait)

    @typing.overload
    def to_host(self, *, wait: typing.Literal[True] = True) -> int: ...
    @typing.overload
    def to_host(self, *, wait: typing.Literal[False]) -> concurrent.futures.Future[int]: ...
    @typing.overload
    def to_host(self, *, wait: bool) -> int | concurrent.futures.Future[int]: ...

    def to_host(self, *, wait: bool = True) -> int | concurrent.futures.Future[int]:
        """To mode HOST, made possible by host=True: nothing is on the device."""
        return self._go(_abi.TREADLE_HOST, wait)

    @typing.overload
    def update(self, *, wait: typing.Literal[True] = True) -> int: ...
    @typing.overload
    def update(self, *, wait: typing.Literal[False]) -> concurrent.futures.Future[int]: ...
    @typing.overload
    def update(self, *, wait: bool) -> int | concurrent.futures.Future[int]: ...

    def update(self, *, wait: bool = True) -> int | concurrent.futures.Future[int]:
        """To the next version in mode INFER, for params that stay: those of trainers with ranks of their own (on= in a
        layout's text), own train tensors, or offload=[]. While it runs params may not be written, and the infer window
        may not be used. The version, which grows by one. Raises State in another mode, or where params leave the
        device. After a failure `valid` says whether the old version is there."""
        return self._go(_UPDATE, wait)

    @typing.overload
    def next_version(self, *, wait: typing.Literal[True] = True) -> int: ...
    @typing.overload
    def next_version(self, *, wait: typing.Literal[False]) -> concurrent.futures.Future[int]: ...
    @typing.overload
    def next_version(self, *, wait: bool) -> int | concurrent.futures.Future[int]: ...

    def next_version(self, *, wait: bool = True) -> int | concurrent.futures.Future[int]:
        """The next version of the infer weights, whichever arrow leads there: update() in mode INFER, else to_infer().
        All ranks are in one mode, so that they take the same arrow. Returns and raises what that does."""
        return self.update(wait=wait) if self.mode == "infer" else self.to_infer(wait=wait)

    def cancel(self) -> bool:
        """Asks the arrow that runs to end, from any thread. It ends as Cancelled here, and as Peer on the other ranks.
        False: none runs."""
        return int(_library.value("treadle_switch_cancel", self._use())) == 0

    def load(self, weights: str | None = None) -> None:
        """Fills the train window, and own train tensors, with the values of the model's weights. weights: "files": of
        its checkpoint; "random": made up, hashes of tensor and index; None: as the model was opened (Model). Local.
        Raises Refused for a model that has none, with what its folder has in their place, and for own train tensors
        that are read-only; State in another mode than TRAIN, and while an arrow runs."""
        source = weights_of("load", weights)
        if self._group._user == self._words:
            raise errors.State(f"load: rank {self._rank}: an arrow of this switch runs: wait for it first")
        if self.mode != "train":
            raise errors.State(f"load: in mode {self.mode}; the train window is filled in mode train")
        self._device.order()
        window = _library.value("treadle_switch_window", self._use(), _abi.TREADLE_PARAMS, None)
        if not self._own[0].given:
            _library.call("treadle_layout_load_weights", self._layouts[0]._use(), self._rank, source, window)
            return
        for given in self._own[0].given.values():
            if not given.writable:
                raise errors.Refused(f"load: rank {self._rank}: own train tensor {given.name!r} is read-only")
        size = self._layouts[0].window_bytes(self._rank)  # beside, then to where each tensor lies
        room = ctypes.create_string_buffer(max(1, size))
        _library.call("treadle_layout_load_weights", self._layouts[0]._use(), self._rank, source, room)
        for storage in self._layouts[0].storages(self._rank):
            self._source.write(
                _abi.TREADLE_PARAMS, storage.offset_bytes, storage.bytes, ctypes.addressof(room) + storage.offset_bytes
            )
        self.filled()

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        dtype: str | None = None,
        weights_only: bool = False,
        companions: str | os.PathLike[str] | None = None,
    ) -> None:
        """Writes the weights of the train window, and own train tensors, as a Hugging Face folder, which is missing or
        empty before, and there when it is whole. In mode TRAIN. Collective.

        dtype: of the files, "float32", "bfloat16" or "float16"; None: the layout's. weights_only: without config.json,
        the tokenizer and the like, which are otherwise copied from beside the model's weights, or from the folder
        `companions`. Where a rank has own train tensors, each rank copies its weights to host memory first.

        Raises Refused as treadle_layout_save does, and where something was never filled; State in another mode, and
        while an arrow runs; Peer where another rank fails."""
        types = {word: number for number, word in DTYPES.items()}
        if dtype is not None and dtype not in types:
            raise errors.Refused(f"save: dtype is {dtype!r}, and must be 'float32', 'bfloat16' or 'float16'")
        options = _library.sized(
            _abi.treadle_save_options,
            dtype=_abi.TREADLE_DTYPE_NONE if dtype is None else types[dtype],
            weights_only=weights_only,
            companions=None if companions is None else _library.given("companions", companions),
        )
        self._source.check_train("save")
        path = _library.given("folder", folder)
        window = _library.value("treadle_switch_window", self._use(), _abi.TREADLE_PARAMS, None)
        if any(self._group.gather(b"own" if self._own[0].given else b"")):
            self.digest()  # refused where something was never filled, which a copy does not show
            window = self._copy_of_train()
        self._device.order()
        entered = self._group._enter(self._words)
        try:
            _library.call(
                "treadle_layout_save",
                self._group._use(),
                self._layouts[0]._use(),
                window,
                path,
                ctypes.byref(options),
                callbacks=self._callbacks,
            )
        finally:
            self._group._leave(entered)

    def _copy_of_train(self) -> typing.Any:
        """The train window in host memory, with own train tensors in their places. Where one rank fails, all ranks
        raise. Collective."""
        refusal = None
        window = ctypes.create_string_buffer(max(1, self._layouts[0].window_bytes(self._rank)))
        try:
            self._own[0].check()
            for storage in self._layouts[0].storages(self._rank):
                to = ctypes.addressof(window) + storage.offset_bytes
                self._source.read(_abi.TREADLE_PARAMS, storage.offset_bytes, storage.bytes, to)
        except errors.Error as error:
            refusal = error
        self._group._tell(refusal)
        return window

    def filled(self) -> None:
        """Says that all of the train window is filled, for who writes it by addresses. What load() fills, own train
        tensors, and tensors of which torch(), numpy() or DLPack made one are given without it. A switch to INFER or
        FORWARD, an update and digest() are refused while others are left: they are zeros, which nobody has written.
        Local."""
        _library.call("treadle_switch_filled", self._use())

    def close(self) -> None:
        """Ends the switch; an arrow that runs is cancelled. The memory goes when the last tensor that was made of it is
        gone. Raises State in a callback of an arrow. Local."""
        if self._object is None:
            return
        if self._inside == threading.get_ident():
            raise errors.State(
                f"close: rank {self._rank}: it is called in a callback of this switch's arrow, which has to end first"
            )
        if self._object.is_here:
            pointer = self._object.use("Switch")
            _library.value("treadle_switch_cancel", pointer)
            if self._started is not None and self._started is not threading.current_thread():
                self._started.join()
            _library.value("treadle_switch_withdraw", pointer)
        self._source.closed = True
        self._windows = {}
        self._object = None
        _dlpack.reap()

    def __enter__(self) -> Switch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    # ---- What it says ----

    @property
    def device(self) -> str:
        """Where the windows lie: "cpu" or "cuda:1"."""
        return self._device.text

    @property
    def mode(self) -> str:
        """ "train", "infer", "forward", "host" or "lost"."""
        return MODES[_library.value("treadle_switch_mode", self._use())]

    @property
    def version(self) -> int:
        """How many switches to INFER were committed."""
        return int(_library.value("treadle_switch_version", self._use()))

    @property
    def valid(self) -> bool:
        """False in mode "lost", while an update writes the infer window, and after one that failed and left no version
        in it."""
        return bool(_library.value("treadle_switch_is_valid", self._use()))

    def digest(self) -> int:
        """A sum over all elements of the weights, each once, of a hash of tensor, index and value: the same in every
        layout. Collective."""
        answer = ctypes.c_uint64()
        self._device.order()
        self._group._take(self._words)
        _library.call("treadle_switch_digest", self._use(), ctypes.byref(answer))
        return answer.value

    @property
    def stats(self) -> dict[str, float]:
        """Figures of the last switch on this rank, with the names of treadle_switch_stats: seconds and bytes."""
        stats = _library.sized(_abi.treadle_switch_stats)
        _library.value("treadle_switch_get_stats", self._use(), ctypes.byref(stats))
        return {name: getattr(stats, name) for name, *_ in stats._fields_ if name != "struct_size"}

    # ---- Windows ----

    def _window(self, which: int, writable: bool) -> Window:
        found = self._windows.get(which)
        if found is None:
            found = self._windows[which] = self._make_window(which, writable)
        return found

    def _make_window(self, which: int, writable: bool) -> Window:
        pointer = self._use()
        count = ctypes.c_size_t()
        address = _library.value("treadle_switch_window", pointer, which, ctypes.byref(count)) or 0
        if which == _abi.TREADLE_PARAMS:
            storages = self._layouts[0].storages(self._rank)
        elif which == _abi.TREADLE_INFER_PARAMS:
            storages = infer_storages(pointer, self._layouts[1], self._rank)
        else:
            whole = Memory(self._object, address, (count.value,), "uint8", writable, Place(self._source, which, 0))
            return Window(
                {"bytes": whole} if count.value else {}, count.value, address, self._device, self._source, which
            )
        side = which == _abi.TREADLE_INFER_PARAMS
        own = self._own[side].given
        entries = {}
        for number, s in enumerate(storages):
            at = _library.value("treadle_switch_tensor", pointer, which, number, None) or 0
            place = Place(self._source, which, s.offset_bytes, number, number in own)
            if number in own:  # the caller's, in all modes
                entries[key_of(s)] = Memory(
                    (self._object, own[number].tensor), at, s.shape, s.dtype, own[number].writable, place
                )
            else:
                entries[key_of(s)] = Memory(self._object, at, s.shape, s.dtype, writable, place)
        return Window(entries, count.value, address, self._device, self._source, which, self._layouts[side])

    @property
    def train(self) -> Window:
        """Parameters in the training layout. Writable in mode TRAIN. As grads and optimizer: tensors that were made of
        it may be used, and new ones made, in modes in which its bytes are on the device (Memory)."""
        return self._window(_abi.TREADLE_PARAMS, True)

    @property
    def infer(self) -> Window:
        """Parameters in the inference layout; read-only. It holds the weights in mode INFER; tensors may be made of it
        before, since addresses stay."""
        return self._window(_abi.TREADLE_INFER_PARAMS, False)

    @property
    def grads(self) -> Window:
        """Gradients: grads_bytes, as the trainer divides them."""
        return self._window(_abi.TREADLE_GRADS, True)

    @property
    def optimizer(self) -> Window:
        """Optimizer state: optimizer_bytes."""
        return self._window(_abi.TREADLE_OPTIMIZER, True)

    @property
    def kv(self) -> Window:
        """The KV cache, blocks of kv_block_bytes. It may be used in mode INFER; tensors may be made of it before."""
        return self._window(_abi.TREADLE_KV, True)

    def __repr__(self) -> str:
        if self._object is None:
            return "<treadle.Switch, closed>"
        return (
            f"<treadle.Switch {self._layouts[0].text} to {self._layouts[1].text}, mode {self.mode}, "
            f"version {self.version}>"
        )
