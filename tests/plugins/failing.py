"""What fails around an update, for each engine's tests: the engine lives through it, serves the old version, whole, and
the next update works.

trainers(steps, **options) runs two trainers (trainers.py)."""

import json
import os
import tempfile

from scenarios import check


def check_sent(done, version):
    check(done, "no trainer ran")
    for steps in done:
        check(
            steps is not None
            and len(steps) > 1
            and steps[0][0] == "met"
            and {step[0] for step in steps[1:]} == {"sent"},
            "trainers:",
            done,
        )
        check(steps[-1][1] == version, "version", steps[-1])


def nan(server, trainers, old, new, count):
    """One element of NaN, in `count` updates."""
    done = trainers([["nan", *["send"] * count, "set 2"], ["set 1", *["send"] * count, "set 2"]])
    for rank, kind in enumerate(("Refused", "Peer")):
        check([step[1] for step in done[rank][1:]] == [kind] * count, "NaN:", done)
        check(
            all(
                "'model.embed_tokens.weight' of shape" in step[2] and "1 element of NaN" in step[2]
                for step in done[rank][1:]
            ),
            "NaN:",
            done,
        )
    check(server.answers() == old, "NaN: the engine answers otherwise")
    check_sent(trainers([["set 2", "send"]] * 2), 1)
    check(server.answers() == new, "the update after NaN")


def revision(server, trainers, path, stands, layout, changes):
    """Trainers of another model, and trainers who ask for another layout than the engine has."""
    with open(f"{path}-1/config.json") as file:
        config = json.load(file)
    with tempfile.TemporaryDirectory() as other:
        for key, value in changes.items():
            with open(os.path.join(other, "config.json"), "w") as file:
                json.dump({**config, key: value}, file)
            for steps in trainers([["send"]] * 2, model=os.path.join(other, "config.json")):
                check(
                    steps[0][0] == "refused"
                    and steps[0][1] == "Peer"
                    and f"has {key} {value}, and the engine's" in steps[0][2]
                    and steps[0][3] < 30,
                    "another revision:",
                    steps,
                )
    for steps in trainers([["send"]] * 2, layout=layout):
        check(steps[0][0] == "refused" and f"the trainers ask for {layout}" in steps[0][2], "another layout:", steps)
    check(server.lives() and server.answers() == stands, "another revision: the engine answers otherwise")


def killed(server, trainers, stands, other, count):
    """A trainer dies before the move and at its beginning, in the first update of its Trainer and in a later one;
    `count` rounds of these."""
    first, later = ["set 1"], ["set 2", "send", "set 1"]
    rounds = [(first, ["die"]), (first, ["die at", "send"]), (later, ["die"]), (later, ["die at", "send"])]
    for number in range(count):
        dies, (before, death) = number % 2, rounds[number // 2 % 4]
        steps = [[*before, "send"], [*before, "send"]]
        steps[dies] = [*before, *death]
        done = trainers(steps)
        check(done[dies] is None, "it did not die:", done)
        last = done[1 - dies][-1]
        check(last[0] == "raised" and last[3] < 30, "the other one has no message:", done)
        check(
            server.lives() and server.answers() == stands,
            "round",
            number,
            "the engine answers otherwise after",
            steps[dies],
        )
    check_sent(trainers([["set 1", "send"]] * 2), 1)
    check(server.answers() == other, "the update after the deaths")
