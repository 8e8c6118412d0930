"""Makes small tokenizers at random, and records what the tokenizers library does with random texts and ids.

    python3 record.py tokenizers_random.json.gz        (pip install tokenizers; recorded with 0.23.3)

A record: json (the text of tokenizer.json), cases [text, ids with special tokens, ids without], decoded [ids, text
without special tokens, text with]. A tokenizer or a case at which the library itself fails is left out.
"""

import gzip
import json
import random
import sys

from tokenizers import Tokenizer, __version__

POOLS = [
    "abcdefgh ",
    "ABC xyz'",
    "'s't're've'm'll'd 'S 'LL",
    "0123456789 ",
    "²½Ⅷ٣४",
    "   \n\r\t\x0b\x85\u2028\u3000\u180e\u00a0\u200b",
    "漢字かなカナ한국어",
    "éàüñçÅ ế",
    "e\u0301\u0323a\u0308\u0300",
    "אבג عربي हिन्दी",
    "😀👩‍👧🏳️",
    "<|im_start|></s><s><think>",
    "_-.,!?#$%&*()[]{}|~`@^+=/\\:;\"",
    "\x01\x04\x7f\ufeff\ufffd",
    "▁Ġ<0x0A>",
    "ⅠⒶⓐªﬁ①Ａ",
    "\u1100\u1161\u11a8ǅİßςs",
]
SPECIALS = ["<|im_start|>", "<think>", "</think>", "<s>", "</s>", "<unk>"]
PATTERNS = [
    "\\s+",
    "\\p{L}+",
    "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+",
    "\\d",
    "\\w+",
    "\\W",
    "\\b",
    "[\\p{L}&&[^\\p{Han}]]+",
    "\\p{Han}+",
    "(?i:'s|'t)",
    "\\p{N}{1,3}",
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*",
    "\\s+(?!\\S)|\\s+",
    "[a-c[x-z]]",
    "[^a-c&&[b-z]]",
    "\\h+",
    "\\p{Lu}\\p{Ll}*",
    "$",
    "^.",
    ".",
    "(?m).",
    "a{,2}b",
    "[\\s\\S]",
    "[^\\W\\d]+",
    "\\S+|\\n",
    "(?<=a)b",
    "x*",
    "[[:punct:]]+",
]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def alphabet():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in own] + [chr(256 + i) for i in range(256 - len(own))]


def text(r):
    parts = []
    for _ in range(r.randint(1, 7)):
        kind = r.random()
        if kind < 0.75:
            pool = r.choice(POOLS)
            parts.append("".join(r.choice(pool) for _ in range(r.randint(1, 8))))
        elif kind < 0.9:
            parts.append(r.choice(SPECIALS))
        else:
            parts.append(r.choice([" ", "  ", "\n", " \n", "\t"]) * r.randint(1, 3))
    return "".join(parts)


def pattern(r):
    return r.choice([{"String": r.choice([" ", "ab", "▁"])}, {"Regex": r.choice(PATTERNS)}])


def normalizer(r, depth=0):
    kind = r.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "Replace", "Prepend", "Sequence", "space"])
    if kind == "Strip":
        return {"type": kind, "strip_left": r.random() < 0.5, "strip_right": r.random() < 0.5}
    if kind == "Replace":
        return {"type": kind, "pattern": pattern(r), "content": r.choice(["▁", "", "xy"])}
    if kind == "Prepend":
        return {"type": kind, "prepend": r.choice(["▁", " "])}
    if kind == "Sequence" and depth < 2:
        return {"type": kind, "normalizers": [normalizer(r, depth + 1) for _ in range(r.randrange(4))]}
    if kind in ("Sequence", "space"):
        return {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return {"type": kind}


def pre_tokenizer(r, depth=0):
    kind = r.choice(
        ["Split", "Split", "ByteLevel", "Metaspace", "Digits", "Punctuation", "WhitespaceSplit", "Sequence"]
    )
    if kind == "Split":
        return {"type": kind, "pattern": pattern(r), "behavior": r.choice(BEHAVIORS), "invert": r.random() < 0.3}
    if kind == "ByteLevel":
        return {"type": kind, "add_prefix_space": r.random() < 0.5, "trim_offsets": True, "use_regex": r.random() < 0.5}
    if kind == "Metaspace":
        return {
            "type": kind,
            "replacement": "▁",
            "prepend_scheme": r.choice(["always", "never"]),
            "split": r.random() < 0.5,
        }
    if kind == "Punctuation":
        return {"type": kind, "behavior": r.choice(BEHAVIORS)}
    if kind == "Sequence" and depth < 2:
        return {"type": kind, "pretokenizers": [pre_tokenizer(r, depth + 1) for _ in range(r.randrange(4))]}
    if kind == "WhitespaceSplit":
        return {"type": kind}
    return {"type": "Digits", "individual_digits": r.random() < 0.5}


def decoder(r, depth=0):
    kind = r.choice(["ByteLevel", "Metaspace", "ByteFallback", "Fuse", "Strip", "Replace", "llama", "Sequence"])
    if kind == "ByteLevel":
        return {"type": kind, "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    if kind == "Metaspace":
        return {
            "type": kind,
            "replacement": "▁",
            "prepend_scheme": r.choice(["always", "first", "never"]),
            "split": True,
        }
    if kind == "Strip":
        return {"type": kind, "content": " ", "start": r.randrange(3), "stop": 0}
    if kind == "Replace":
        return {"type": kind, "pattern": r.choice([{"String": "▁"}, {"Regex": "[ab]+"}]), "content": " "}
    if kind == "llama":
        return {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        }
    if kind == "Sequence" and depth < 2:
        return {"type": kind, "decoders": [decoder(r, depth + 1) for _ in range(r.randrange(4))]}
    return {"type": "ByteFallback" if kind == "ByteFallback" else "Fuse"}


def model(r):
    vocab = {}

    def put(token):
        if token and token != "\0":
            vocab.setdefault(token, len(vocab))

    if r.random() < 0.7:
        put("<unk>")
    if r.random() < 0.5:
        for i in range(256):
            if r.random() < 0.995:
                put(f"<0x{i:02X}>")
    for c in alphabet():
        if r.random() < 0.98:
            put(c)
    for pool in r.sample(POOLS, 6):
        for c in pool:
            put(c)
    put("▁")
    prefix = "##" if r.random() < 0.1 else None
    suffix = "</w>" if r.random() < 0.1 else None
    for c in "abcdefgh " if prefix or suffix else "":
        put((prefix or "") + c)
        put(c + (suffix or ""))
        put((prefix or "") + c + (suffix or ""))
    keys, merges = list(vocab), []
    for _ in range(r.randrange(120)):
        a = r.choice(keys if r.random() < 0.5 else list("abcdefghABC 0123▁Ġ'."))
        b = r.choice(keys if r.random() < 0.3 else list("abcdefghABC 0123▁Ġ'.") + keys[-5:])
        if a not in vocab or b not in vocab or len(a + b) > 20 or (prefix and not b.startswith(prefix)):
            continue
        both = a + (b[len(prefix) :] if prefix else b)
        put(both)
        keys.append(both)
        merges.append([a, b] if r.random() < 0.5 or " " in a + b else a + " " + b)
    if any(isinstance(m, str) for m in merges):
        merges = [
            m if isinstance(m, str) else " ".join(m) for m in merges if isinstance(m, str) or " " not in m[0] + m[1]
        ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>" if "<unk>" in vocab and r.random() < 0.8 else None,
        "continuing_subword_prefix": prefix,
        "end_of_word_suffix": suffix,
        "fuse_unk": r.random() < 0.5,
        "byte_fallback": r.random() < 0.6,
        "ignore_merges": r.random() < 0.3,
        "vocab": vocab,
        "merges": merges,
    }


def make(r):
    bpe, added = model(r), []
    free = len(bpe["vocab"])
    for content in r.sample(
        ["<s>", "</s>", "<unk>", "ab", "b", "Xy", "é", "É ", "  ", "<think>", "</think>", "\n", "abc", "the", "<a b>"],
        r.randrange(8),
    ):
        number = bpe["vocab"].get(content, free)
        free += number == free
        added.append(
            {
                "id": number,
                "content": content,
                "single_word": r.random() < 0.3,
                "lstrip": r.random() < 0.3,
                "rstrip": r.random() < 0.3,
                "normalized": r.random() < 0.4 and bool(content.strip()),
                "special": r.random() < 0.5,
            }
        )
    post = None
    if added and r.random() < 0.5:
        ends = [r.choice(added), r.choice(added)]
        special = [{"SpecialToken": {"id": e["content"], "type_id": 0}} for e in ends]
        single = [special[0], {"Sequence": {"id": "A", "type_id": 0}}] + special[1:] * (r.random() < 0.5)
        post = {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                e["content"]: {"id": e["content"], "ids": [e["id"]], "tokens": [e["content"]]} for e in ends
            },
        }
        if r.random() < 0.4:
            level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
            post = {"type": "Sequence", "processors": [level, post]}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer(r) if r.random() < 0.6 else None,
        "pre_tokenizer": pre_tokenizer(r) if r.random() < 0.8 else None,
        "post_processor": post,
        "decoder": decoder(r) if r.random() < 0.9 else None,
        "model": bpe,
    }


def tried(call):
    try:
        return call()
    except BaseException as error:  # the library's panics are no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def main():
    tokenizers = []
    for seed in range(120):
        r = random.Random(seed)
        made = make(r)
        theirs = Tokenizer.from_str(json.dumps(made))
        forms = [
            theirs.normalizer.normalize_str(a["content"])
            for a in made["added_tokens"]
            if a["normalized"] and theirs.normalizer
        ]
        if len(set(forms)) < len(forms) or "" in forms:
            continue  # which of two tokens the library finds is not always the same; treadle refuses them
        cases, decoded, count = [], [], len(made["model"]["vocab"])
        for _ in range(5):
            words = text(r)
            ids = tried(lambda: theirs.encode(words, add_special_tokens=True).ids)
            plain = tried(lambda: theirs.encode(words, add_special_tokens=False).ids)
            if ids is not None and plain is not None:
                cases.append([words, ids, plain])
            numbers = [r.randrange(min(count, r.choice([300, count]))) for _ in range(r.randint(0, 10))] + (
                plain or []
            )[:8]
            texts = tried(lambda: [theirs.decode(numbers, skip_special_tokens=skip) for skip in (True, False)])
            if texts is not None:
                decoded.append([numbers, *texts])
        tokenizers.append({"json": json.dumps(made, ensure_ascii=False), "cases": cases, "decoded": decoded})
    with gzip.GzipFile(sys.argv[1], "wb", mtime=0) as file:
        file.write(
            json.dumps({"made_by": f"tokenizers {__version__}", "tokenizers": tokenizers}, ensure_ascii=False).encode()
        )


main()
