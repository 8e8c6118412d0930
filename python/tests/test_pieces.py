"""What a loop of one's own is made of: prompts, rewards, advantages, learning rates."""

import json
import os
import tempfile
import unittest

import treadle


class Pieces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "prompts.jsonl")
        with open(self.path, "w", encoding="utf-8") as file:
            for number in range(5):
                line = {"prompt_token_ids": [number + 1, 2], "prompt": f"p{number}", "answer": str(number)}
                file.write(json.dumps(line) + "\n")
        self.prompts = treadle.read_prompts(self.path)

    def test_prompts(self):
        self.assertEqual([list(row) for row in self.prompts["prompt_ids"]], [[n + 1, 2] for n in range(5)])
        self.assertEqual(list(self.prompts["answer"]), [str(n) for n in range(5)])
        with self.assertRaisesRegex(treadle.Refused, "line 3: question: 3 is not in the vocabulary of 3"):
            treadle.read_prompts(self.path, prompt_key="question", vocabulary=3)
        with self.assertRaisesRegex(treadle.Error, "nothing"):
            treadle.read_prompts(self.path + "nothing")

    def test_draws(self):
        drawn = [treadle.draw_prompts(self.prompts, step, 5, seed=7) for step in range(2)]
        for batch in drawn:
            self.assertEqual(sorted(batch["answer"]), [str(n) for n in range(5)])
            self.assertEqual(list(batch["group"]), list(range(5)))
        self.assertNotEqual(list(drawn[0]["seed"]), list(drawn[1]["seed"]))
        in_place = treadle.draw_prompts(self.prompts, 0, 5, seed=7, in_place=True)
        self.assertEqual(list(in_place["answer"]), [str(n) for n in range(5)])
        with self.assertRaisesRegex(treadle.Refused, "step -1"):
            treadle.draw_prompts(self.prompts, -1, 5)

    def test_rewards_and_advantages(self):
        samples = treadle.Batch.of({"ids": [[1], [1, 2], [1, 2, 3], [4]], "group": [0, 0, 1, 1]})
        with treadle.Reward("length:target=2") as reward:
            reward.score(samples)
        self.assertEqual(list(samples["score"])[1], max(samples["score"]))
        treadle.advantages(samples, keep_scale=True)
        advantages = list(samples["advantage"])
        self.assertAlmostEqual(advantages[0] + advantages[1], 0)
        self.assertAlmostEqual(advantages[2] + advantages[3], 0)
        gae = treadle.Batch.of({"ids": [[1, 2, 3]], "group": [0], "reward": [1.0], "values": [[0.5, 0.5, 0.25]]})
        treadle.advantages(gae, "gae", keep_scale=True, gamma=0.5, lam=0.0)
        self.assertEqual([list(row) for row in gae["advantages"]], [[-0.25, -0.375, 0.75]])
        self.assertEqual([list(row) for row in gae["returns"]], [[0.25, 0.125, 1.0]])
        with self.assertRaisesRegex(treadle.Refused, "'values'"):
            treadle.advantages(samples, "gae")
        with self.assertRaisesRegex(treadle.Refused, "group_norm, grpo"):
            treadle.advantages(samples, "grop")
        with self.assertRaisesRegex(treadle.State, "closed"):
            reward.score(samples)
        with self.assertRaisesRegex(treadle.Refused, "rewards|reward"):
            treadle.Reward("lenght")

    def test_gather(self):
        alone = treadle.gather(None, self.prompts)
        self.assertEqual(list(alone["answer"]), list(self.prompts["answer"]))
        with self.assertRaisesRegex(treadle.Refused, "no rows"):
            treadle.gather(None, None)

    def test_rates(self):
        self.assertEqual(treadle.learning_rate(5, lr=1.0, steps=10, style="linear"), 0.5)
        self.assertEqual(treadle.learning_rate(0, lr=1.0, steps=10, warmup_fraction=0.5), 0.0)
        with self.assertRaisesRegex(treadle.Refused, "constant, linear or cosine"):
            treadle.learning_rate(0, lr=1.0, steps=10, style="step")


if __name__ == "__main__":
    unittest.main()
