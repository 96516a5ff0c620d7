# test_reload.py: --map-file and SIGHUP: what changes, what stays, what is wrong.
# SPDX-License-Identifier: BSD-2-Clause
import collections
import json
import os
import re
import signal
import socket
import time

import daemon
from case import PROMPT, Case
from wire import M, PAGE

HEAD = "# what this host shares\n\n"


class Reload(Case):
    def setUp(self):
        super().setUp()
        self.map_file = os.path.join(self.logs, "maps")
        self.files = {}

    def file(self, name, size=M):
        path = os.path.join(self.logs, name)
        with open(path, "wb") as made:
            made.truncate(size)
        return path

    def line(self, name, offset=0, length=M, shmid=0, more=""):
        """A line that maps a file of that name, made if it is not there."""
        path = os.path.join(self.logs, name)
        if not os.path.exists(path):
            self.file(name, length)
        return f"shmid={shmid},path={path},len={length},shm-offset={offset}{more}"

    def write(self, *lines, end="\n"):
        """As people do who are careful: the new file is there at once."""
        with open(self.map_file + ".new", "w") as file:
            file.write(HEAD + "\n".join(lines) + (end if lines else ""))
        os.rename(self.map_file + ".new", self.map_file)

    def serve(self, *lines, options=(), **more):
        self.write(*lines)
        self.served = self.start("--map-file", self.map_file, *options, **more)
        self.sockets = self.served.base["socket"]
        return self.served

    def reload(self, *lines, word="read anew"):
        """Writes the file, tells the daemon, and waits for what it says. Its log since then."""
        if lines != (None,):
            self.write(*lines)
        mark = self.served.mark()
        self.served.send_signal(signal.SIGHUP)
        self.served.wait_log(word, mark)
        return self.served.log_since(mark)

    def mapped(self):
        """Names of files that are mapped, with their place in the region."""
        found = {}
        for entry in self.served.maps():
            if entry.path.startswith(self.logs):
                found[os.path.basename(entry.path)] = entry.start
        return found

    def want_mapped(self, *names):
        self.wait_until(lambda: set(self.mapped()) == set(names), "files that are mapped", sorted(names), lambda: sorted(self.mapped()))
        self.served.base = dict(self.served.fds())
        self.served.base["socket"] = self.sockets
        self.served.base = collections.Counter(self.served.base)

    # What changes.

    def test_start(self):
        self.serve(self.line("a"), "  " + self.line("b", M) + " \t\r", "   # a comment", "\t", self.line("c", 2 * M, more=",ro"))
        self.want_mapped("a", "b", "c")
        me = self.provider(self.served)
        self.want("-EEXIST", me.map(self.memfd(), shm_offset=M), "map over a static mapping")
        self.want("-EPERM", me.unmap(shm_offset=M, len=M), "unmap of a static mapping")

    def test_added_removed_kept(self):
        self.serve(self.line("a"), self.line("b", M))
        self.want_mapped("a", "b")
        at = self.mapped()["a"]
        said = self.reload(self.line("c", 2 * M), self.line("a"))
        self.want_in("1 added, 1 removed, 0 failed, 2 in all", said, "what it says")
        self.want_mapped("a", "c")
        self.want(at, self.mapped()["a"], "where the line that stayed is mapped")
        self.want(False, bool(re.search(rf"(un)?mapped .*{self.logs}/a", said)), f"whether the line that stayed was touched: {said!r}")
        self.want_in("0 added, 2 removed, 0 failed, 0 in all", self.reload(), "an empty file")
        self.want_mapped()
        self.want_in("1 added, 0 removed", self.reload(self.line("a")), "one again")
        self.want_mapped("a")

    def test_what_is_freed_can_be_used_at_once(self):
        """The removal comes first: a line may take the place of one that goes, or the same file another place."""
        self.serve(self.line("a"), self.line("b", M))
        for _ in range(3):
            self.want_in("2 added, 2 removed, 0 failed", self.reload(self.line("b"), self.line("a", M)), "two that change places")
            self.want_in("2 added, 2 removed, 0 failed", self.reload(self.line("a"), self.line("b", M)), "and back")
        self.want_mapped("a", "b")

    def test_one_that_fails_leaves_the_rest(self):
        self.serve(self.line("a"))
        short = self.file("short", PAGE)
        said = self.reload(self.line("a"), f"shmid=0,path={short},len={M},shm-offset={M}", self.line("b", 2 * M),
                           f"shmid=0,path={self.logs}/missing,shm-offset={3 * M}")
        self.want_in("1 added, 0 removed, 2 failed, 2 in all", said, "what it says")
        self.want(True, bool(re.search(rf"error: {self.map_file}:4: {short}: ", said)), f"whether the line that is too long is named in {said!r}")
        self.want(True, bool(re.search(rf"error: {self.map_file}:6: .*missing: No such file", said)), f"whether the missing file is named in {said!r}")
        self.want_mapped("a", "b")
        # What failed is tried again.
        self.file("missing")
        self.want_in("1 added, 0 removed, 1 failed", self.reload(None), "the same file, with its file there")
        self.want_mapped("a", "b", "missing")

    def test_a_provider_is_in_the_way(self):
        """A range that a provider has is not taken from it."""
        self.serve(self.line("a"))
        me = self.provider(self.served)
        self.want("0", me.map(self.memfd(), shm_offset=M), "map")
        said = self.reload(self.line("a"), self.line("b", M))
        self.want_in("0 added, 0 removed, 1 failed", said, "a taken range")
        self.want(True, bool(re.search(r"overlaps a mapping in region 0 .*, provider 1's", said)), f"whether {said!r} says whose it is")
        self.want("0", me.unmap(shm_offset=M), "unmap")
        self.want_in("1 added, 0 removed, 0 failed", self.reload(None), "the same when it is free")
        self.want_mapped("a", "b")

    def test_a_file_replaced_under_its_name(self):
        """It is said, and the mapping stays on the file that it was made of; without the line and with it again it is new."""
        self.serve(self.line("a"), self.line("b", M))
        old = os.stat(os.path.join(self.logs, "a")).st_ino
        os.rename(self.file("new"), os.path.join(self.logs, "a"))
        new = os.stat(os.path.join(self.logs, "a")).st_ino
        said = self.reload(None)
        self.want_in(f"warning: {self.logs}/a is no longer the file that is mapped", said, "what it says")
        self.want_in("0 added, 0 removed", said, "what it does")

        def inodes():
            return {entry.inode for entry in self.served.maps() if entry.path.startswith(self.logs)}
        self.want(True, old in inodes() and new not in inodes(), "whether the old file is mapped still")
        self.reload(self.line("b", M))
        self.reload(self.line("a"), self.line("b", M))
        self.want(True, new in inodes() and old not in inodes(), "whether the new file is mapped")
        os.unlink(os.path.join(self.logs, "b"))
        self.want_in(f"{self.logs}/b is no longer the file", self.reload(None), "a file that is gone")
        self.served.base = self.served.fds()

    def test_each_file_is_named(self):
        """Lines whose files differ in numbers only: each that fails, and each that was replaced, is named with its fields."""
        places = [(os.path.join(self.logs, f"model-{index:02}.bin"), index * M) for index in range(30)]
        self.write()
        self.served = self.start("--map-file", self.map_file, "--log-json", ready=False)
        self.served.json = True
        self.wait_until(lambda: "ready" in self.served.log(), "log", "ready", self.served.log)
        self.served.base = self.served.fds()

        def told(word, *lines):
            mark = self.served.mark()
            self.write(*lines)
            self.served.send_signal(signal.SIGHUP)
            self.wait_until(lambda: "read anew" in self.served.log_since(mark), "log", "read anew")
            found = [json.loads(line) for line in self.served.log_since(mark).splitlines()]
            return [(line["MRSHARE_MAP_PATH"], int(line["MRSHARE_SHM_OFFSET"]), line["MRSHARE_SHMID"])
                    for line in found if word in line["message"]]
        lines = [f"shmid=0,path={path},shm-offset={offset},len={M}" for path, offset in places]
        wanted = [(path, offset, "0") for path, offset in places]
        self.want(wanted, told("No such file", *lines), "the lines that fail")
        for path, _ in places:
            self.file(os.path.basename(path))
        self.want([], told("error", *lines), "the lines that fail when their files are there")
        for path, _ in places:
            os.unlink(path)
        self.want(wanted, told("no longer the file", *lines), "the files that are gone")
        self.want([], told("error"), "an empty file")

    def test_a_file_that_cannot_be_looked_at(self):
        """That is not the same as another file under its name."""
        self.serve(self.line("a"))
        path = os.path.join(self.logs, "a")
        os.rename(path, path + ".old")
        os.symlink(path, path)
        said = self.reload(None)
        self.want(True, bool(re.search(rf"warning: {path}: cannot see .*symbolic links", said)), f"whether {said!r} says what failed")
        self.want(False, "no longer" in said, "whether it says that it is another file")
        self.want_in("0 added, 0 removed", said, "what it does")
        os.unlink(path)
        os.rename(path + ".old", path)
        self.want(False, "warning" in self.reload(None), "a warning when it is there again")

    def test_flags_stay(self):
        """What --map names is no business of the file."""
        self.serve(self.line("a"), options=("--map", self.line("flag", 8 * M)))
        self.want_mapped("a", "flag")
        self.reload()
        self.want_mapped("flag")
        said = self.reload(self.line("b", 8 * M), word="nothing was changed")
        self.want_in("--map", said, "a line over a flag's mapping")
        self.want_in(":3:", said, "a line over a flag's mapping")
        self.want_mapped("flag")

    def test_settings(self):
        """Level and limits hold from the file on, and the flags' again when the file has them no more."""
        self.serve("max-mappings=3", "log-level=debug", options=("--max-mappings", "5"))
        me = self.provider(self.served)
        file = self.memfd(8 * PAGE)

        def room():
            count = 0
            while me.map(file, shm_offset=count * PAGE) == "0":
                count += 1
            for index in range(count):
                self.want("0", me.unmap(shm_offset=index * PAGE), "unmap")
            return count
        self.want(3, room(), "mappings with max-mappings=3 in the file")
        self.want_in("log level info; at most 5 mappings", self.reload(), "what it says")
        self.want(5, room(), "mappings with the flag alone")
        self.write("max-mappings=7,2", "max-providers=1", "max-bytes=1G", "max-peers=5", "max-front-ends=2")
        self.reload(None)
        self.want(2, room(), "mappings of one provider")
        second = socket.socket(socket.AF_UNIX)
        self.addCleanup(second.close)
        second.settimeout(10)
        second.connect(self.path)
        self.want(b"", second.recv(1), "what a second provider gets with max-providers=1")
        for limits in ("max-bytes=2G", "max-bytes=2G,1G", "max-bytes=1G", "max-mappings=7,3", "max-mappings=7,2", "max-peers=6"):
            said = self.reload(limits)
            self.want_in("log level info; at most ", said, f"what it says of {limits} alone")
        self.want(False, "at most" in self.reload("max-peers=6"), "whether limits that are the same are told")
        self.reload("max-providers=40")
        self.want_served(self.provider(self.served), file, shm_offset=9 * PAGE)

    def test_quiet_level(self):
        """A level at which the end of the reload is not logged any more is one like others."""
        self.serve("log-level=info")
        self.write("log-level=error")
        me = self.provider(self.served)
        self.served.send_signal(signal.SIGHUP)

        def is_quiet():
            mark = self.served.mark()
            self.want("-ENXIO", me.map(self.memfd(), shmid=9), "map")
            return not self.served.log_since(mark)
        # Fewer tries than lines that are alike are written.
        self.want(True, any(is_quiet() or time.sleep(0.3) for _ in range(8)), "whether warnings are no longer written")
        mark = self.served.mark()
        self.write("log-level=info")
        self.served.send_signal(signal.SIGHUP)
        self.served.wait_log("read anew", mark)

    # What is wrong.

    def want_unchanged(self, text, *words):
        """A reload of that text changes nothing, and says in one line what is wrong and where."""
        with open(self.map_file, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        before = self.mapped()
        mark = self.served.mark()
        self.served.send_signal(signal.SIGHUP)
        line = self.served.wait_log("nothing was changed", mark)
        for word in words:
            self.want_in(word, line, f"what it says of {text[:200]!r}")
        self.want(before, self.mapped(), f"what is mapped after {text[:200]!r}")

    def test_wrong_files(self):
        self.serve(self.line("a"))
        good = self.line("b", M)
        name = f"{self.map_file}:"
        for text, *words in (
                (f"{good}\nbogus\n", f"{name}2:", "bogus"),
                (f"{good}\n\n# x\nshmid=0\n", f"{name}4:", "path=FILE"),
                (f"{good}\nshmid=1,path=/dev/zero\n", f"{name}2:", "region 1 is not given"),
                (f"{good}\nshmid=0,path=/x,shm-offset=64M\n", f"{name}2:", "does not fit"),
                (f"{good}\nshmid=0,path=/x,shm-offset=1\n", f"{name}2:", "multiple of 4096"),
                (f"{good}\n{good}\n", f"{name}2:", "line 1", "overlap"),
                (f"{good}\n{self.line('c', 2 * M - PAGE)}\n", f"{name}2:", "line 1", "overlap"),
                (f"{self.line('d', 3 * M)}\n{self.line('c', 2 * M, 2 * M)}", f"{name}2:", "line 1", "overlap"),
                (f"{good}\n--map shmid=0,path=/x\n", f"{name}2:", "--map shmid"),
                (f"{good}\nmap=shmid=0,path=/x\n", f"{name}2:", "map"),
                (f"{good}\nrdma-listen=10.0.0.1\n", f"{name}2:", "rdma-listen", "cannot change while"),
                (f"{good}\nshmem=1:4K\n", f"{name}2:", "shmem", "cannot change while"),
                (f"{good}\nno-rdma\n", f"{name}2:", "cannot change while"),
                (f"{good}\nlog-level\n", f"{name}2:", "log-level=LEVEL"),
                (f"{good}\nlog-level=loud\n", f"{name}2:", "loud"),
                (f"{good}\nmax-mappings=0\n", f"{name}2:", "max-mappings"),
                (f"{good}\nmax-mappings=1\n{self.line('c', 5 * M)}\n", "max-mappings"),
                (f"{good}\nmax-providers=1000000\n", "open files"),
                (f"{good}\nshmid=0,path=/x\0y\n".encode(), f"{name}2:", "NUL"),
                (b"\0" * 5000, f"{name}1:", "NUL"),
                (b"\xff\xfe" + good.encode("utf-16-le"), f"{name}1:", "NUL"),
                (b"x" * 100000, f"{name}1:"),
                (b"shmid=0,path=/" + b"x" * 200000 + b"\n", f"{name}1:"),
                (b"# " + b"y" * (5 << 20), "4 MiB"),
                (f"{good}\nx\x1b[31m\x07\n", f"{name}2:", "x?[31m?"),
        ):
            self.want_unchanged(text, *words)
        self.want_in("1 added, 0 removed", self.reload(self.line("a"), good), "a good one afterwards")
        self.want_mapped("a", "b")

    def test_odd_files(self):
        """No map file, a directory, a FIFO, a device, no right to read: said, nothing changed, nobody waits."""
        self.serve(self.line("a"))
        me = self.provider(self.served)
        for make, word in ((lambda: None, "No such file"), (lambda: os.mkdir(self.map_file), "no regular file"),
                           (lambda: os.mkfifo(self.map_file), "no regular file"),
                           (lambda: os.symlink("/dev/zero", self.map_file), "no regular file"),
                           (lambda: os.symlink(self.map_file, self.map_file), "symbolic links")):
            if os.path.isdir(self.map_file):
                os.rmdir(self.map_file)
            elif os.path.lexists(self.map_file):
                os.unlink(self.map_file)
            make()
            mark = self.served.mark()
            self.served.send_signal(signal.SIGHUP)
            self.want_served(me, self.memfd(), shm_offset=9 * M)
            self.want_in(word, self.served.wait_log("nothing was changed", mark), "what it says")
        os.unlink(self.map_file)
        self.want_in("0 added, 0 removed", self.reload(self.line("a")), "a good one afterwards")

    def test_wrong_at_the_start(self):
        """A file, or a line of it, that is wrong ends the start, and nothing is left."""
        for lines, word in ((("bogus",), f"{self.map_file}:3: "), ((self.line("a"), f"shmid=0,path={self.logs}/missing,shm-offset={M}"),
                            f"{self.map_file}:4: {self.logs}/missing: No such file"), (None, "No such file")):
            if lines is None:
                os.unlink(self.map_file)
            else:
                self.write(*lines)
            code, _, said = daemon.run(self.binary, "--no-rdma", "--shmem", "0:64M", "--provider-socket", self.path, "--map-file", self.map_file)
            self.want(1, code, f"exit code ({said!r})")
            self.want_in(word, said, "what it says")
            self.want(False, os.path.exists(self.path), "the socket at the end")

    def test_without_a_map_file(self):
        """SIGHUP ends nobody who has nothing to reload."""
        served = self.start()
        served.send_signal(signal.SIGHUP)
        served.wait_log("warning: there is nothing to reload")
        self.want_served(self.provider(served), self.memfd())

    # When.

    def test_many_signals(self):
        """Signals while a reload runs make one more, and the last file is what holds."""
        self.serve(self.line("a"))
        for index in range(40):
            self.write(self.line("a"), self.line(f"f{index}", M))
            self.served.send_signal(signal.SIGHUP)
            if index % 7 == 0:
                time.sleep(0.01)
        self.want_mapped("a", "f39")
        self.want(True, self.served.log().count("read anew") <= 40, "how often it was read")

    def test_while_it_starts(self):
        """A signal before it is ready is kept until then."""
        with self.fuse() as server:
            server.pause()
            self.write(f"shmid=0,path={server.mount_point}/file,len={PAGE},ro", self.line("a", M))
            self.served = self.start("--map-file", self.map_file, "--any-filesystem", ready=False)
            self.sockets = 1
            self.wait_until(lambda: self.served.status("Threads") and self.served.status("Threads") > 1, "start", "a worker")
            time.sleep(0.1)
            self.write(self.line("a", M))
            self.served.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            self.want(False, "ready" in self.served.log(), "whether it is ready while a file's server sleeps")
            server.go_on()
            self.served.wait_log("info: ready")
            self.served.wait_log("0 added, 1 removed")
            self.want_mapped("a")

    def test_before_the_loop_is_there(self):
        """From its first step on a signal ends nobody: here while the map file's server hangs."""
        with self.fuse() as server:
            server.pause()
            served = self.start("--map-file", f"{server.mount_point}/file", ready=False)
            time.sleep(0.3)
            served.send_signal(signal.SIGHUP)
            time.sleep(0.1)
            server.go_on()
            served.awaited = True
            self.want(1, served.process.wait(10), "exit code")
            self.want_in("served by another process", served.log(), "what it says")

    def test_while_a_start_fails(self):
        """A signal that waits for a start which then fails holds up no end."""
        taken = self.file("taken")
        with self.fuse() as server:
            server.pause()
            self.write(f"shmid=0,path={server.mount_point}/file,len={PAGE},ro")
            served = self.start("--map-file", self.map_file, "--any-filesystem", "--socket-path", taken, ready=False)
            self.wait_until(lambda: served.status("Threads") > 1, "start", "a worker")
            time.sleep(0.2)
            served.send_signal(signal.SIGHUP)
            time.sleep(0.1)
            server.go_on()
            served.awaited = True
            self.want(1, served.process.wait(10), "exit code")
            self.want_in("is no socket", served.log(), "what it says")

    def test_a_file_whose_server_hangs(self):
        """It holds up its reload, and nobody else; when it answers, the reload goes on, and the one that was asked for meanwhile."""
        with self.fuse() as server:
            self.serve(self.line("a"), options=("--any-filesystem",))
            server.pause()
            self.write(self.line("a"), f"shmid=0,path={server.mount_point}/file,len={PAGE},shm-offset={M},ro", self.line("b", 2 * M))
            mark = self.served.mark()
            self.served.send_signal(signal.SIGHUP)
            self.want_served(self.provider(self.served), self.memfd(), shm_offset=9 * M)
            self.write(self.line("a"))
            self.served.send_signal(signal.SIGHUP)
            self.want(False, "read anew" in self.served.log_since(mark), "whether the reload has ended")
            server.go_on()
            self.served.wait_log("2 added, 0 removed", mark)
            self.served.wait_log("0 added, 2 removed", mark)
            self.want_mapped("a")

    def test_end_during_a_reload(self):
        """SIGTERM in the middle of it, also while a file's server hangs, is prompt."""
        for index in range(5):
            self.serve(self.line("a"))
            self.write(*(self.line(f"n{number}", number * M) for number in range(30)))
            self.served.send_signal(signal.SIGHUP)
            time.sleep(0.003 * index)
            self.served.end(seconds=PROMPT)
        with self.fuse() as server:
            self.serve(self.line("a"), options=("--any-filesystem",), leaks=False)
            server.pause()
            self.write(f"shmid=0,path={server.mount_point}/file,len={PAGE},ro")
            self.served.send_signal(signal.SIGHUP)
            time.sleep(0.1)
            self.served.send_signal(signal.SIGTERM)
            self.served.awaited = True
            time.sleep(0.5)
            server.go_on()
            self.served.wait(10)

    def test_a_thousand_lines(self):
        """Many lines, again and again: what is open stays flat."""
        self.file("big", 4000 * PAGE)
        lines = [f"shmid=0,path={self.logs}/big,offset={index * PAGE},len={PAGE},shm-offset={index * 2 * PAGE},ro" for index in range(1000)]
        self.serve(*lines, regions=("0:64M",))
        count = self.served.fd_count()
        for turn in range(3):
            self.reload(*lines[turn::2])
            self.reload(*lines)
        self.want(count, self.served.fd_count(), "open fds")
