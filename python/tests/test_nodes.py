"""Ranks on several nodes, simulated on one machine: both nets, own tensors, peers that die, attempts that fail.

They run where torch is (TORCH=1 make test-python installs it). To import it takes seconds, so processes play several
cases."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import ranks
import test_switch

import treadle

TOOLS = os.path.join(ranks.HERE, "..", "..", "tools")
HAS_TORCH = importlib.util.find_spec("torch") is not None


def has_ucx():
    said = subprocess.run([sys.executable, "-m", "treadle", "doctor", "--json"], capture_output=True, text=True).stdout
    return any(net["name"] == "ucx" and net["usable"] for net in json.loads(said)["nets"])


def meet(name, rank, size, folder, net, nodes=2, of=None, timeout=60):
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", init_method=f"file://{folder}/{name}", rank=rank, world_size=size)
    return treadle.Group.torch(of, net=net, nodes=nodes, timeout=timeout)


def move_all(rank, size, name, folder, cases):
    return [move(rank, size, name, folder, *case) for case in cases]


def move(rank, size, name, folder, net, train, tp, sides, nodes=2):
    """Three switches with other weights each; what the last one says it has moved."""
    import numpy

    model = treadle.Model(folder)
    group = meet(name, rank, size, folder, net, nodes)
    source, target = treadle.Layout(model, train, size), treadle.Layout(model, f"vllm:tp={tp}", size)
    whole = test_switch.read_safetensors(folder)
    own = [
        {(s.chunk, s.name) if s.chunk else s.name: numpy.full(s.shape, 7, "uint16") for s in layout.storages(rank)}
        for layout in (source, target)
    ]
    options = {}
    if "train" in sides:
        options["train_tensors"] = own[0]
    if "infer" in sides:
        options |= {"infer_tensors": own[1]} | ({} if "train" in sides else {"keep": "host"})
    with treadle.Switch(group, source, target, page=4096, cap=4 << 20, timeout=100, **options) as sw:
        sw.load()
        for _ in range(3):
            sw.to_infer()
            test_switch.compare(sw.infer.numpy(), test_switch.vllm_cut(whole, 4, tp, rank % tp))
            if "infer" in sides:
                test_switch.compare(own[1], test_switch.vllm_cut(whole, 4, tp, rank % tp))
            stats = sw.stats
            sw.to_train()
            for array in sw.train.numpy().values():
                array ^= 1
            whole = {n: a ^ numpy.uint16(1) for n, a in whole.items()}
    return {key: stats[key] for key in ("node_moved_bytes", "node_sent_bytes", "relayed_bytes", "staged_bytes")}


def storm(rank, size, name, folder):
    """The table itself: random messages both ways at once, of several parts or of none, begun in any order; each part
    has what it should."""
    import ctypes
    import random

    import torch.distributed as dist

    from treadle import _abi, _net

    meet(name, rank, size, folder, "tcp")
    row = _net.Torch(dist.new_group(range(size)))
    table, options, net = row.table, _abi.treadle_net_options(rank=rank, ranks=size), ctypes.c_void_p()
    done, room, count, draw = ctypes.c_bool(), ctypes.create_string_buffer(64), ctypes.c_size_t(), random.Random(rank)
    assert (
        table.open(ctypes.byref(options), ctypes.byref(net)) == 0
        and table.address(net, room, 64, ctypes.byref(count)) == 0
    )
    other, at = 1 - rank, ctypes.create_string_buffer(row._words_of(1 - rank))
    request, nothing = ctypes.c_void_p(), _abi.treadle_net_part()
    assert table.send(net, other, 0, nothing, 0, ctypes.byref(request)) == treadle.State.status  # not connected
    assert (
        table.connect(net, other, room, count) == treadle.Refused.status and table.connect(net, other, at, count) == 0
    )
    for turn in range(4):
        sizes = [random.Random(turn * 100 + k).choice((0, 1, 1000, 70000)) for k in range(40)]
        wanted = {}
        for key in draw.sample([(k, out) for k in range(40) for out in (True, False)], 80):
            k, out = key
            parts = (_abi.treadle_net_part * 2)()
            cut = draw.randint(0, sizes[k])
            memory = [
                ctypes.create_string_buffer(bytes([17 * k + turn & 255 if out else 0]) * max(1, n), max(1, n))
                for n in (cut, sizes[k] - cut)
            ]
            for part, piece, n in zip(parts, memory, (cut, sizes[k] - cut)):
                part.at, part.bytes = ctypes.addressof(piece), n
            assert (table.send if out else table.receive)(
                net, other, (k & 1) << 39 | turn << 28 | k >> 1, parts, 2, ctypes.byref(request)
            ) == 0
            wanted[key] = request.value, memory, (cut, sizes[k] - cut)
        end = time.monotonic() + 60
        while wanted and time.monotonic() < end:
            table.wait(net, 0.01)
            for (k, out), (number, memory, lengths) in list(wanted.items()):
                assert table.test(net, number, ctypes.byref(done)) == 0
                if not done.value:
                    continue
                del wanted[k, out]
                assert out or all(
                    piece.raw[:n] == bytes([17 * k + turn & 255]) * n for piece, n in zip(memory, lengths)
                ), (turn, k)
        assert not wanted
    table.close(net)
    return row.refusal()


def updates(rank, size, name, folder):
    """Updates that send what has changed, from own train tensors, over torch: messages of two parts. What each has
    sent, and would have sent."""
    import numpy
    import torch.distributed as dist

    model = treadle.Model(folder)
    meet(name, rank, size, folder, "tcp")
    group = meet(name, rank, size, folder, "torch", of=dist.new_group(range(size)))
    source, target = treadle.Layout(model, "megatron:tp=2", size), treadle.Layout(model, "vllm:tp=1", size)
    own = {(s.chunk, s.name) if s.chunk else s.name: numpy.zeros(s.shape, "uint16") for s in source.storages(rank)}
    whole, answer = test_switch.read_safetensors(folder), []
    with treadle.Switch(group, source, target, train_tensors=own, page=4096, delta=True, timeout=100) as sw:
        sw.load()
        sw.to_infer()
        for _ in range(3):
            for array in own.values():
                array.reshape(-1)[:1] ^= 1
            sw.update()
            answer.append([sw.stats["delta_bytes"], sw.stats["dense_bytes"]])
        for array in own.values():
            array ^= 1
        sw.update()
        for array in own.values():
            array.reshape(-1)[:1] ^= 1
        sw.update()
        test_switch.compare(
            sw.infer.numpy(), test_switch.vllm_cut({n: a ^ numpy.uint16(1) for n, a in whole.items()}, 4, 1, 0)
        )
    return answer


def failures(*arguments):
    return [updates(*arguments), storm(*arguments), differing(*arguments), failing(*arguments), interrupted(*arguments)]


def on_hosts(rank, size, name, folder):
    """Two machines, as the kernel's network sees it: ranks find out who is where."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="tcp://10.77.0.1:7020", rank=rank, world_size=size)
    return [
        move(rank, size, name, folder, net, "megatron:tp=2", 1, "train infer", nodes=None) for net in ("torch", "tcp")
    ]


def killed(rank, size, name, folder):
    """Rank 3 dies in the middle of one of many arrows."""
    model = treadle.Model(folder)
    group = meet(name, rank, size, folder, "torch", timeout=60)
    layouts = treadle.Layout(model, "megatron:tp=4", size), treadle.Layout(model, "vllm:tp=1", size)
    with treadle.Switch(group, *layouts, page=4096, cap=2 << 20, keep="host", timeout=5) as sw:
        sw.load()
        sw.to_infer()
        sw.to_train()
        if rank == 3:
            print('["killed"]', flush=True)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
        begin = time.monotonic()
        try:
            while time.monotonic() - begin < 20:
                sw.to_infer()
                sw.to_train()
            return ["it went on"]
        except treadle.Error as error:
            answer = [type(error).__name__, str(error), time.monotonic() - begin, sw.mode]
    try:
        treadle.Group.torch(net="torch", nodes=2, timeout=0.5)
    except treadle.Error as error:
        return [*answer, type(error).__name__, str(error)]


def failing(rank, size, name, folder):
    """An attempt that fails in the middle, by rank 1; then the same group, the same process group, and a new one."""
    import torch.distributed as dist

    model = treadle.Model(folder)
    layouts = treadle.Layout(model, "megatron:tp=2", size), treadle.Layout(model, "vllm:tp=1", size)
    groups = [dist.new_group(range(size)) for _ in range(2)]
    isend, sent, answer = dist.isend, [], []

    def bad(*arguments, **options):
        sent.append(0)
        if rank == 1 and len(sent) > 3:
            raise OSError("the cable is loose")
        return isend(*arguments, **options)

    def arrow(sw):
        try:
            answer.append(sw.to_infer())
        except treadle.Error as error:
            answer.append(
                [type(error).__name__, str(error), sw.mode, str(error.__cause__.__cause__ if error.__cause__ else None)]
            )

    with treadle.Switch(
        meet(name, rank, size, folder, "torch", of=groups[0]), *layouts, page=4096, cap=2 << 20, keep="host", timeout=10
    ) as sw:
        sw.load()
        dist.isend = bad
        arrow(sw)
        dist.isend = isend
        arrow(sw)
    try:
        meet(name, rank, size, folder, "torch", of=groups[0])
    except treadle.Refused as error:
        answer.append(str(error))
    with treadle.Switch(
        meet(name, rank, size, folder, "torch", of=groups[1]), *layouts, page=4096, cap=2 << 20, keep="host", timeout=10
    ) as sw:
        sw.load()
        arrow(sw)
        test_switch.compare(sw.infer.numpy(), test_switch.vllm_cut(test_switch.read_safetensors(folder), 4, 1, 0))
    return answer


def differing(rank, size, name, folder):
    """Ranks that give different nets, and different process groups."""
    import torch.distributed as dist

    model = treadle.Model(folder)
    layouts = treadle.Layout(model, "megatron:tp=2", size), treadle.Layout(model, "vllm:tp=1", size)
    answer = []
    meet(name, rank, size, folder, "tcp", timeout=60)
    others = [dist.new_group(range(size)) for _ in range(2)]
    for net, of in (("torch", others[rank]), (("torch", "tcp")[rank], others[0])):
        try:
            treadle.Switch(meet(name, rank, size, folder, net, of=of), *layouts, page=4096, timeout=10)
        except treadle.Error as error:
            answer.append([type(error).__name__, str(error)])
    return answer


def interrupted(rank, size, name, folder):
    """Ctrl-C in the main thread while it waits for messages; an arrow that was started, and is cancelled."""
    import torch.distributed as dist

    model = treadle.Model(folder)
    layouts = treadle.Layout(model, "megatron:tp=2", size), treadle.Layout(model, "vllm:tp=1", size)
    answer = []
    for how in ("signal", "cancel"):
        group = meet(name, rank, size, folder, "torch", of=dist.new_group(range(size)))
        isend = dist.isend
        with treadle.Switch(group, *layouts, page=4096, keep="host", timeout=20) as sw:
            sw.load()
            if rank == 1:  # it sends nothing that arrives
                dist.isend = lambda tensor, to, group, tag: isend(tensor, to, group=group, tag=tag ^ 1 << 19)
            begin = time.monotonic()
            try:
                if how == "signal":
                    if rank == 0:
                        signal.signal(signal.SIGALRM, signal.default_int_handler)
                        signal.setitimer(signal.ITIMER_REAL, 0.5)
                    sw.to_infer()
                else:
                    started = sw.to_infer(wait=False)
                    time.sleep(0.5)
                    if rank == 0:
                        sw.cancel()
                    started.result()
            except (treadle.Error, KeyboardInterrupt) as error:
                answer.append([type(error).__name__, time.monotonic() - begin, sw.mode])
            dist.isend = isend
    return answer


@unittest.skipUnless(HAS_TORCH, "torch is not installed")
class TestNodes(ranks.Folder, unittest.TestCase):
    def play(self, size, function):
        """The answers of ranks; works that were given up do no harm at their end."""
        processes = ranks.start(size, "test_nodes", function, self.model)
        answers = ranks.finish(processes)
        for process, answer in zip(processes, answers):
            self.assertEqual(process.returncode, 0 if answer[0] == "ok" else -signal.SIGALRM, answer)
        return [answer[-1] for answer in answers]

    def test_bytes(self):
        cases = [
            (net, *case)
            for net in ("torch", "tcp")
            for case in (
                ("megatron:tp=2,pp=2", 4, ""),
                ("megatron:tp=4", 1, "train infer"),
                ("fsdp2:dp=4", 2, "train"),
                ("fsdp2:dp=4", 1, "infer"),
            )
        ]
        if has_ucx():
            cases.append(("ucx", "fsdp2:dp=4", 1, "train infer"))
        of_ranks = ranks.run(4, "test_nodes", "move_all", self.model, cases)
        for number, (net, train, tp, sides) in enumerate(cases):
            with self.subTest(net=net, train=train, tp=tp, sides=sides):
                answers = [of_rank[number] for of_rank in of_ranks]
                plan = treadle.plan(treadle.Model(self.model), train, f"vllm:tp={tp}", 4, nodes=2)
                moved, sent, relayed, staged = (
                    sum(a[k] for a in answers)
                    for k in ("node_moved_bytes", "node_sent_bytes", "relayed_bytes", "staged_bytes")
                )
                self.assertEqual(
                    [moved, sent, relayed], [plan["node_moved_bytes"], plan["node_moved_bytes"], plan["relayed_bytes"]]
                )
                self.assertGreater(relayed, 0)
                self.assertEqual(staged > 0, bool(sides), answers)

    def test_hosts(self):
        """Two hosts made of network namespaces; the kernel's count of what came in at each."""

        def script(words):
            done = subprocess.run(
                ["bash", "-c", f"source {TOOLS}/two-hosts; {words}"],
                env={**os.environ, "HOSTS": word},
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.strip()

        word = f"python{os.getpid()}"
        if not os.path.exists(f"{TOOLS}/two-hosts"):
            self.skipTest("tools/two-hosts is not there")
        lacks = script("hosts_lack; hosts_remove; true")
        if lacks:
            self.skipTest(lacks)
        self.addCleanup(script, "hosts_remove")
        script("hosts_make")
        before = [int(script(f"hosts_read {host} rx_bytes")) for host in range(2)]
        answers = ranks.finish(
            ranks.start(
                2,
                "test_nodes",
                "on_hosts",
                self.model,
                environment={"GLOO_SOCKET_IFNAME": "cable"},
                where=lambda rank: ["ip", "netns", "exec", f"treadle-{word}-{rank}"],
            )
        )
        for host, answer in enumerate(answers):
            self.assertEqual(answer[0], "ok", answer)
            moved = 3 * sum(of_net["node_moved_bytes"] for of_net in answer[1])
            self.assertGreater(moved, 10 << 20)
            self.assertLess(int(script(f"hosts_read {host} rx_bytes")) - before[host], moved * 1.03 + (1 << 20))

    def test_killed(self):
        answers = self.play(4, "killed")
        refused = 0
        for answer in answers[:3]:
            kind, said, seconds, mode, again, why = answer
            self.assertEqual([kind, mode], ["Peer", "train"], answer)
            self.assertLess(seconds, 8)
            refused += again == "Refused" and "was used in an attempt that failed" in why
        self.assertGreater(refused, 0, answers)

    def test_failures(self):
        """Updates with delta; messages alone; differing nets, an attempt that fails, Ctrl-C and cancel."""
        answers = self.play(2, "failures")
        for rank, (sent, after_storm, differ, (first, second, again, third), stopped) in enumerate(answers):
            for delta, dense in sent:
                self.assertTrue(0 < delta < dense / 20, sent)
            self.assertEqual(after_storm, "")
            for kind, said in differ:
                self.assertEqual(kind, "Refused", said)
            self.assertRegex(differ[0][1], "rank [01] has another net, or another process group than")
            self.assertRegex(
                differ[1][1], "rank [01] has net '.*', and rank [01] '.*': all ranks have to give the same one"
            )
            self.assertEqual([first[0], first[2]], ["Peer", "train"], first)
            self.assertIn("the cable is loose", first[1])
            if rank == 1:
                self.assertEqual(first[3], "the cable is loose")
            self.assertIn(second[0], ("Refused", "Peer"))  # by itself, or told by the other
            self.assertEqual(second[2], "train")
            self.assertIn("was used in an attempt that failed", second[1])
            self.assertIn("was used in an attempt that failed", again)
            self.assertEqual(third, 1)
            self.assertEqual(
                [[a[0], a[2]] for a in stopped],
                [[("KeyboardInterrupt", "Peer")[rank], "train"], [("Cancelled", "Peer")[rank], "train"]],
            )
            self.assertLess(max(a[1] for a in stopped), 5)

    def test_refused(self):
        import torch.distributed as dist

        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)
            try:
                with self.assertRaisesRegex(treadle.Refused, "net is 'mpi', and must be one of tcp, ucx, torch"):
                    treadle.Group.torch(net="mpi")
                with self.assertRaisesRegex(treadle.Refused, "1 rank cannot be divided evenly among 2 nodes"):
                    treadle.Group.torch(nodes=2)
                treadle.Group.torch(net="torch").barrier()
            finally:
                dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
