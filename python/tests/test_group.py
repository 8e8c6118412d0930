"""Groups: every way to meet, and to fail to."""

import ctypes
import gc
import os
import threading
import time
import unittest
import weakref

import ranks

import treadle
from treadle import _library


class Files:
    """A store whose get waits, in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, key):
        return os.path.join(self.folder, key.replace("/", "_"))

    def set(self, key, value):
        with open(self.path(key) + ".new", "wb") as file:
            file.write(value)
        os.rename(file.name, self.path(key))

    def get(self, key):
        while not os.path.exists(self.path(key)):
            time.sleep(0.005)
        with open(self.path(key), "rb") as file:
            return file.read()


class Checked(Files):
    def check(self, keys):
        return all(os.path.exists(self.path(key)) for key in keys)


def talk(group):
    all_ = group.gather(bytes([group.rank]) * (group.rank * 5000))
    assert [len(part) for part in all_] == [rank * 5000 for rank in range(group.size)], [len(part) for part in all_]
    assert all(set(part) <= {rank} for rank, part in enumerate(all_))
    group.barrier()
    return [group.rank, group.size]


def meet_by_name(rank, size, name):
    return talk(treadle.Group.join(name, rank, size, timeout=100))


def meet_by_store(rank, size, name, folder, checked):
    store = (Checked if checked else Files)(folder)
    if rank == 1:  # what an older job has left
        store.set("treadle/job/meeting", b"stale")
    if rank == 0:
        time.sleep(0.2)
    return [talk(treadle.Group.store(store, rank, size, job="job", timeout=100)) for _ in range(2)][-1]


def meet_elsewhere(rank, size, name, folder, checked):
    """Rank 2 is in a network namespace of its own, which is as good as another machine, and can reach nobody from
    there."""
    if rank == 2 and ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0:
        return os.strerror(ctypes.get_errno())
    store = (Checked if checked else Files)(folder)
    begin = time.monotonic()
    try:
        treadle.Group.store(store, rank, size, timeout=8)
    except treadle.Error as error:
        return [type(error).__name__, str(error), time.monotonic() - begin, error.__cause__ is None]


def mpi_elsewhere(rank, size, name, folder):
    """Ranks that seem to be on several machines meet by a store, and find that they are on one; and those that are told
    so."""
    from treadle import group

    (here, address, _), comm = group._where(), Comm(Files(folder), rank, size)
    told = treadle.Group.mpi(comm, nodes=[4, 4, 1], timeout=100)
    group._where = lambda: (b"another" if rank == 2 else here, address, True)
    found = treadle.Group.mpi(comm, timeout=100)
    group._where = lambda: (b"another" if rank == 2 else here, address, False)
    try:
        treadle.Group.mpi(comm, timeout=100)
    except treadle.Refused as error:
        refused = str(error)
    nodes = [_library.value("treadle_group_node", g._use(), r) for g in (told, found) for r in range(size)]
    return [nodes, talk(told), talk(found), refused]


class Comm:
    """What mpi4py's communicators do, over files."""

    def __init__(self, store, rank, size):
        self.store, self.rank, self.size, self.calls = store, rank, size, 0

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.size

    def allgather(self, value):
        self.calls += 1
        self.store.set(f"{self.calls} {self.rank}", repr(value).encode())
        return [eval(self.store.get(f"{self.calls} {rank}")) for rank in range(self.size)]

    def bcast(self, value, root=0):
        return self.allgather(value)[root]


def meet_by_mpi(rank, size, name, folder):
    return talk(treadle.Group.mpi(Comm(Files(folder), rank, size), timeout=100))


class TestGroup(ranks.Folder, unittest.TestCase):
    def test_alone(self):
        self.assertEqual(talk(treadle.Group.alone()), [0, 1])
        with self.assertRaises(TypeError):
            treadle.Group()

    def test_meet(self):
        wanted = [[rank, 3] for rank in range(3)]
        self.assertEqual(ranks.run(3, "test_group", "meet_by_name"), wanted)
        for number, how in enumerate([("meet_by_store", True), ("meet_by_store", False), ("meet_by_mpi",)]):
            folder = os.path.join(self.folder, str(number))
            os.mkdir(folder)
            self.assertEqual(ranks.run(3, "test_group", how[0], folder, *how[1:]), wanted)

    def test_refused(self):
        for call, kind, words in (
            (lambda: treadle.Group.join("a b", 0, 1), treadle.Refused, "group name 'a b'"),
            (lambda: treadle.Group.join("a", 2, 2), treadle.Refused, "rank 2 of 2"),
            (lambda: treadle.Group.join("a", 0, 1, timeout=-1), treadle.Refused, "timeout_seconds of -1"),
            (
                lambda: treadle.Group.join("nobodyisthere", 1, 2, timeout=0.1),
                treadle.Timeout,
                "rank 0 did not open it in time",
            ),
            (
                lambda: treadle.Group.join("nobodycomes", 0, 2, timeout=0.1),
                treadle.Timeout,
                "rank 1 did not join in time",
            ),
        ):
            with self.assertRaisesRegex(kind, words):
                call()

    def test_store_is_let_go(self):
        """With its port, and without waiting for Python to look for rings."""
        store = Files(self.folder)
        gone = weakref.ref(store)
        gc.disable()
        try:
            group = treadle.Group.store(store, 0, 1, timeout=10)
            del store
            self.assertIsNone(gone())
            del group
        finally:
            gc.enable()

    def test_store_that_fails(self):
        class Broken:
            def set(self, key, value):
                raise OSError("the disk is full")

            def get(self, key):
                raise KeyError(key)

        with self.assertRaisesRegex(
            treadle.System, "the store's set of 'treadle/0/meeting': OSError: the disk is full"
        ) as caught:
            treadle.Group.store(Broken(), 0, 2, timeout=1)
        self.assertIsInstance(caught.exception.__cause__, OSError)
        with self.assertRaisesRegex(treadle.System, "KeyError"):
            treadle.Group.store(Broken(), 1, 2, timeout=1)
        folder = os.path.join(self.folder, "empty")
        os.mkdir(folder)
        for kind in (Files, Checked):
            begin = time.monotonic()
            with self.assertRaisesRegex(treadle.Timeout, "nobody has set it"):
                treadle.Group.store(kind(folder), 1, 2, timeout=0.2)
            self.assertLess(time.monotonic() - begin, 5)

    def test_several_machines(self):
        if os.geteuid() == 0:
            started = []  # both at once: they only wait
            for checked in (True, False):
                folder = os.path.join(self.folder, f"elsewhere{checked}")
                os.mkdir(folder)
                started.append(ranks.start(3, "test_group", "meet_elsewhere", folder, checked))
                for process in started[-1]:
                    self.addCleanup(process.kill)
            for answers in [ranks.values(processes) for processes in started]:
                if isinstance(answers[2], str):
                    continue  # no right to make namespaces
                for rank, (kind, said, seconds, bare) in enumerate(answers):
                    self.assertIn(kind, ("Timeout", "Peer"), said)
                    self.assertRegex(
                        said, "node 1 cannot reach node 0" if rank == 2 else "node 0 waits in vain for node 1"
                    )
                    self.assertLess(seconds, 12)
                    self.assertTrue(bare)  # that a key is not there is no cause of it
        folder = os.path.join(self.folder, "mpi elsewhere")
        os.mkdir(folder)
        for rank, said in enumerate(ranks.run(3, "test_group", "mpi_elsewhere", folder)):
            self.assertEqual(said[:3], [[0, 0, 1, 0, 0, 0], [rank, 3], [rank, 3]])
            self.assertIn("give one, address=", said[3])

    def test_other_thread(self):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(talk(treadle.Group.alone())))
        thread.start()
        thread.join()
        self.assertEqual(answers, [[0, 1]])


if __name__ == "__main__":
    unittest.main()
