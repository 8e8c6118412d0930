"""Tokenizers and chats: as the library has them, from any thread; what is refused."""

import datetime
import json
import os
import pathlib
import pickle
import tempfile
import threading
import unittest

import numpy

import treadle

TOKENIZER = {
    "model": {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3, "\u00c3": 4, "\u00a9": 5, "\u0100": 6},
        "merges": ["a b"],
    },
    "added_tokens": [{"id": 7, "content": "<s>", "special": True}, {"id": 8, "content": "<x>", "special": False}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "decoder": {"type": "ByteLevel"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}},
    },
}
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if tools %}{{ tools | length }} tools\n{% endif %}{% if shout %}LOUD\n{% endif %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
HELLO = [{"role": "user", "content": "hi\0é"}]


class TestTexts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="treadle-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        config = {"bos_token": "<s>", "eos_token": "<x>", "chat_template": TEMPLATE}
        (self.folder / "tokenizer_config.json").write_text(json.dumps(config))

    def refused(self, words, call, *arguments, **named):
        with self.assertRaisesRegex(treadle.Refused, words):
            call(*arguments, **named)

    # ---- Tokenizers ----

    def test_encode_and_decode(self):
        tokenizer = treadle.Tokenizer(self.folder)
        self.assertEqual(tokenizer.encode("abé a<x>\0"), [7, 2, 4, 5, 3, 0, 8, 6])
        self.assertEqual(tokenizer.encode("abé a<s>", special=False), [2, 4, 5, 3, 0, 7])
        self.assertEqual(tokenizer.encode("", special=False), [])
        self.assertEqual(tokenizer.decode([7, 2, 4, 5, 8, 6]), "<s>abé<x>\0")
        self.assertEqual(tokenizer.decode([7, 2, 4, 5, 8], special=False), "abé<x>")
        self.assertEqual(tokenizer.decode([4]), "\ufffd")
        self.assertEqual(tokenizer.decode([]), "")
        for ids in (numpy.array([2, 0]), numpy.array([2, 0], numpy.int32), (2, 0), iter([2, 0])):
            self.assertEqual(tokenizer.decode(ids), "aba")

    def test_tokens(self):
        tokenizer = treadle.Tokenizer(os.fspath(self.folder / "tokenizer.json"))
        self.assertEqual(tokenizer.count, 9)
        self.assertEqual((tokenizer.bos, tokenizer.eos, tokenizer.pad, tokenizer.unknown), (7, 8, None, None))
        self.assertEqual(tokenizer.token(3), treadle.Token(3, "\u0120", False, False))
        self.assertEqual(tokenizer.token(numpy.int64(7)), treadle.Token(7, "<s>", True, True))
        self.assertEqual(tokenizer.token(8), (8, "<x>", True, False))
        self.assertEqual((tokenizer.find("ab"), tokenizer.find("\u0120"), tokenizer.find("abc\ud800")), (2, 3, None))
        self.assertEqual(repr(tokenizer), "<treadle.Tokenizer of 9 ids>")

    def test_tokens_with_zeros(self):
        config = {"char_ords": [0, 97], "model_max_length": 16, "chat_template": TEMPLATE}
        (self.folder / "tokenizer.json").unlink()
        (self.folder / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = treadle.Tokenizer(self.folder)
        ids = tokenizer.encode("a\0a", special=False)
        self.assertEqual([tokenizer.token(id).text for id in ids], ["a", "\0", "a"])
        self.assertEqual(tokenizer.find("\0"), ids[1])

    def test_tokenizer_refused(self):
        tokenizer = treadle.Tokenizer(self.folder)
        self.refused("9", tokenizer.decode, [9])
        self.refused("10", tokenizer.decode, [10])
        self.refused("whole numbers", tokenizer.decode, [1.5])
        self.refused("whole numbers", tokenizer.decode, [2**31])
        self.refused("whole numbers", tokenizer.decode, 3)
        self.refused("9", tokenizer.token, 9)
        self.refused("-1", tokenizer.token, -1)
        self.refused("4294967296 is not an id", tokenizer.token, 2**32)
        self.refused("'a' is not an id", tokenizer.token, "a")
        self.refused("UTF-8", tokenizer.encode, "a\udcff")
        self.refused("zero character", treadle.Tokenizer, "a\0b")
        with self.assertRaisesRegex(treadle.Error, "nothing"):
            treadle.Tokenizer(self.folder / "nothing")

    # ---- Chats ----

    def test_render(self):
        chat = treadle.Chat(self.folder)
        self.assertEqual(chat.render(HELLO), "<s>user: hi\0é\nassistant: ")
        self.assertEqual(chat.render(HELLO, False), "<s>user: hi\0é\n")
        self.assertEqual(chat.render(HELLO, tools=[{}, {}], shout=True), "<s>user: hi\0é\n2 tools\nLOUD\nassistant: ")
        begun = [*HELLO, {"role": "assistant", "content": "I"}]
        self.assertEqual(chat.render(begun, continue_final_message=True), "<s>user: hi\0é\nassistant: I")
        self.assertEqual(chat.render(HELLO, chat_template="{{ messages[0].role }}{{ eos_token }}"), "user<x>")

    def test_template(self):
        chat = treadle.Chat(template="{{ strftime_now('%d.%m.%Y') }}{{ eos }}é\0")
        self.assertEqual(chat.render(HELLO, now=datetime.datetime(2025, 3, 4), eos="!"), "04.03.2025!é\0")
        self.assertRegex(chat.render(HELLO), r"^\d\d\.\d\d\.\d\d\d\dé\0$")
        (self.folder / "chat.jinja").write_text("{{ messages | length }}")
        self.assertEqual(treadle.Chat(self.folder / "chat.jinja").render(HELLO * 3), "3")

    def test_chat_refused(self):
        chat = treadle.Chat(self.folder)
        self.refused("one of the two", treadle.Chat)
        self.refused("one of the two", treadle.Chat, self.folder, template="x")
        self.refused("line 2", treadle.Chat, template="\n{% if %}")
        self.refused("messages: ", chat.render, [{"role": object()}])
        self.refused("variables: ", chat.render, HELLO, tools=[{"a": {1}}])
        self.refused("role", chat.render, [{"content": "x"}])
        self.refused("messages", chat.render, {"role": "user"})
        self.refused("exclude", chat.render, HELLO, True, continue_final_message=True)
        self.refused("too young", treadle.Chat(template="{{ raise_exception('too young') }}").render, HELLO)
        with self.assertRaisesRegex(treadle.Error, "nothing"):
            treadle.Chat(self.folder / "nothing")

    # ---- Both ----

    def test_threads(self):
        """Any number of them use one object, and another one may close it meanwhile."""
        tokenizer, chat, wrong = treadle.Tokenizer(self.folder), treadle.Chat(self.folder), []
        begun = threading.Barrier(5)

        def work():
            begun.wait()
            try:
                while True:
                    if tokenizer.decode(tokenizer.encode("ab a")) != "<s>ab a":
                        wrong.append("tokens")
                    if chat.render(HELLO) != "<s>user: hi\0é\nassistant: ":
                        wrong.append("text")
            except treadle.State:
                pass
            except BaseException as error:  # noqa: BLE001
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        threading.Event().wait(0.2)
        tokenizer.close()
        chat.close()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_closed(self):
        with treadle.Tokenizer(self.folder) as tokenizer, treadle.Chat(self.folder) as chat:
            pass
        for call in (
            lambda: tokenizer.encode("a"),
            lambda: tokenizer.decode([1]),
            lambda: tokenizer.count,
            lambda: tokenizer.token(1),
            lambda: tokenizer.bos,
            lambda: tokenizer.find("a"),
        ):
            with self.assertRaisesRegex(treadle.State, "the tokenizer is closed"):
                call()
        with self.assertRaisesRegex(treadle.State, "render: the chat is closed"):
            chat.render(HELLO)
        self.assertEqual((repr(tokenizer), repr(chat)), ("<treadle.Tokenizer, closed>", "<treadle.Chat, closed>"))
        tokenizer.close()

    def test_not_pickled(self):
        for made in (treadle.Tokenizer(self.folder), treadle.Chat(self.folder)):
            with self.assertRaisesRegex(TypeError, "give its path to the other process, and open it there"):
                pickle.dumps(made)


if __name__ == "__main__":
    unittest.main()
