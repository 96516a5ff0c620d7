# test_life.py: providers come, leave and die; static mappings stay; nothing of those who left remains.
# SPDX-License-Identifier: BSD-2-Clause
import os
import signal
import threading

from case import Case
from wire import M, MAP, PAGE, Provider, map_message


class Providers(Case):
    def setUp(self):
        super().setUp()
        self.served = self.start("--max-providers", "60", "--max-mappings", "100")

    def want_nothing_left(self, *files):
        for file in files:
            self.wait_until(lambda: not self.served.maps_of(file), "mappings of a provider that left", "none",
                            lambda: len(self.served.maps_of(file)))
        self.served.settled()

    def test_leaves_with_live_mappings(self):
        """A provider closes: its mappings are removed, the reservation is whole, the range is free."""
        me = self.provider(self.served)
        file = self.memfd(100 * PAGE)
        for page in range(100):
            self.want("0", me.map(file, shm_offset=2 * page * PAGE, fd_offset=page * PAGE), f"map {page}")
        base = min(entry.start for entry in self.served.maps_of(file))
        me.close()
        self.want_nothing_left(file)
        self.want(True, self.served.is_reserved(base, 64 * M), "the whole region reserved again")
        other = self.provider(self.served)
        self.want("0", other.map(self.memfd(64 * M), len=64 * M), "a map of the whole region")

    def test_killed_with_live_mappings_case_18(self):
        """Case 18: kill -9 of a provider: maps and fds of the daemon are what they were, the range is free."""
        file = self.memfd(8 * PAGE, name="live")
        held = [self.memfd(PAGE, name=f"live{index}") for index in range(8)]

        def work():
            provider = Provider(self.path)
            answers = [provider.map(file, len=8 * PAGE)]
            answers += [provider.map(each, shm_offset=M + index * PAGE) for index, each in enumerate(held)]
            assert set(answers) == {"0"}, answers
            provider.send(map_message(shm_offset=2 * M)[:20], [file])
            return provider

        before = sorted(entry.path for entry in self.served.maps() if entry.inode)
        for _ in range(5):
            pid = self.child(work)
            base = self.base_of(self.served, file)
            self.want(True, self.served.fds() != self.served.base, "open fds beyond the base while it lives")
            self.kill_child(pid)
            self.want_nothing_left(file, *held)
            self.want(before, sorted(entry.path for entry in self.served.maps() if entry.inode), "files in the daemon's address space")
            self.want(True, self.served.is_reserved(base, 64 * M), "the whole region reserved again")
        other = self.provider(self.served)
        self.want("0", other.map(file, len=8 * PAGE), "a map of the range")

    def test_killed_while_it_works_case_18(self):
        """Case 18: killed in the middle of maps and unmaps, at no particular moment."""
        file = self.memfd(M, name="busy")

        def work():
            provider = Provider(self.path)

            def turn():
                while True:
                    provider.map(file, len=M)
                    provider.unmap(len=M)
            threading.Thread(target=turn, daemon=True).start()
            return provider

        for round in range(10):
            pid = self.child(work)
            for _ in range(round):
                os.sched_yield()
            self.kill_child(pid)
            self.want_nothing_left(file)

    def test_stopped_provider_keeps_its_mappings(self):
        file = self.memfd(name="stopped")

        def work():
            provider = Provider(self.path)
            assert provider.map(file) == "0"
            return provider

        pid = self.child(work)
        os.kill(pid, signal.SIGSTOP)
        other = self.provider(self.served)
        self.want("-EEXIST", other.map(file), "a map over a stopped provider's")
        self.want_served(other, self.memfd(), shm_offset=M)
        self.kill_child(pid)
        self.want_nothing_left_but(other, file)

    def want_nothing_left_but(self, other, file):
        self.wait_until(lambda: other.map(file) == "0", "the range of a killed provider", "free")

    def test_fd_passed_on_lives_after_its_provider(self):
        """A connection that another process holds too is still a provider: its mappings live until the last one closes."""
        me = self.provider(self.served)
        file = self.memfd()
        self.want("0", me.map(file), "map")
        second = me.socket.dup()
        me.close()
        other = self.provider(self.served)
        self.want("-EEXIST", other.map(file), "a map over it")
        second.close()
        self.want_nothing_left_but(other, file)

    def test_connects_and_leaves_at_once(self):
        for _ in range(200):
            self.provider(self.served).close()
        self.served.settled()  # the ends of more than --max-providers may be unseen
        self.want_served(self.provider(self.served), self.memfd())

    def test_many_providers_at_once(self):
        everybody = [self.provider(self.served) for _ in range(50)]
        files = [self.memfd(name=f"of{index}") for index in range(len(everybody))]
        for index, provider in enumerate(everybody):
            provider.send(map_message(shm_offset=index * PAGE), [files[index]])
        for index, provider in enumerate(everybody):
            self.want("0", provider.answer(MAP), f"provider {index}")
        for provider in everybody[::2]:
            provider.close()
        for file in files[::2]:
            self.wait_until(lambda: not self.served.maps_of(file), "mappings of those who left", "none")
        for file in files[1::2]:
            self.want(1, len(self.served.maps_of(file)), "mappings of one who stayed")

    def test_same_range_wanted_by_many(self):
        """Of many who ask for one range at the same moment exactly one gets it."""
        everybody = [self.provider(self.served) for _ in range(10)]
        file = self.memfd()
        for _ in range(5):
            self.served.stop()
            for provider in everybody:
                provider.send(map_message(), [file])
            self.served.go_on()
            got = [provider.answer(MAP) for provider in everybody]
            self.want(["-EEXIST"] * 9 + ["0"], sorted(got), "answers")
            self.want("0", everybody[got.index("0")].unmap(), "unmap")


class Static(Case):
    def path_of(self, fd):
        return os.readlink(f"/proc/self/fd/{fd}")

    def test_static_mapping(self):
        """--map: there from the start, nobody's to remove, mapped where it was asked for."""
        file = self.file(4 * PAGE)
        os.pwrite(file, b"static", PAGE)
        served = self.start("--map", f"shmid=0,path={self.path_of(file)},offset=4096,len=8192,shm-offset=1M")
        entry, = served.maps_of(file)
        self.want(("rw-s", PAGE, 2 * PAGE), (entry.access, entry.offset, entry.end - entry.start), "access, file offset and length")
        self.want(0, (entry.start - M) % (1 << 30), "base, modulo 1 GiB")
        self.want(b"static", served.read_memory(entry.start, 6), "what the region shows")
        me = self.provider(served)
        self.want("-EPERM", me.unmap(shm_offset=M, len=2 * PAGE), "a provider's unmap")
        self.want("-ENOENT", me.unmap(shm_offset=M), "a provider's unmap of its half")
        self.want("-EEXIST", me.map(self.memfd(), shm_offset=M + PAGE), "a provider's map over it")
        self.want("0", me.map(self.memfd(), shm_offset=M + 2 * PAGE), "a provider's map beside it")

    def test_static_defaults(self):
        """Without offset, len and shm-offset: the whole file at the region's start."""
        file = self.file(4 * PAGE)
        served = self.start("--map", f"shmid=0,path={self.path_of(file)}")
        entry, = served.maps_of(file)
        self.want((0, 4 * PAGE, 0), (entry.offset, entry.end - entry.start, entry.start % (1 << 30)), "file offset, length, place")

    def test_static_rest_of_the_file(self):
        file = self.file(4 * PAGE)
        served = self.start("--map", f"shmid=0,path={self.path_of(file)},offset=4K")
        entry, = served.maps_of(file)
        self.want((PAGE, 3 * PAGE), (entry.offset, entry.end - entry.start), "file offset and length")

    def test_static_read_only(self):
        file = self.file(4 * PAGE)
        os.chmod(self.path_of(file), 0o444)
        served = self.start("--map", f"shmid=0,path={self.path_of(file)},ro")
        self.want("r--s", served.maps_of(file)[0].access, "access of a static mapping with ro")

    def test_static_several(self):
        files = [self.file(2 * PAGE, name=f"static{index}") for index in range(3)]
        options = []
        for index, file in enumerate(files):
            options += ["--map", f"shmid=3,path={self.path_of(file)},shm-offset={index * 8192}"]
        served = self.start(*options, regions=("0:1M", "3:1M"))
        starts = [served.maps_of(file)[0].start for file in files]
        self.want([starts[0], starts[0] + 2 * PAGE, starts[0] + 4 * PAGE], starts, "places")

    def test_static_can_be_truncated(self):
        """The warning says what whoever wrote the flag can do; --unsealed=refuse takes no file."""
        for place in (self.logs, "/dev/shm"):
            path = os.path.join(place, f"mrshare-test-{os.getpid()}")
            with open(path, "wb") as file:
                self.addCleanup(os.unlink, path)
                file.truncate(PAGE)
            served = self.start("--map", f"shmid=0,path={path}")
            warning = next(line for line in served.log().splitlines() if "can be truncated" in line)
            self.want_in("let nobody truncate it", warning, "the warning")
            self.want(False, "memfd" in warning, f"whether it speaks of a memfd: {warning}")
            served.end()
            failed = self.start("--map", f"shmid=0,path={path}", "--unsealed=refuse", ready=False)
            self.want(1, failed.wait(5), f"exit code with {path}")
            self.want_in("--unsealed=refuse is set", failed.log(), "the message")

    def test_static_errors_at_start(self):
        """What cannot be mapped ends the start: one line that names it, no socket file."""
        good = self.path_of(self.file(4 * PAGE))
        empty, odd = self.file(0, name="empty"), self.file(PAGE + 1, name="odd")
        os.mkfifo(os.path.join(self.logs, "fifo"))
        for spec, names in ((f"shmid=0,path={self.logs}/missing", "missing"), (f"shmid=0,path={self.directory}", self.directory),
                            (f"shmid=9,path={good}", "9"), (f"shmid=0,path={good},len=20480", "file"),
                            (f"shmid=0,path={good},offset=1M", "file"), (f"shmid=0,path={good},shm-offset=64M", ""),
                            (f"shmid=0,path={good},shm-offset=65532K", ""), (f"shmid=0,path={self.logs}/fifo", "fifo"),
                            ("shmid=0,path=/dev/null,len=4096", "/dev/null"), ("shmid=0,path=/dev/null", "/dev/null: it is no regular file"),
                            (f"shmid=0,path={self.directory},ro", f"{self.directory}: it is no regular file"),
                            (f"shmid=0,path={self.path_of(empty)}", "empty: the file is empty\n"),
                            (f"shmid=0,path={self.path_of(empty)},offset=4K", "empty: the file is empty\n"),
                            (f"shmid=0,path={good},offset=16K", "the file has 16 KiB, none of it from offset on\n"),
                            (f"shmid=0,path={self.path_of(odd)}", "give a len that is a multiple of 4096")):
            failed = self.start("--map", spec, ready=False)
            self.want(True, failed.wait(5) in (1, 2), f"{spec}: exit code 1 or 2 ({failed.process.returncode})")
            self.want_in(names, failed.log(), f"{spec}: the message")
            self.want(False, os.path.exists(self.path), f"{spec}: a socket file")
        failed = self.start("--map", f"shmid=0,path={good}", "--map", f"shmid=0,path={good},shm-offset=8K", ready=False)
        self.want(True, failed.wait(5) in (1, 2), f"overlapping static mappings: exit code 1 or 2 ({failed.process.returncode})")
