"""What the tests of all plug-ins do alike: scenarios one after the other, each a process of its own; the report;
answers that are kept."""

import importlib.metadata
import itertools
import json
import os
import subprocess
import sys
import time

import models
import report


def check(right, *words):
    if not right:
        raise AssertionError(" ".join(map(str, words)))


def environment():
    """The name of the environment that this process runs in: that of its pins (tools/test-plugins)."""
    return os.path.basename(sys.prefix)


def said_by_pins(word):
    """The words of the line "# WORD ..." at the head of this environment's pins; None: it has none."""
    try:
        with open(os.path.join(sys.prefix, "pins.txt")) as file:
            head = itertools.takewhile(lambda line: line.startswith("#"), file.read().splitlines())
    except FileNotFoundError:  # made by hand
        return None
    found = [line.split()[2:] for line in head if line.split()[1:2] == [word]]
    return found[0] if found else None


def select(scenarios, words):
    """The scenarios that the words name: each by its first word, or by all of its words with hyphens."""
    names = [{scenario[0], "-".join(scenario)} for scenario in scenarios]
    if strange := set(words) - set().union(*names):
        raise ValueError(f"no scenario is called {min(strange)}")
    return [scenario for scenario, own in zip(scenarios, names) if own & set(words)]


def wanted_of(rows, scenarios):
    """The rows (package, class, method, note, *words) whose calls these scenarios make: those that have one of the
    words; without words all do."""
    said = set().union(*scenarios)
    return [row[:4] for row in rows if not row[4:] or said & set(row[4:])]


def log_of(folder, *words):
    return os.path.join(folder, "logs", "-".join(map(str, (environment(), *words))))


class Answers:
    """What engines answered that were started from files; whose: the environment's name."""

    def __init__(self, whose):
        self._whose = whose

    def _path(self, folder, *which):
        return os.path.join(folder, "answers", "-".join(map(str, (self._whose, *which))) + ".json")

    def read(self, folder, *which):
        with open(self._path(folder, *which)) as file:
            return json.load(file)

    def keep(self, answers, folder, *which):
        os.makedirs(os.path.join(folder, "answers"), exist_ok=True)
        with open(self._path(folder, *which), "w") as file:
            json.dump(answers, file)


def alone(script):
    """How a scenario of `script` runs: as `script --one FOLDER SCENARIO...`. Returns where to look when it fails, ""
    when it does not."""

    def start(folder, scenario, calls):
        log = log_of(folder, *scenario) + ".out"
        with open(log, "w") as out:
            code = subprocess.call(
                [sys.executable, script, "--one", folder, *scenario],
                stdout=out,
                stderr=out,
                env={**os.environ, report.LOG: calls},
            )
        return log if code != 0 else ""

    return start


def run_all(folder, name, scenarios, wanted, start):
    """Runs the scenarios, tuples of words, and reports the calls that they make. name: of the report. Returns the exit
    status."""
    folder = os.path.abspath(folder)
    for place in ("models", "logs"):
        os.makedirs(os.path.join(folder, place), exist_ok=True)
    for kind in sorted({scenario[1] for scenario in scenarios if len(scenario) > 1}):
        models.make(os.path.join(folder, "models"), kind)
    calls = os.path.join(folder, f"calls-{name}")
    if os.path.exists(calls):
        os.remove(calls)
    failed = []
    for scenario in scenarios:
        started = time.monotonic()
        log = start(folder, scenario, calls)
        print(
            f"{name:<14} {' '.join(scenario):<36} {'FAILED, see ' + log if log else 'ok'} "
            f"{time.monotonic() - started:6.0f} s",
            flush=True,
        )
        if log:
            failed.append(" ".join(scenario))
    wanted = wanted_of(wanted, scenarios)
    versions = {package: importlib.metadata.version(package) for package in {row[0] for row in wanted}}
    made = report.rows(versions, wanted, report.read(calls), f"failed: {', '.join(failed)}" if failed else "")
    report.write(folder, name, made)
    print(report.table(made))
    return 1 if failed or report.judge(made) else 0


def main(script, functions, scenarios, wanted, named=(), longer=()):
    """The program of a plug-in's tests: FOLDER [SCENARIO...], or --one for one of them in this process. longer: what is
    left out unless it is named, or "all" is. named: scenarios that run only where the environment's pins name them, in
    a line "# scenarios ..."; there nothing else runs."""
    if sys.argv[1] == "--one":
        functions[sys.argv[3]](sys.argv[2], *sys.argv[4:])
        return
    every = [*scenarios, *longer, *named]
    pinned = said_by_pins("scenarios")
    here = scenarios if pinned is None else select(every, pinned)
    if sys.argv[2:]:
        chosen = every if sys.argv[2:] == ["all"] else select(every, sys.argv[2:])
        may = [*scenarios, *longer] if pinned is None else here
        here = [scenario for scenario in may if scenario in chosen]
        if not here:
            print(f"{environment():<14} runs none of these scenarios; another environment does")
            return
    sys.exit(run_all(sys.argv[1], environment(), here, wanted, alone(os.path.abspath(script))))
