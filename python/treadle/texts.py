"""Texts to tokens and back, and messages to texts, as the model's own tokenizer and chat template do it.

    tokenizer, chat = treadle.Tokenizer("path/to/hf-model"), treadle.Chat("path/to/hf-model")
    text = chat.render([{"role": "user", "content": "How many?"}])
    ids = tokenizer.encode(text, special=False)  # the template writes the special tokens itself
    tokenizer.decode(ids)

docs/tokenizers.md and docs/chats.md say what is read."""

from __future__ import annotations

import array
import ctypes
import datetime
import json
import os
import tempfile
import typing

from . import _abi, _columns, _library, errors

if typing.TYPE_CHECKING:
    from .batch import Batch


class Token(typing.NamedTuple):
    """A token of a tokenizer."""

    id: int
    text: str  #: as the tokenizer writes it: "\u0120the", "<0x0A>"
    added: bool  #: it is found as a whole in texts, before they are cut into words
    special: bool  #: decoding can leave it out


class Tokenizer:
    """The tokenizer of a model. It never changes: any number of threads may use it.

    path: a folder with tokenizer.json, with vocab.json and merges.txt, with a *.bin file of llama2.c, or with char_ords
        in tokenizer_config.json; or one of these files. Special tokens are those of tokenizer_config.json beside it.

    Raises Refused for what treadle does not know of a tokenizer, by name; System; State when it is closed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        pointer = ctypes.c_void_p()
        given = _library.given("the path of the tokenizer", path)
        _library.call("treadle_tokenizer_open", given, ctypes.byref(pointer))
        self._object: _library.Object | None = _library.Object(pointer, "treadle_tokenizer_close")

    def _use(self, what: str) -> ctypes.c_void_p:
        if (here := self._object) is None:
            raise errors.State(f"{what}: the tokenizer is closed")
        return here.use(what)

    def close(self) -> None:
        """Ends it, when the calls of other threads have returned."""
        self._object = None

    def __enter__(self) -> Tokenizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- Texts ----

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text. special: adds the special tokens that the tokenizer puts around a text; special tokens
        that are written in the text are found in either case."""
        given = text.encode("utf-8", "surrogatepass")
        ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        pointer = self._use("encode")
        _library.call(
            "treadle_tokenizer_encode", pointer, given, len(given), special, ctypes.byref(ids), ctypes.byref(count)
        )
        try:
            return ids[: count.value]
        finally:
            _library.free(ids)

    def decode(self, ids: typing.Iterable[int], *, special: bool = True) -> str:
        """The text of ids: a list, an array or a tensor of one dimension. Bytes that make no character are U+FFFD.
        special: keeps the texts of special tokens."""
        try:
            numbers = array.array("i", _columns.listed(ids))
        except (TypeError, ValueError, OverflowError) as error:
            raise errors.Refused(f"decode: ids must be whole numbers of 32 bits: {error}") from error
        given = (ctypes.c_int32 * max(1, len(numbers))).from_buffer(numbers or array.array("i", [0]))
        text, count = ctypes.c_char_p(), ctypes.c_size_t()
        pointer = self._use("decode")
        _library.call(
            "treadle_tokenizer_decode", pointer, given, len(numbers), special, ctypes.byref(text), ctypes.byref(count)
        )
        return _taken(text, count)

    def decode_rows(self, batch: Batch, column: str, to: str) -> None:
        """Adds a column of texts to a batch: of each row, the text of its ids in `column`, without the texts of special
        tokens. Raises Refused, by row, for ids without a token."""
        _library.call(
            "treadle_tokenizer_decode_rows",
            self._use("decode_rows"),
            batch._use("decode_rows"),
            _library.given("column", column),
            _library.given("to", to),
        )

    # ---- Tokens ----

    @property
    def count(self) -> int:
        """The largest id plus one. Some ids below it may have no token."""
        return int(_library.value("treadle_tokenizer_count", self._use("count")))

    def token(self, id: int) -> Token:  # noqa: A002
        """Facts about a token. Raises Refused for an id without one."""
        info = _library.sized(_abi.treadle_token_info)
        pointer = self._use("token")
        if not hasattr(id, "__index__") or not -(2**31) <= (number := id.__index__()) < 2**31:
            raise errors.Refused(f"token: {id!r} is not an id, a whole number of 32 bits")
        _library.call("treadle_tokenizer_token", pointer, number, ctypes.byref(info))
        place = ctypes.addressof(info) + _abi.treadle_token_info.text.offset  # its text may have zeros inside
        text = ctypes.string_at(ctypes.c_void_p.from_address(place).value or 0, info.bytes)
        return Token(number, _library.text(text), info.added, info.special)

    def find(self, text: str) -> int | None:
        """The id of the token with this text, as the tokenizer writes it. None: no token has it."""
        given = text.encode("utf-8", "surrogateescape" if _library.is_text(text) else "replace")
        return _id(_library.value("treadle_tokenizer_find", self._use("find"), given, len(given)))

    def _special(self, which: int) -> int | None:
        return _id(_library.value("treadle_tokenizer_special", self._use("special"), which))

    @property
    def bos(self) -> int | None:
        """The id of the token that starts a text: bos_token of tokenizer_config.json. None: there is none."""
        return self._special(_abi.TREADLE_BOS)

    @property
    def eos(self) -> int | None:
        """The id of the token that ends a text: eos_token."""
        return self._special(_abi.TREADLE_EOS)

    @property
    def pad(self) -> int | None:
        """The id of pad_token."""
        return self._special(_abi.TREADLE_PAD)

    @property
    def unknown(self) -> int | None:
        """The id of unk_token."""
        return self._special(_abi.TREADLE_UNKNOWN)

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("a treadle.Tokenizer cannot be pickled: give its path to the other process, and open it there")

    def __repr__(self) -> str:
        return "<treadle.Tokenizer, closed>" if self._object is None else f"<treadle.Tokenizer of {self.count} ids>"


class Chat:
    """The chat template of a model: Jinja, as transformers runs it. It never changes: any number of threads may use it.

    path: a folder (chat_template.jinja, tokenizer_config.json or chat_template.json), a file tokenizer_config.json, or
        any other file, whose text is the template. tokenizer_config.json has the special tokens, too, which are
        variables of the template.
    template: the text of a template in place of a path. Special tokens are then given to render() where it names them.

    Raises Refused with file, line and name for what a template may not use; System; State when it is closed."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, template: str | None = None) -> None:
        if (path is None) == (template is None):
            raise errors.Refused("Chat: give a path or a template, one of the two")
        if template is None:
            self._object: _library.Object | None = _open_chat(typing.cast("str | os.PathLike[str]", path))
            return
        with tempfile.TemporaryDirectory(prefix="treadle-") as folder:  # the library reads templates from files
            file = os.path.join(folder, "template")
            with open(file, "wb") as opened:
                opened.write(template.encode("utf-8", "surrogatepass"))
            self._object = _open_chat(file)

    def _use(self, what: str) -> ctypes.c_void_p:
        if (here := self._object) is None:
            raise errors.State(f"{what}: the chat is closed")
        return here.use(what)

    def close(self) -> None:
        """Ends it, when the calls of other threads have returned."""
        self._object = None

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def render(
        self,
        messages: typing.Sequence[typing.Mapping[str, typing.Any]],
        add_generation_prompt: bool | None = None,
        tools: typing.Sequence[typing.Mapping[str, typing.Any]] | None = None,
        *,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        now: datetime.datetime | None = None,
        **variables: typing.Any,
    ) -> str:
        """The text of messages, each a dict with a role.

        add_generation_prompt: the text ends where the model's answer begins; None: it does, unless
            continue_final_message.
        continue_final_message: it ends in the last message, for the model to continue.
        chat_template: the name of one of several templates of the model, or the text of another one.
        now: what strftime_now sees; None: the clock's local time.
        variables: other variables of the template, such as documents or enable_thinking.

        Raises Refused with the line of the template, also where the template raises an exception, with its words."""
        if add_generation_prompt is None:
            add_generation_prompt = not continue_final_message
        given = {
            "add_generation_prompt": add_generation_prompt,
            "tools": tools,
            "continue_final_message": continue_final_message,
            **({} if chat_template is None else {"chat_template": chat_template}),
            **variables,
        }
        options = _library.sized(
            _abi.treadle_chat_options,
            variables=_json("variables", given),
            now=None if now is None else now.strftime("%Y-%m-%dT%H:%M:%S").encode(),
        )
        text, count = ctypes.c_char_p(), ctypes.c_size_t()
        _library.call(
            "treadle_chat_render",
            self._use("render"),
            _json("messages", messages),
            ctypes.byref(options),
            ctypes.byref(text),
            ctypes.byref(count),
        )
        return _taken(text, count)

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("a treadle.Chat cannot be pickled: give its path to the other process, and open it there")

    def __repr__(self) -> str:
        return f"<treadle.Chat{', closed' if self._object is None else ''}>"


def _open_chat(path: str | os.PathLike[str]) -> _library.Object:
    pointer = ctypes.c_void_p()
    _library.call("treadle_chat_open", _library.given("the path of the chat template", path), ctypes.byref(pointer))
    return _library.Object(pointer, "treadle_chat_close")


def _json(what: str, value: object) -> bytes:
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.Refused(f"render: {what}: {error}") from error


def _taken(text: ctypes.c_char_p, count: ctypes.c_size_t) -> str:
    """A text that the library has made, and gives away."""
    try:
        return ctypes.string_at(text, count.value).decode()
    finally:
        _library.free(text)


def _id(found: int) -> int | None:
    return None if found < 0 else int(found)
