# daemon.py: starts a daemon, looks at it from outside through /proc, and ends it.
# SPDX-License-Identifier: BSD-2-Clause
import collections
import os
import re
import resource
import signal
import socket
import subprocess
import time
import unittest

LINE = re.compile(r"(error|warning|info|debug): \S.*")
SANITIZER = re.compile(r"ERROR: AddressSanitizer|LeakSanitizer|runtime error|Sanitizer:DEADLYSIGNAL|SUMMARY: \w+Sanitizer")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")

# A small quarantine, so that memory stays flat under AddressSanitizer too.
ENVIRONMENT = dict(os.environ, LC_ALL="C", ASAN_OPTIONS="quarantine_size_mb=8:" + os.environ.get("ASAN_OPTIONS", ""))

Map = collections.namedtuple("Map", "start end access offset inode path")


class Wrong(AssertionError):
    """Something was wanted, something else came."""

    def __init__(self, what, wanted, got):
        super().__init__(f"{what}: wanted {wanted}, got {got}")


def until(condition, what, wanted, got, seconds=10):
    """Waits until the condition holds; `got` is called for the message where it never does."""
    end = time.monotonic() + seconds
    pause = 0.001
    while not condition():
        if time.monotonic() > end:
            raise Wrong(what, wanted, got())
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def run(binary, *options, limits=(), seconds=20):
    """A daemon that should end by itself: its exit code, standard output and standard error."""
    done = subprocess.run([binary, *options], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds,
                          env=ENVIRONMENT, preexec_fn=lambda: set_limits(limits))
    return done.returncode, done.stdout.decode(), done.stderr.decode(errors="backslashreplace")


def set_limits(limits):
    for which, value in limits:
        resource.setrlimit(which, value)


class Daemon:
    def __init__(self, binary, options, path, log_path, limits=(), leaks=True, fds=()):
        self.path = path
        self.log_path = log_path
        self.base = None
        self.json = False     # whether its log is JSON
        self.awaited = False  # whether its end is what the test wants
        environment = ENVIRONMENT if leaks else dict(ENVIRONMENT, ASAN_OPTIONS="detect_leaks=0")
        argv = [binary, "--no-rdma", "--provider-socket", path, *options]
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=fds,
                                            preexec_fn=(lambda: set_limits(limits)) if limits else None)
        self.pid = self.process.pid

    def ready(self, seconds=20):
        """Waits until it serves; what it holds open then is the base."""
        shown = not any(option.endswith(("error", "warning")) for option in self.process.args)
        until(lambda: self.ended() or (re.search("^info: ready", self.log(), re.M) if shown else self.connects()),
              "start", "a daemon that is ready", lambda: "no word of it", seconds)
        if self.ended():
            raise Wrong("start", "a daemon that is ready", f"exit code {self.process.returncode}")
        if not shown:  # the probe's connection is closed a little after its end
            until(lambda: self.sockets() <= 1, "start", "no connection", lambda: f"{self.sockets() - 1}")
        self.base = self.fds()
        return self

    def connects(self):
        """Whether it serves: it sees that a connection ends, and ends it too."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(10)
                probe.connect(self.path)
                probe.shutdown(socket.SHUT_WR)
                return probe.recv(1) == b""
        except OSError:
            return False

    def sockets(self):
        """How many sockets it has at its path: the one that listens, and one a connection until it is closed."""
        with open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as lines:
            return sum(line.rstrip("\n").endswith(" " + self.path) for line in lines)

    # What it says.

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="backslashreplace", newline="\n") as log:
            return log.read()

    def mark(self):
        return os.path.getsize(self.log_path)

    def log_since(self, mark):
        with open(self.log_path, "rb") as log:
            log.seek(mark)
            return log.read().decode(errors="backslashreplace")

    def wait_log(self, pattern, mark=0, seconds=5):
        """A line of the log that matches, from `mark` on."""
        def find():
            return next((line for line in self.log_since(mark).splitlines() if re.search(pattern, line, re.I)), None)
        until(find, "log", f"a line like /{pattern}/", lambda: repr(self.log_since(mark)[-600:]), seconds)
        return find()

    def last_words(self):
        """For a person who looks into a failure: the log's end, or what a sanitizer found."""
        text = self.log()
        found = SANITIZER.search(text)
        lines = text[found.start():].splitlines()[:40] if found else text.splitlines()[-12:]
        return lines + ([f"(exit code {self.process.returncode})"] if self.ended() else [])

    def check_log(self, levels=True):
        text = self.log()
        if SANITIZER.search(text):
            raise Wrong("log", "no finding of a sanitizer", text[SANITIZER.search(text).start():][:1500])
        for line in text.split("\n")[:-1]:
            if (levels and not self.json and not LINE.fullmatch(line)) or CONTROL.search(line):
                raise Wrong("log", "lines that start with a level and hold no control character", repr(line))
        if text and not text.endswith("\n"):
            raise Wrong("log", "whole lines", repr(text[-200:]))

    # What it holds.

    def fds(self):
        """How often each thing is open."""
        found = collections.Counter()
        for fd in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                target = os.readlink(f"/proc/{self.pid}/fd/{fd}")
            except FileNotFoundError:
                continue
            # Without the number of a socket or pipe: another one of the same kind does as well.
            found["log" if target == self.log_path else re.sub(r":\[\d+\]$", "", target)] += 1
        return found

    def fd_count(self):
        return self.fds().total()

    def free_fd(self):
        """The number that the next fd gets."""
        used = {int(fd) for fd in os.listdir(f"/proc/{self.pid}/fd")}
        return next(number for number in range(len(used) + 1) if number not in used)

    def maps(self):
        found = []
        with open(f"/proc/{self.pid}/maps", encoding="utf-8", errors="surrogateescape") as lines:
            for line in lines:
                span, access, offset, _, inode, *path = line.rstrip("\n").split(None, 5)
                start, end = (int(number, 16) for number in span.split("-"))
                found.append(Map(start, end, access, int(offset, 16), int(inode), path[0] if path else ""))
        return found

    def maps_of(self, fd):
        """Where the file of that fd of ours is mapped."""
        inode = os.fstat(fd).st_ino
        name = os.readlink(f"/proc/self/fd/{fd}")
        return [entry for entry in self.maps() if entry.inode == inode and entry.path == name]

    def is_reserved(self, start, length):
        """Whether that span is reserved and nothing more: no access, no file, no gap."""
        at = start
        for entry in self.maps():
            if entry.end <= at or entry.start >= start + length:
                continue
            if entry.start > at or entry.access != "---p" or entry.inode:
                return False
            at = entry.end
        return at >= start + length

    def read_memory(self, address, size):
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(size)

    def write_memory(self, address, data):
        if os.statvfs("/proc").f_flag & os.ST_RDONLY:
            raise unittest.SkipTest("/proc is mounted read-only here, as in some chroots")
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(data)

    def status(self, field):
        """A figure of /proc/PID/status, in bytes where it has a unit."""
        with open(f"/proc/{self.pid}/status") as lines:
            for line in lines:
                if line.startswith(field + ":"):
                    words = line.split()
                    return int(words[1]) * (1024 if words[2:] == ["kB"] else 1)

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def settled(self, seconds=10):
        """Waits until it holds open what it held at its start, no more and no less."""
        def difference():
            now = self.fds()
            return dict(now - self.base), dict(self.base - now)
        until(lambda: difference() == ({}, {}), "open fds", "those of the start",
              lambda: "also %s, not %s" % difference(), seconds)

    # Its life.

    def ended(self):
        return self.process.poll() is not None

    def state(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    def send_signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """Stopped, so that what is sent now is there all at once when it goes on."""
        self.send_signal(signal.SIGSTOP)
        until(lambda: self.state() == "T", "stop", "state T", self.state)

    def go_on(self):
        self.send_signal(signal.SIGCONT)

    def wait(self, seconds=10):
        self.awaited = True
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Wrong("end", f"an end within {seconds} s", f"state {self.state()}") from None

    def end(self, number=signal.SIGTERM, seconds=10):
        """Ends it as an administrator does: exit 0, and its socket is gone."""
        self.send_signal(number)
        code = self.wait(seconds)
        self.check_log()
        if code != 0:
            raise Wrong("exit code", 0, code)
        if os.path.lexists(self.path):
            raise Wrong("the socket file at the end", "none", "it is still there")

    def kill(self):
        self.awaited = True
        if not self.ended():
            self.process.kill()
            self.process.wait()
