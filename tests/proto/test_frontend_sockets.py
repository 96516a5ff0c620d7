# test_frontend_sockets.py: where front-ends come from: paths, passed sockets, how many, and the flags around them.
# SPDX-License-Identifier: BSD-2-Clause
import json
import os
import signal
import socket
import stat
import subprocess
import time

import daemon
import frontend as fe
from frontend import FrontEnd, FrontEndCase
from wire import M, PAGE


class Sockets(FrontEndCase):
    def refused(self, *options, word):
        code, out, said = daemon.run(self.binary, "--no-rdma", "--provider-socket", self.path, *options)
        self.want((2, "", 1), (code, out, said.count("\n")), f"{options}: exit code, standard output, lines ({said!r})")
        self.want_in(word, said, f"{options}: the message")
        self.want([], os.listdir(self.directory), f"{options}: what was made")

    def test_sizes_are_checked_at_the_start_case_28(self):
        """Case 28: a pmem region of 1 or 3 MiB, a sum that is no power of two; the next good size is said."""
        path = ("--socket-path", self.front_path)
        for regions, word in (("0:1M", "2 MiB"), ("0:3M", "4 MiB"), ("0:6M", "8 MiB"), ("0:64M 1:32M", "128 MiB"),
                              ("0:64M 1:60M", "128 MiB"), ("1:64M", "region 0"), ("0:96M", "128 MiB")):
            shmem = [word for region in regions.split() for word in ("--shmem", region)]
            self.refused(*shmem, *path, word=word)
        self.refused("--shmem", "0:64M", "--shmem", "1:64M", "--socket-path", f"{self.front_path},shmid=1", word="add shmid=0")
        self.refused("--shmem", "0:64M", "--socket-path", f"{self.front_path},shmid=0,shmid=9", word="region 9")
        served = self.start("--socket-path", f"{self.front_path},shmid=0", regions=("0:2M", "1:1M", "2:3M"))
        served.end()
        self.serve(regions=("0:2M", "1:1M", "2:1M"))

    def test_wrong_values(self):
        good = ("--shmem", "0:64M")
        for value in ("", ",shmid=0", f"{self.front_path},x", f"{self.front_path},shmid=", f"{self.front_path},shmid=256",
                      f"{self.front_path},shmid=0,", f"{self.directory}/{'x' * 108}"):
            if value.endswith(","):
                continue
            self.refused(*good, "--socket-path", value, word="--socket-path")
        self.refused(*good, *("--socket-path", self.front_path) * 2, word="twice")
        self.refused(*good, "--socket-path", self.path, word="the same")
        for value in ("", "x", "-1", "999", "2147483648"):
            self.refused(*good, f"--fd={value}", word="--fd")
        self.refused(*good, "--fd", "0", word="no Unix stream socket")
        for value in ("", "0", "x", "-1", "99999999"):
            self.refused(*good, f"--max-front-ends={value}", word="--max-front-ends")
        self.refused(*good, "--device", "net", word="pmem")
        self.refused(*good, "--gpa-addresses=yes", word="gpa-addresses")

    def test_print_capabilities(self):
        """Alone, and among all else that could be wrong."""
        for more in ((), ("--shmem", "0:3M"), ("--fd", "999"), ("--bogus",)):
            done = subprocess.run([self.binary, *more, "--print-capabilities", *more], capture_output=True, text=True)
            self.want((0, "", {"type": "pmem"}), (done.returncode, done.stderr, json.loads(done.stdout)), "--print-capabilities")

    def test_mode_and_file(self):
        """Its mode, its lock, a dead socket that is replaced, a live one that is not; gone at the end."""
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.front_path)
        served = self.serve("--socket-mode", "0640")
        self.want(0o640, stat.S_IMODE(os.stat(self.front_path).st_mode), "mode of the socket file")
        self.want_alive(self.negotiated())
        again = self.start("--socket-path", self.front_path, path=self.path + "2", ready=False)
        self.want(1, again.wait(), "exit code of a second daemon")
        self.want_in("serves", again.log(), "what it says")
        self.want_alive(self.negotiated(), "one of the first daemon")
        for each in self.front_ends:
            each.close()
        served.settled()
        served.end()
        self.want([], os.listdir(self.directory), "what is left beside the sockets")

    def test_default_mode(self):
        self.serve()
        self.want(0o600, stat.S_IMODE(os.stat(self.front_path).st_mode), "mode of the socket file")

    def test_comma_in_the_path(self):
        path = os.path.join(self.directory, "a,b")
        served = self.start("--socket-path", path.replace(",", ",,") + ",shmid=0", regions=("0:64M",))
        self.want_alive(self.negotiated(path=path))
        self.front_ends[-1].close()
        served.settled()
        served.end()
        self.want(False, os.path.exists(path), "the socket file at the end")

    def test_too_many(self):
        """Those beyond --max-front-ends are refused; when one goes the next is served."""
        served = self.serve("--max-front-ends", "3")
        some = [self.negotiated() for _ in range(3)]
        for _ in range(5):
            self.want_closed(self.connect(), "one too many")
        served.wait_log("max-front-ends")
        some[0].close()
        self.wait_until(lambda: self.connect().barrier() != "closed", "a front-end in the place of one that went", "one")

    def test_killed_front_end_case_18(self):
        """Case 18: a front-end that is killed with mappings and a queue."""
        served = self.serve()
        provider = self.provider(served)
        self.mapped_file(provider)
        settled = served.fds()

        def live():
            front_end = self.connect()
            front_end.negotiate()
            front_end.start(base=0)
            front_end.serve()
            return front_end
        pid = self.child(live)
        self.kill_child(pid)
        self.wait_until(lambda: served.fds() == settled, "open fds", "those before", served.fds)
        self.want("0", provider.unmap(), "unmap")

    def passed(self, ours, *options, regions=("0:64M",), inherit=()):
        """A daemon that was given a socket as fd 3."""
        def give():
            os.dup2(ours.fileno(), 3)
        args = [word for region in regions for word in ("--shmem", region)]
        log = open(os.path.join(self.logs, "fd.log"), "wb")
        process = subprocess.Popen([self.binary, "--no-rdma", "--provider-socket", self.path, *args, "--fd", "3", *options],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[3, *inherit], preexec_fn=give,
                                   env=daemon.ENVIRONMENT)
        log.close()
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def log_of_passed(self):
        with open(os.path.join(self.logs, "fd.log")) as log:
            return log.read()

    def with_fd_3(self):
        """So that no test's own fd 3 is in the way."""
        try:
            os.fstat(3)
        except OSError:
            self.keep(os.dup2(self.memfd(), 3))

    def test_connected_fd(self):
        """--fd with a connection: one front-end, and the end, with exit code 0, when it leaves."""
        self.with_fd_3()
        ours, theirs = socket.socketpair()
        with theirs:
            process = self.passed(theirs)
        front_end = FrontEnd(ours)
        self.front_ends.append(front_end)
        self.want(["0"] * 3, front_end.negotiate(), "acknowledgements")
        self.want("0", front_end.start(base=0), "a start")
        self.want(0, front_end.flush(), "a flush")
        front_end.close()
        self.want(0, process.wait(10), "exit code when it has left")
        self.want_in("ending with the front-end", self.log_of_passed(), "the log")
        self.want(False, os.path.exists(self.path), "the provider's socket at the end")

    def test_listening_fd(self):
        """--fd with a listening socket: as a path, but its file stays its owner's."""
        self.with_fd_3()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.front_path)
            listening.listen()
            process = self.passed(listening)
        for _ in range(3):
            front_end = self.running()
            self.want(0, front_end.flush(), "a flush")
            front_end.close()
        self.want(None, process.poll(), "exit code while nobody asked for an end")
        process.send_signal(signal.SIGTERM)
        self.want(0, process.wait(10), "exit code")
        self.want(True, os.path.exists(self.front_path), "the socket file that is not ours")

    def test_two_listening_fds(self):
        """--fd counts each time: front-ends come through both."""
        self.with_fd_3()
        other_path = self.front_path + "2"
        with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
            for listening, path in ((one, self.front_path), (other, other_path)):
                listening.bind(path)
                listening.listen()
            other.set_inheritable(True)
            process = self.passed(one, "--fd", str(other.fileno()), inherit=[other.fileno()])
        for path in (self.front_path, other_path, self.front_path):
            self.want(0, self.running(path=path).flush(), f"a flush through {path}")
        process.send_signal(signal.SIGTERM)
        self.want(0, process.wait(10), "exit code")

    def test_two_connected_fds(self):
        """The daemon ends with the front-end of a connected --fd: a second one is refused."""
        self.with_fd_3()
        ours, theirs = socket.socketpair()
        ours_too, other = socket.socketpair()
        with ours, theirs, ours_too, other:
            other.set_inheritable(True)
            process = self.passed(theirs, "--fd", str(other.fileno()), inherit=[other.fileno()])
            self.want(1, process.wait(10), "exit code")
        self.want_in("is a connection as well", self.log_of_passed(), "what it says")

    def test_listening_fd_that_its_owner_shuts_down(self):
        """Nobody can connect any more: that is said once, and costs nothing."""
        self.with_fd_3()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.front_path)
            listening.listen()
            process = self.passed(listening)
            self.want(0, self.running().flush(), "a flush")
            listening.shutdown(socket.SHUT_RDWR)
            self.wait_until(lambda: "shut down" in self.log_of_passed(), "the log", "a line that says so", self.log_of_passed)
            before = self.cpu_of(process)
            time.sleep(1)
            used = self.cpu_of(process) - before
            self.want(True, used < 0.3, f"a second that takes no processor time ({used} s)")
        self.want(1, self.log_of_passed().count("shut down"), "lines that say so")
        self.want(0, self.front_ends[-1].flush(), "a flush of who is connected")

    def cpu_of(self, process):
        with open(f"/proc/{process.pid}/stat") as stat_file:
            return sum(map(int, stat_file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def test_connected_fd_whose_front_end_is_dropped(self):
        """What the front-end did wrong is in the exit code."""
        self.with_fd_3()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = self.passed(theirs)
            ours.sendall(bytes(12))
            self.want(1, process.wait(10), "exit code")
        self.want_in("dropped", self.log_of_passed(), "the log")

    def test_unconnected_fd(self):
        self.with_fd_3()
        with socket.socket(socket.AF_UNIX) as unconnected:
            process = self.passed(unconnected)
            self.want(1, process.wait(10), "exit code")
        self.want_in("neither listens nor is it connected", self.log_of_passed(), "what it says")

    def test_fd_and_path_exclude_each_other(self):
        self.with_fd_3()
        one, two = socket.socketpair()
        with one, two:
            process = self.passed(one, "--socket-path", self.front_path)
            self.want(2, process.wait(10), "exit code")
        self.want_in("exclude each other", self.log_of_passed(), "what it says")

    def test_ends_with_front_ends(self):
        """SIGTERM with front-ends in every state."""
        served = self.serve()
        provider = self.provider(served)
        self.mapped_file(provider)
        self.connect()
        self.negotiated()
        running = self.running()
        running.serve()
        served.end()
        self.want(1, len(running.mapped), "mappings that are left to it")
        self.want("closed", running.barrier(), "its connection")

    def test_many_come_and_go(self):
        """Connections by the hundred, some of them half way; memory and fds stay flat."""
        served = self.serve()
        for round in range(400 if self.long else 100):
            front_end = self.connect()
            if round % 3:
                front_end.negotiate()
            if round % 3 == 2:
                front_end.start(base=0)
            front_end.close()
        served.settled()
        before = served.status("VmRSS")
        for round in range(200):
            front_end = self.negotiated()
            front_end.start(base=0)
            front_end.close()
        served.settled()
        grown = served.status("VmRSS") - before
        self.want(True, grown < 4 * M or self.sanitized, f"memory that does not grow by 200 front-ends ({grown} bytes)")
