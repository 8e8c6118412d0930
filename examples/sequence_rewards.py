#!/usr/bin/env python3
"""A verifier: rewards by token for sequences of numbers, as in verl's test of arithmetic sequences (docs/ppo.md).

    rl_config.verifier_function=[command] "rl_config.verifier_command=python3 examples/sequence_rewards.py"

Each character up to the first wrong one gets 1 / (length of the answer + 1). The end gets what the character before it
got, even where it comes too early. An end without a character before it gets 1 if the answer is empty, else 0.
"""
import json
import sys

LETTERS = "SEPU0123456789,:"  # by id: those of examples/sequence
END = LETTERS.index("E")


def rewards_of(ids, answer):
    share = 1 / (len(answer) + 1)
    rewards, right = [], True
    for place, token in enumerate(ids):
        if token == END:
            rewards.append(rewards[-1] if rewards else float(answer == ""))
            break
        right = right and place < len(answer) and LETTERS[token] == answer[place]
        rewards.append(share if right else 0.0)
    return rewards


def main():
    for line in sys.stdin:
        sample = json.loads(line)
        print(json.dumps({"id": sample["id"], "scores": rewards_of(sample["ids"], sample["answer"])}), flush=True)


if __name__ == "__main__":
    main()
