"""What ran of the real packages: counted calls, written as report.json, and judged.

A process that is to be counted calls count() for the classes that it uses; each call is a line in a file, since workers
are processes of their own. A row without a call, or one whose scenario failed, makes `make test-plugins` fail: nothing
passes because nothing ran."""

import functools
import inspect
import json
import os
import time

LOG = "TREADLE_TEST_CALLS"  # the environment's name of the file


def count(package, kind, *methods):
    """Counts calls of a class's methods from here on, in this process."""
    path = os.environ.get(LOG)
    if not path:
        return
    for name in methods:
        made = vars(kind).get(name)
        inner = made.__func__ if isinstance(made, classmethod) else getattr(kind, name)
        counted = _counted(path, package, kind.__name__, name, inner)
        setattr(kind, name, classmethod(counted) if isinstance(made, classmethod) else counted)


def _counted(path, package, kind, name, inner):
    def write_call(started):
        with open(path, "a") as file:  # a short line is written whole
            file.write(json.dumps([package, kind, name, time.monotonic() - started]) + "\n")

    if inspect.iscoroutinefunction(inner):  # Ray asks whether a method is one

        @functools.wraps(inner)
        async def wait(*arguments, **options):
            started = time.monotonic()
            try:
                return await inner(*arguments, **options)
            finally:
                write_call(started)

        return wait

    @functools.wraps(inner)
    def call(*arguments, **options):
        started = time.monotonic()
        try:
            return inner(*arguments, **options)
        finally:
            write_call(started)

    return call


def read(path):
    """(package, class, method) to [calls, seconds]."""
    found = {}
    if os.path.exists(path):
        with open(path) as file:
            for line in file:
                package, kind, name, seconds = json.loads(line)
                row = found.setdefault((package, kind, name), [0, 0.0])
                row[0], row[1] = row[0] + 1, row[1] + seconds
    return found


def rows(versions, wanted, calls, failed):
    """The report: a row for each wanted (package, class, method), with its note. failed: the note where a scenario
    failed."""
    made = []
    for package, kind, name, note in wanted:
        count_, seconds = calls.get((package, kind, name), [0, 0.0])
        made.append(
            {
                "package": package,
                "version": versions[package],
                "class": kind,
                "method": name,
                "calls": count_,
                "ran": count_ > 0 and not failed,
                "seconds": round(seconds, 3),
                "note": failed or note,
            }
        )
    return made


def write(folder, name, made):
    """Keeps the rows of one plug-in's tests; report.json has those of all that were kept."""
    kept = os.path.join(folder, "reports")
    os.makedirs(kept, exist_ok=True)
    with open(os.path.join(kept, f"{name}.json"), "w") as file:
        json.dump(made, file, indent=1)
    every = []
    for one in sorted(os.listdir(kept)):
        with open(os.path.join(kept, one)) as file:
            every += json.load(file)
    with open(os.path.join(folder, "report.json"), "w") as file:
        json.dump(every, file, indent=1)


def judge(report):
    """The rows that make it fail: those that did not run, or were never called. An empty report is a failure, too."""
    if not report:
        return [{"package": "", "class": "", "method": "", "note": "the report is empty"}]
    return [
        row for row in report if row.get("ran") is not True or not isinstance(row.get("calls"), int) or row["calls"] < 1
    ]


def table(report):
    """As text, a line a row."""
    lines = [f"{'package':<12} {'version':<10} {'method':<58} {'calls':>6} {'seconds':>8}  note"]
    for row in report:
        lines.append(
            f"{row['package']:<12} {row['version']:<10} {row['class'] + '.' + row['method']:<58} {row['calls']:>6} "
            f"{row['seconds']:>8.2f}  {'' if row['ran'] else 'FAILED '}{row['note']}"
        )
    return "\n".join(lines)
