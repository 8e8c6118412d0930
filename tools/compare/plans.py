"""Layouts and plans, two parts of tools/compare-builds. A part is a generator of cases: what it is, what OLD says, what
NEW says (text, bytes, Refused or Failed); and of Notes. Commands run in turn, OLD first."""

import itertools
import json
import os
import re
import subprocess
import sys

import draw
from builds import Failed, Note, REPOSITORY, Refused, both, report

HERE = os.path.dirname(os.path.abspath(__file__))


# ---- Layouts ----

DIGEST_LINE = re.compile(r"([0-9a-f]{16} .*?, \d+ ranks, \w+): (.*)$")


def golden_files():
    found = []
    for folder in "golden", "golden_more":
        path = os.path.join(REPOSITORY, "tests", folder)
        names = sorted(os.listdir(path)) if os.path.isdir(path) else []
        found += [os.path.join(path, name) for name in names if name.endswith((".json", ".json.gz"))]
    return found


def pick(given, quick):
    """The smallest files are enough for a quick run."""
    return sorted(given, key=os.path.getsize)[:3] if quick else given


def digest_lines(build, words, most):
    """A line at a time, this many at most: its text, or a refusal. It ends with Failed where the program dies."""
    running = subprocess.Popen(
        [build.program("layout_digest"), "-v", *words], stdout=subprocess.PIPE, encoding="utf-8", errors="replace"
    )
    try:
        for line in itertools.islice(running.stdout, most):
            line = re.sub(r"map=@[^,\s']*", "map=@", line.rstrip("\n"))  # a file of another name each time
            refusal = DIGEST_LINE.match(line)
            yield Refused("%s: %s" % (refusal.group(1).replace(":", ";"), refusal.group(2))) if refusal else line
        if most is None and running.wait():
            yield Failed("layout_digest ends with status %d" % running.returncode)
    finally:
        running.kill()
        running.wait()


def in_step(what, old, new):
    """Cases of two streams of lines."""
    end = object()
    number = 0
    while True:
        a, b = next(old, end), next(new, end)
        if a is end and b is end:
            return
        number += 1
        yield "%s %d" % (what, number), *(Failed("no more lines") if x is end else x for x in (a, b))


def storage_tables(old, new, options, scratch):
    """What one rank of each drawn layout holds, run by run, as the command prints it."""
    for case in draw.cases(options.seed, options.pairs, scratch):
        words = [
            "layout",
            "--model",
            case["model"],
            "--layout",
            case["to"],
            "--ranks",
            case["ranks"],
            "--rank",
            case["rank"],
            "--runs",
            "--json",
        ]
        name = "layout %d: '%s' of %s, rank %d of %d" % (
            case["number"],
            case["to"],
            os.path.basename(case["model"]),
            case["rank"],
            case["ranks"],
        )
        yield name, *both(old, new, lambda build: report(build.run("treadle", *words), "^$"))


def layouts(old, new, options, scratch):
    golden = pick(golden_files(), options.quick)
    for tool in "layout_digest", "golden_check":
        lack = [build.name for build in (old, new) if not build.has(tool)]
        if lack or not golden:
            yield Note(
                "%s is left out: %s" % (tool, "no " + tool + " in " + " and ".join(lack) if lack else "no golden files")
            )
        elif tool == "layout_digest":
            most = 60 if options.quick else None
            yield from in_step(
                "layout_digest, layout", digest_lines(old, golden, most), digest_lines(new, golden, most)
            )
        else:
            for path in golden:
                yield "golden_check " + os.path.basename(path), *both(old, new, lambda build: build.made(tool, path))
    yield from storage_tables(old, new, options, scratch)


# ---- Plans ----

PLAN_LEFT_OUT = "_seconds$|_rss_bytes$"


class Planner:
    """The plans of a build as text, made by a process of its own (planner.py)."""

    def __init__(self, build):
        self.running = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "planner.py"), build.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, case):
        try:
            self.running.stdin.write(json.dumps(case) + "\n")
            self.running.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.running.stdout.readline()
        return json.loads(line) if line else None

    def end(self):
        self.running.stdin.close()
        self.running.wait()


def outcome(answer):
    if answer is None:
        return Failed("the process that plans has died")
    if answer["status"]:
        return Refused("status %d: %s" % (answer["status"], answer["message"]))
    return answer["text"] if "text" in answer else " ".join(answer["ranks"])


def plan_texts(planners, case):
    """Digests of the texts; where they differ, the text of the first rank that does."""
    answers = [planner.ask(case) for planner in planners]
    if all(answer and not answer["status"] for answer in answers) and answers[0] != answers[1]:
        rank = next(i for i, (a, b) in enumerate(zip(answers[0]["ranks"], answers[1]["ranks"])) if a != b)
        answers = [planner.ask({**case, "text": rank}) for planner in planners]
    return [outcome(answer) for answer in answers]


def plan_words(case):
    words = [
        "plan",
        "--model",
        case["model"],
        "--from",
        case["from"],
        "--to",
        case["to"],
        "--ranks",
        case["ranks"],
        "--page-size",
        case["page"],
        "--rank-map",
        case["rank_map"],
        "--alias",
        "on" if case["alias"] else "off",
        "--json",
    ]
    return words + (["--nodes", case["nodes"]] if case["nodes"] > 1 else [])


def plans(old, new, options, scratch):
    lack = [build.name for build in (old, new) if not build.has("libtreadle.so")]
    if lack:
        yield Note("plans as text are left out: no libtreadle.so in " + " and ".join(lack))
    planners = [] if lack else [Planner(old), Planner(new)]
    for case in draw.cases(options.seed, options.pairs, scratch):
        name = "pair %d: '%s' to '%s' of %s, %d ranks" % (
            case["number"],
            case["from"],
            case["to"],
            os.path.basename(case["model"]),
            case["ranks"],
        )
        said = both(old, new, lambda build: build.run("treadle", *plan_words(case)))
        yield name + ", report", *(report(done, PLAN_LEFT_OUT) for done in said)
        least = case["least"] and said[0].returncode == 0  # with the least cap there are waves
        case["cap"] = json.loads(said[0].stdout)["cap_min"] if least else 0
        if planners:
            yield name + ", text", *plan_texts(planners, case)
            if any(planner.running.poll() is not None for planner in planners):
                break
    for planner in planners:
        planner.end()
