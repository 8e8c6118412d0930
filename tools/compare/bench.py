"""tools/compare-builds --bench: the benches of two builds by turns, and of a copy of OLD, which says how far equal
builds are apart.

A figure of a build is its least over the rounds: what else runs on the machine only ever adds time, and by turns it
hits all alike. The spread of a bench is the most that the copy differs from OLD in any of its figures. A figure passes
at most LIMIT plus the spread over OLD."""

import json
import os
import re
import shutil
import sys
import time

from builds import Build, REPOSITORY, failure, launcher, say

LIMIT = 1.02
NOISY = 0.10  # a wider spread hides what this is for
SHORT = 0.002  # seconds: a figure below is all noise


def keyed(*keys):
    return lambda text: {key: json.loads(text)[key] for key in keys}


def read_plan(text):
    """Sums of processor time: of the plans of one rank, of the reports of all, and of layouts by placements."""
    sums = {}
    for row in json.loads(text)["rows"]:
        kind = "placements" if row["from"].startswith("placements") else "all ranks" if row["rank"] < 0 else "one rank"
        sums[kind] = sums.get(kind, 0.0) + row["cpu_seconds"]
    return sums


def read_rows(pattern, names):
    """Rows of text with milliseconds."""

    def read(text):
        found = {}
        for row in re.findall(pattern, text, re.M):
            label = re.sub(" +", " ", row[0].strip())
            found.update({(label + " " + name).strip(): float(value) / 1000 for name, value in zip(names, row[1:])})
        return found

    return read


def read_nodes(text):
    return {
        name: value["seconds"]
        for name, value in json.loads(text).items()
        if isinstance(value, dict) and "seconds" in value
    }


SMALL = ["--model-layers", "1", "--rounds", "1"]
BENCHES = {  # ranks, words, how to read what it prints
    "bench_switch": (
        2,
        SMALL + ["--train", "megatron:tp=2", "--infer", "vllm:tp=2", "--json"],
        keyed("switch_seconds", "to_train_seconds"),
    ),
    "bench_plan": (1, ["--runs", "1", "--json"], read_plan),
    "bench_offload": (1, SMALL, read_rows(r"^  (to host|from host|to infer|to train) +([0-9.]+)", [""])),
    "bench_alias": (
        2,
        ["--shapes", "qwen2.5-7b", "--vocab", "4096"] + SMALL,
        read_rows(r"^  (alias o\w+, +keep=\w+) +([0-9.]+) +([0-9.]+)", ["to infer", "to train"]),
    ),
    "bench_own": (
        2,
        SMALL + ["--train", "megatron:tp=2", "--infer", "vllm:tp=2", "--json"],
        keyed("own_seconds", "windows_seconds"),
    ),
    "nodes": (1, ["--parts", "loopback", "--runs", "1"], read_nodes),
}
NEEDED = ["treadle", "libtreadle_mpi.so", "libtreadle_mpi.so.0", "bench_tcp"]


def copied(build, scratch):
    """A copy of what of a build is run."""
    folder = os.path.join(scratch, "copied")
    os.makedirs(folder)
    for name in [name for name in BENCHES if name != "nodes"] + NEEDED + ["CMakeCache.txt"]:
        if build.has(name):
            shutil.copy2(build.program(name), os.path.join(folder, name))
    return Build("copy", folder, scratch)


def measured(build, bench):
    """{figure: seconds}, or Failed."""
    ranks, words, read = BENCHES[bench]
    if bench == "nodes":
        os.environ.setdefault("MPIEXEC", launcher(build, 1)[0])
        done = build.run(os.path.join(REPOSITORY, "bench", "nodes"), "--build", build.folder, *words)
    else:
        done = build.run(bench, *words, ranks=ranks)
    return failure(done) or read(done.stdout)


def lacking(builds, bench):
    needed = "treadle" if bench == "nodes" else bench
    if bench == "nodes" and not all(build.has("bench_tcp") for build in builds):
        needed = "bench_tcp"
    lack = [build.name for build in builds if not build.has(needed)]
    return "no %s in %s (ninja bench_programs)" % (needed, " and ".join(lack)) if lack else None


def figures(bench, least):
    """What comes out of the least times of the three: a row a figure."""
    old, new, copy = least["old"], least["new"], least["copy"]
    names = [name for name in old if name in new and name in copy and old[name] >= SHORT]
    spread = max([abs(copy[name] / old[name] - 1) for name in names], default=0.0)
    return [
        {
            "bench": bench,
            "figure": name,
            "old_seconds": old[name],
            "new_seconds": new[name],
            "ratio": new[name] / old[name],
            "spread": spread,
            "pass": new[name] / old[name] <= LIMIT + spread,
        }
        for name in names
    ]


def compare(old, new, options, scratch):
    """Rows of all figures, and what was left out or failed: {bench: why}."""
    builds = [old, new, copied(old, scratch)]
    wanted = options.only or list(BENCHES)
    left_out = {bench: why for bench in wanted for why in [lacking(builds[:2], bench)] if why}
    least = {bench: {build.name: {} for build in builds} for bench in wanted if bench not in left_out}
    failed, begun = {}, time.monotonic()
    for number in range(options.rounds):
        for bench in least:
            for build in builds[number % 3 :] + builds[: number % 3]:
                say(
                    "round %d of %d, %s of %s, %.0f s"
                    % (number + 1, options.rounds, bench, build.name, time.monotonic() - begun)
                )
                found = measured(build, bench) if bench not in failed else {}
                if isinstance(found, str):
                    failed[bench] = "%s: %s" % (build.name, found)
                    continue
                kept = least[bench][build.name]
                kept.update({name: min(value, kept.get(name, value)) for name, value in found.items()})
    rows = [row for bench in least if bench not in failed for row in figures(bench, least[bench])]
    return rows, left_out, failed


def show(rows, left_out, failed):
    print("least seconds of each build; ratio: NEW over OLD; spread: how far a copy of OLD is from OLD\n")
    print("  %-14s %-30s %9s %9s %7s %7s" % ("bench", "figure", "old", "new", "ratio", "spread"))
    for row in rows:
        values = [row[key] for key in ("bench", "figure", "old_seconds", "new_seconds", "ratio", "spread")]
        print("  %-14s %-30s %9.4f %9.4f %7.3f %7.3f%s" % (*values, "" if row["pass"] else "  SLOWER"))
    for bench, spread in {row["bench"]: row["spread"] for row in rows if row["spread"] > NOISY}.items():
        print(
            "  %-14s says little: equal builds are %.0f %% apart; take an idle machine or more rounds"
            % (bench, 100 * spread)
        )
    for bench, why in {**left_out, **failed}.items():
        print("  %-14s %s: %s" % (bench, "failed" if bench in failed else "left out", why))


def main(old, new, options, scratch):
    rows, left_out, failed = compare(old, new, options, scratch)
    good = bool(rows) and not failed and all(row["pass"] for row in rows)
    if options.json:
        json.dump(
            {"rows": rows, "left_out": left_out, "failed": failed, "limit": LIMIT, "pass": good}, sys.stdout, indent=2
        )
        print()
    else:
        show(rows, left_out, failed)
        print("\nPASS" if good else "\nFAIL")
    return 0 if good else 1
