"""The two builds of tools/compare-builds: running their programs alike, and what a part of the comparison hands
over."""

import json
import os
import re
import shutil
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LONGEST = 900  # seconds of one command


class Failed(str):
    """Why a case that has to work has failed. It is a difference, also where both builds fail."""


class Refused(str):
    """A refusal; its words count with --messages alone."""


class Note(str):
    """What was left out, and why."""


class Build:
    """A build folder, and a folder in which its commands run: the files that they write have the same names on both
    sides."""

    def __init__(self, name, folder, scratch):
        self.name, self.folder = name, os.path.abspath(folder)
        self.here = os.path.join(scratch, name)
        os.makedirs(self.here, exist_ok=True)

    def program(self, name):
        return os.path.join(self.folder, name)

    def has(self, name):
        return os.path.exists(self.program(name))

    def run(self, program, *words, ranks=1):
        """The finished command, with its output as text."""
        launch = launcher(self, ranks) if ranks > 1 else []
        return subprocess.run(
            [*launch, self.program(program), *map(str, words)],
            cwd=self.here,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=LONGEST,
            env=environment(),
        )

    def made(self, program, *words, ranks=1):
        """The output of a command that has to work, or Failed."""
        done = self.run(program, *words, ranks=ranks)
        return failure(done) or done.stdout

    def emptied(self, name):
        """The path of a new folder."""
        path = os.path.join(self.here, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path


def failure(done):
    lines = [line for line in done.stderr.splitlines() if line.strip() and "made up" not in line]
    said = [line for line in lines if line.startswith("treadle")] or lines  # a launcher adds its own
    return Failed("exit status %d: %s" % (done.returncode, " / ".join(said[-3:])[:400])) if done.returncode else None


def environment():
    """As tests/tests.cmake has it: Open MPI refuses root, and more ranks than cores, unless told otherwise."""
    more = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_btl": "self,vader",
        "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    }
    return {**more, **os.environ}


def launcher(build, ranks):
    """The one of the MPI that the build was made with."""
    found = os.environ.get("MPIEXEC")
    if not found and build.has("CMakeCache.txt"):
        with open(build.program("CMakeCache.txt"), encoding="utf-8") as file:
            found = next(
                (line.split("=", 1)[1].strip() for line in file if line.startswith("MPIEXEC_EXECUTABLE:")), None
            )
    return [found or "mpirun", "-n", str(ranks)]


def files_under(folder):
    """{path below it: bytes} of all its files."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def files(what, old, new, folder):
    """Cases of all files under a folder of that name on both sides. None at all is a failure."""
    sides = [files_under(os.path.join(build.here, folder)) for build in (old, new)]
    for path in sorted(set(sides[0]) | set(sides[1])):
        yield "%s: %s" % (what, path), *(side.get(path, Failed("no such file")) for side in sides)
    if not sides[0] and not sides[1]:
        yield what, *(Failed("no files in %s" % folder),) * 2


def both(old, new, function):
    return function(old), function(new)


# ---- What commands say ----


def without(value, left_out):
    """The value without the keys of objects whose names match."""
    if isinstance(value, dict):
        return {key: without(one, left_out) for key, one in value.items() if not re.search(left_out, key)}
    return [without(one, left_out) for one in value] if isinstance(value, list) else value


def lines_of(value):
    return "\n".join("%s: %s" % (key, json.dumps(one)) for key, one in value.items())


def report(done, left_out):
    """What a command with --json says, a line a key; or how it refuses."""
    if done.returncode == 2:
        return Refused("status 2: " + done.stderr.strip())
    if done.returncode:
        return failure(done)
    return lines_of(without(json.loads(done.stdout), left_out))


# ---- Differences ----


def equal(a, b, messages):
    if isinstance(a, Failed) or isinstance(b, Failed):
        return False
    if isinstance(a, Refused) and isinstance(b, Refused) and not messages:
        return a.split(":", 1)[0] == b.split(":", 1)[0]  # the status
    return type(a) is type(b) and a == b


def first_line(a, b):
    rows = list(zip(a.splitlines() + ["(end)"], b.splitlines() + ["(end)"]))
    at = next((i for i, (x, y) in enumerate(rows) if x != y), None)
    return (
        "other ends of line"
        if at is None
        else "line %d: '%s' and '%s'" % (at + 1, rows[at][0].strip()[:300], rows[at][1].strip()[:300])
    )


def describe(a, b):
    """Where two outcomes differ: OLD's first."""
    if isinstance(a, Failed) and isinstance(b, Failed):
        return "fails in both builds: " + a
    if type(a) is not type(b) or isinstance(a, (Failed, Refused)):
        shown = [
            "%s%s"
            % ("refused, " if isinstance(x, Refused) else "", "%d bytes" % len(x) if isinstance(x, bytes) else x[:300])
            for x in (a, b)
        ]
        return "'%s' and '%s'" % tuple(shown)
    if isinstance(a, str):
        return first_line(a, b)
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    if at == min(len(a), len(b)):
        return "%d and %d bytes, equal as far as both go" % (len(a), len(b))
    return "byte %d: %#04x and %#04x (%d bytes differ of %d and %d)" % (
        at,
        a[at],
        b[at],
        sum(x != y for x, y in zip(a, b)),
        len(a),
        len(b),
    )


def say(text):
    print(text, file=sys.stderr, flush=True)
