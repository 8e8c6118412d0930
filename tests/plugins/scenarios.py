"""What the tests of all plug-ins do alike: scenarios one after the other, each a process of its own; the report; answers that are kept."""

import importlib.metadata
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


class Answers:
    """What engines answered that were started from files; engine: whose."""

    def __init__(self, engine):
        self._engine = engine

    def _path(self, folder, *which):
        return os.path.join(folder, "answers", "-".join(map(str, (self._engine, *which))) + ".json")

    def read(self, folder, *which):
        with open(self._path(folder, *which)) as file:
            return json.load(file)

    def keep(self, answers, folder, *which):
        os.makedirs(os.path.join(folder, "answers"), exist_ok=True)
        with open(self._path(folder, *which), "w") as file:
            json.dump(answers, file)


def alone(script):
    """How a scenario of `script` runs: as `script --one FOLDER SCENARIO...`. Returns where to look when it fails, "" when it does not."""

    def start(folder, scenario, calls):
        log = os.path.join(folder, "logs", "-".join((os.path.basename(script).partition("_")[0], *scenario)) + ".out")
        with open(log, "w") as out:
            code = subprocess.call([sys.executable, script, "--one", folder, *scenario], stdout=out, stderr=out, env={**os.environ, report.LOG: calls})
        return log if code != 0 else ""

    return start


def run_all(folder, chosen, name, scenarios, wanted, packages, start):
    """Runs the scenarios, tuples of words; chosen: by the first word or by all of them with hyphens; none: all. name: of the plug-in, and of what it is run with.
    Returns the exit status."""
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
        if chosen and not {scenario[0], "-".join(scenario)} & set(chosen):
            continue
        started = time.monotonic()
        log = start(folder, scenario, calls)
        print(f"{name:<14} {' '.join(scenario):<36} {'FAILED, see ' + log if log else 'ok'} {time.monotonic() - started:6.0f} s", flush=True)
        if log:
            failed.append(" ".join(scenario))
    versions = {package: importlib.metadata.version(package) for package in packages}
    made = report.rows(versions, wanted, report.read(calls), f"failed: {', '.join(failed)}" if failed else "")
    report.write(folder, name, made)
    print(report.table(made))
    return 1 if failed or report.judge(made) else 0


def main(script, functions, name, scenarios, wanted, packages):
    """The program of a plug-in's tests: FOLDER [SCENARIO...], or --one for one of them in this process."""
    if sys.argv[1] == "--one":
        functions[sys.argv[3]](sys.argv[2], *sys.argv[4:])
    else:
        sys.exit(run_all(sys.argv[1], sys.argv[2:], name, scenarios, wanted, packages, alone(os.path.abspath(script))))
