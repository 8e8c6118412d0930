"""The plans of a build as text: loads its libtreadle.so and answers cases, a line of JSON each (tools/compare/draw.py).

    planner.py BUILD      a case on standard input, a line of JSON on standard output: {"status", "message", "ranks":
                          [digest of each rank's text]}

A case with "text": R gets that rank's text. Only functions of the public header are called, with structs as old
programs know them."""

import ctypes
import hashlib
import json
import os
import sys

RANK_MAPS = ("contiguous", "strided", "best")


class LayoutOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("rank_map", ctypes.c_int),
        ("train", ctypes.c_void_p),
        ("node_of", ctypes.c_void_p),
    ]


class PlanOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("page_bytes", ctypes.c_size_t),
        ("cap_bytes", ctypes.c_size_t),
        ("waves", ctypes.c_int32),
        ("alias", ctypes.c_bool),
        ("keep_params", ctypes.c_bool),
        ("node_of", ctypes.c_void_p),
    ]


class Refused(Exception):
    pass


class Planner:
    def __init__(self, build):
        self.library, self.libc = ctypes.CDLL(os.path.join(build, "libtreadle.so")), ctypes.CDLL(None)
        self.library.treadle_error_message.restype = ctypes.c_char_p
        self.libc.open_memstream.restype = ctypes.c_void_p

    def make(self, function, *words):
        """What a call hands out by its last argument."""
        made = ctypes.c_void_p()
        status = getattr(self.library, function)(*words, ctypes.byref(made))
        if status:
            raise Refused(status, self.library.treadle_error_message().decode(errors="replace"))
        return made

    def text(self, plan):
        bytes_p, count = ctypes.c_void_p(), ctypes.c_size_t()
        file = ctypes.c_void_p(self.libc.open_memstream(ctypes.byref(bytes_p), ctypes.byref(count)))
        self.library.treadle_plan_print(plan, file)
        self.libc.fclose(file)
        text = ctypes.string_at(bytes_p, count.value)
        self.libc.free(bytes_p)
        return text

    def texts(self, case):
        """Of each rank's plan."""
        held, ranks = [], ctypes.c_int64(case["ranks"])
        size = case["ranks"] // case["nodes"]
        nodes = (
            (ctypes.c_int32 * case["ranks"])(*(rank // size for rank in range(case["ranks"])))
            if case["nodes"] > 1
            else None
        )
        node_of = ctypes.cast(nodes, ctypes.c_void_p) if nodes else None
        try:
            model = self.make("treadle_model_open", case["model"].encode(), None)
            held.append(("treadle_model_close", model))
            source = self.make("treadle_layout_create", model, case["from"].encode(), ranks, None)
            held.append(("treadle_layout_destroy", source))
            options = LayoutOptions(ctypes.sizeof(LayoutOptions), RANK_MAPS.index(case["rank_map"]), source, node_of)
            target = self.make("treadle_layout_create", model, case["to"].encode(), ranks, ctypes.byref(options))
            held.append(("treadle_layout_destroy", target))
            options = PlanOptions(
                ctypes.sizeof(PlanOptions), case["page"], case["cap"], 0, case["alias"], False, node_of
            )
            for rank in range(case["ranks"]):
                plan = self.make("treadle_plan_create", source, target, ctypes.c_int64(rank), ctypes.byref(options))
                yield self.text(plan)
                self.library.treadle_plan_destroy(plan)
        finally:
            for function, handle in reversed(held):
                getattr(self.library, function)(handle)


def answer(planner, case):
    try:
        texts = list(planner.texts(case))
    except Refused as refusal:
        return {"status": refusal.args[0], "message": refusal.args[1]}
    if "text" in case:
        return {"status": 0, "text": texts[case["text"]].decode(errors="replace")}
    return {"status": 0, "ranks": [hashlib.sha256(text).hexdigest()[:16] for text in texts]}


if __name__ == "__main__":
    its = Planner(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(answer(its, json.loads(line))), flush=True)
