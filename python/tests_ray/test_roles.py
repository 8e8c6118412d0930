"""The built-in roles: steps of PPO by hand have the weights of `treadle train`, bit for bit."""

import filecmp
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import cluster
import numpy
import treadle
import treadle.ray as tr
from test_calls import Groups
from test_train import CONFIG, SOURCE, TREADLE
from treadle.command import program
from treadle.ray import ClassWithInitArgs, create_colocated_worker_cls

STEPS, PROMPTS, SAMPLES, SEED = 2, 8, 2, 1234
POLICY = os.path.join(SOURCE, "examples", "sequence", "policy")
TEXTS = os.path.join(SOURCE, "examples", "sequence")
ONE = treadle.TrainerOptions(threads=1)
FOUR = treadle.Forward(micro_batch_size=4)


def setUpModule():
    cluster.start()


def tearDownModule():
    cluster.stop()


def keys(folder):
    return [
        f"megatron_training.data_path={folder}/data/train.jsonl",
        f"actor_config.save={folder}/run",
        f"megatron_training.val_path={folder}/data/test.jsonl",
        "rl_config.val_n=1",
        f"megatron_training.train_iters={STEPS}",
        f"megatron_training.save_interval={STEPS}",
        f"megatron_training.global_batch_size={PROMPTS}",
        f"megatron_training.seed={SEED}",
        f"rl_config.n_samples_per_prompt={SAMPLES}",
        "rl_config.critic_warmup=0",
        "actor_config.micro_batch_size=4",
        "generate_config.sampling_config.max_tokens=12",
    ]


def actor_of(train, infer, **options):
    return ClassWithInitArgs(
        tr.ActorRollout,
        POLICY,
        train,
        infer,
        sampling=treadle.Sampling(n=SAMPLES, max_tokens=12, logprobs_of="scaled"),
        forward=FOUR,
        trainer=ONE,
        engine=treadle.GeneratorOptions(threads=1),
        kv_bytes=1 << 20,
        **options,
    )


def critic_of(layout):
    return ClassWithInitArgs(tr.Critic, POLICY, layout, forward=FOUR, trainer=ONE)


class TestRoles(Groups):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="treadle-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.command(program(), "data", "sequence", "--out", f"{self.folder}/data", "--noise", "0.3")
        tokenizer, chat = treadle.Tokenizer(TEXTS), treadle.Chat(TEXTS)
        self.prompts = treadle.read_prompts(f"{self.folder}/data/train.jsonl", tokenizer, chat)
        self.tokenizer, self.reward = tokenizer, treadle.Reward("sequence")

    def command(self, *words):
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run(words, cwd=SOURCE, env={**os.environ, **root}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def roles(self, slots, cls, **options):
        made = self.group(cluster.pool(slots, use_gpu=False), cls, **options)
        made.init_model()
        return made

    def step(self, actor, critic, step):
        """As `treadle train` takes it; samples stay with the workers until advantages need them all."""
        asked = treadle.draw_prompts(self.prompts, step, PROMPTS, seed=SEED)
        drawn = actor.generate_sequences(asked)
        values, old = critic.compute_values(drawn), actor.compute_log_prob(drawn)
        samples = drawn.get()
        samples.union(values.get())
        samples.union(old.get())
        self.assertEqual(bits(samples, "old_log_probs"), bits(samples, "rollout_log_probs"))
        self.tokenizer.decode_rows(samples, "ids", "completion")
        self.reward.score(samples)
        treadle.advantages(samples, "gae", gamma=1.0, lam=1.0)
        learned = []
        for update, rate in ((critic.update_critic, 1e-3), (actor.update_actor, 4e-4)):
            samples.meta["lr"] = treadle.learning_rate(step, lr=rate, steps=STEPS, style="linear")
            learned.append(update(samples))
        return [future.get().meta["figures"] for future in learned]

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun")
    def test_steps(self):
        words = [TREADLE, "train", CONFIG, *keys(self.folder), "--threads", "1", "--json"]
        told = self.command("mpirun", "--oversubscribe", "-n", "2", *words)
        actor = self.roles(2, actor_of("megatron:tp=2", "vllm:tp=1"))
        critic = self.roles(2, critic_of("megatron:tp=1"))
        for step in range(STEPS):
            of_critic, of_actor = self.step(actor, critic, step)
        self.assertEqual(of_actor["steps"], STEPS)
        with open(f"{self.folder}/run/metrics.jsonl") as file:
            last = [json.loads(line) for line in file][-1]
        last = last.get("data", last)
        self.assertEqual(of_critic["vf_loss"], last["critic/vf_loss"])
        self.assertEqual(of_actor["pg_loss"], last["actor/pg_loss"])
        digests = {f"{digest:016x}" for digest in actor.weights_digest()}
        self.assertEqual(digests, {json.loads(told)["weights_digest"]})
        self.checkpoints(actor, critic)

    def checkpoints(self, actor, critic):
        """The same files; and roles in other layouts go on from those of the run."""
        actor.save_checkpoint(f"{self.folder}/mine/actor")
        critic.save_checkpoint(f"{self.folder}/mine/critic")
        compared = 0
        for path in glob.glob(f"{self.folder}/mine/**/*.safetensors", recursive=True):
            other = path.replace("/mine/", f"/run/global_step_{STEPS}/")
            self.assertTrue(filecmp.cmp(path, other, shallow=False), path)
            compared += 1
        self.assertGreaterEqual(compared, 4)
        digests = actor.weights_digest()[0], critic.weights_digest()[0]
        classes = {"actor": actor_of("fsdp2", "vllm:tp=1"), "critic": critic_of("megatron:tp=1")}
        alone = self.group(cluster.pool(1, use_gpu=False), create_colocated_worker_cls(classes))
        for name, digest in zip(classes, digests):
            role = alone.spawn([name])[name]
            role.init_model()
            self.assertNotEqual(role.weights_digest(), [digest])
            role.load_checkpoint(f"{self.folder}/run/global_step_{STEPS}/{name}")
            self.assertEqual(role.weights_digest(), [digest])

    def test_frozen(self):
        """Of four workers two get the same rows; and padding goes neither back nor into a loss."""
        self.command(sys.executable, "examples/make_reward_model.py", POLICY, f"{self.folder}/reward", "1=1.0")
        actor = self.roles(4, actor_of("megatron:tp=2", "vllm:tp=1", reference=POLICY))
        ref = self.roles(2, ClassWithInitArgs(tr.RefPolicy, POLICY, "megatron:tp=1", trainer=ONE))
        judge = self.roles(1, ClassWithInitArgs(tr.RewardModel, f"{self.folder}/reward", "megatron:tp=1", trainer=ONE))
        ref.auto_padding = actor.auto_padding = True
        asked = treadle.draw_prompts(self.prompts, 0, PROMPTS, seed=SEED)
        drawn = actor.generate_sequences(asked)
        samples = drawn.get()
        asked.meta["sampling"] = {"n": 1, "max_tokens": 3}
        self.assertEqual(max(map(len, actor.generate_sequences(asked).get()["ids"].tolist())), 3)
        self.assertEqual(len(samples), PROMPTS * SAMPLES)
        self.assertEqual(samples["group"].tolist(), asked.repeat(SAMPLES)["group"].tolist())
        scores = judge.compute_rm_score(drawn).get()["rm_score"].tolist()
        ends = [float(ids[-1] == 1) for ids in samples["ids"].tolist()]
        self.assertEqual(numpy.round(scores, 5).tolist(), ends)
        self.assertEqual({0.0, 1.0}, set(ends))
        for rows in (samples, samples[0:13]):
            self.assertEqual(
                bits(ref.compute_ref_log_prob(rows).get(), "ref_log_probs"), bits(rows, "rollout_log_probs")
            )
            found = actor.compute_ref_log_prob(rows).get()
            self.assertEqual(bits(found, "ref_log_probs"), bits(rows, "rollout_log_probs"))
        odd = samples[0:13]
        odd["advantage"] = numpy.ones(13)
        with self.assertRaisesRegex(treadle.Peer, "ActorRollout: 1 rows of padding would count in the loss"):
            actor.update_actor(odd).get()

    def test_example(self):
        """With a Ray of its own."""
        words = [POLICY, TEXTS, f"{self.folder}/data/train.jsonl", "2"]
        said = self.command(sys.executable, "examples/python/08_roles.py", *words)
        self.assertRegex(said, r"step 2: score 0\.\d+, value loss 0\.\d+, norm \d\.\d+\nweights [0-9a-f]{16}\n$")

    def test_refused(self):
        two = self.group(cluster.pool(2, use_gpu=False), critic_of("megatron:tp=3"))
        rows = treadle.Batch.of({"prompt_ids": [[1]] * 2, "ids": [[2]] * 2})
        with self.assertRaisesRegex(treadle.Refused, "mesh 'critic' is not registered by worker 0 of 2"):
            two.compute_values(rows)
        with self.assertRaisesRegex(treadle.Peer, "failed in 'weights_digest': State: Critic: init_model was not"):
            two.weights_digest()
        with self.assertRaisesRegex(treadle.Peer, "failed in 'init_model': Refused: .*tp=3"):
            two.init_model()


def bits(rows, name):
    return rows[name].numpy().tobytes()


if __name__ == "__main__":
    unittest.main()
