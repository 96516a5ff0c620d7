# case.py: what every test builds on: daemons, providers and files that are gone when the test ends.
# SPDX-License-Identifier: BSD-2-Clause
import ctypes
import fcntl
import os
import shutil
import signal
import tempfile
import time
import unittest

import daemon
import fuse
import wire
from wire import M, PAGE

libc = ctypes.CDLL(None, use_errno=True)

SIZE = 64 * M  # of region 0, where a test asks for nothing else

F_ADD_SEALS, F_GET_SEALS = 1033, 1034
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16

PROMPT = 2  # seconds within which everybody is served, whatever others do


class Case(unittest.TestCase):
    binary = None
    root = None
    long = False
    sanitized = False

    def run(self, result=None):
        self.result = result
        return super().run(result)

    def setUp(self):
        self.daemons, self.providers, self.fds = [], [], []
        self.directory = tempfile.mkdtemp(dir=self.root)
        self.logs = tempfile.mkdtemp(dir=self.root)
        os.chmod(self.directory, 0o711)
        self.path = os.path.join(self.directory, "provider")
        self.addCleanup(self.clean_up)

    def tearDown(self):
        """What every test asks of its daemons at the end."""
        if self.result.is_bad(self):
            return
        for provider in self.providers:
            provider.close()
        for each in self.daemons:
            if each.ended():
                self.want(True, each.awaited, f"whether the daemon that ended ({each.process.returncode}) was told to")
                each.check_log(levels=each.process.returncode != 2)  # a wrong flag is no event
            else:
                each.settled()
                each.end()

    def clean_up(self):
        self.log_tail = [line for each in self.daemons for line in each.last_words()]
        for each in self.daemons:
            each.kill()
        for provider in self.providers:
            provider.close()
        for fd in self.fds:
            try:
                os.close(fd)
            except OSError:
                pass
        shutil.rmtree(self.directory)
        shutil.rmtree(self.logs)

    # What a test says.

    def want(self, wanted, got, what):
        if wanted != got:
            raise daemon.Wrong(what, wanted, got)

    def want_in(self, part, whole, what):
        if part not in whole:
            raise daemon.Wrong(what, f"{part!r} in it", repr(whole[-600:]))

    def wait_until(self, condition, what, wanted, got=lambda: "it never came", seconds=10):
        daemon.until(condition, what, wanted, got, seconds)

    def need(self, condition, reason):
        if not condition:
            self.skipTest(reason)

    # What a test works with.

    def start(self, *options, regions=("0:64M",), path=None, limits=(), leaks=True, fds=(), ready=True):
        """`leaks` says whether LeakSanitizer looks at the end: it waits for threads that hang. It is given `fds`."""
        for region in regions:
            options = ("--shmem", region, *options)
        log_path = os.path.join(self.logs, f"{len(self.daemons)}.log")
        started = daemon.Daemon(self.binary, options, path or self.path, log_path, limits, leaks, fds)
        self.daemons.append(started)
        return started.ready() if ready else started

    def provider(self, served):
        connected = wire.Provider(served.path)
        self.providers.append(connected)
        return connected

    def keep(self, fd):
        """Closed when the test ends."""
        self.fds.append(fd)
        return fd

    def memfd(self, size=PAGE, name="test", flags=os.MFD_ALLOW_SEALING, seals=0):
        fd = self.keep(os.memfd_create(name, flags | os.MFD_CLOEXEC))
        os.ftruncate(fd, size)
        if seals:
            fcntl.fcntl(fd, F_ADD_SEALS, seals)
        return fd

    def huge_memfd(self, size):
        try:
            fd = self.keep(os.memfd_create("huge", os.MFD_HUGETLB | os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC))
            os.ftruncate(fd, size)
        except OSError as error:
            self.skipTest(f"no hugetlb memfd here: {error.strerror}")
        return fd

    def reopen(self, fd, flags):
        """The same file with other access."""
        return self.keep(os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC))

    def file(self, size=PAGE, flags=os.O_RDWR, name="file"):
        path = os.path.join(self.logs, name)
        with open(path, "ab") as made:
            made.truncate(size)
        return self.keep(os.open(path, flags | os.O_CLOEXEC))

    def seals(self, fd):
        return fcntl.fcntl(fd, F_GET_SEALS)

    def fuse(self, name="fuse", **options):
        """A mounted FUSE file system; use it with `with`."""
        reason = fuse.obstacle()
        self.need(not reason, reason)
        mount_point = os.path.join(self.logs, name)
        os.mkdir(mount_point)
        return fuse.Server(mount_point, **options)

    def base_of(self, served, fd, shm_offset=0):
        """The address of the region in which that fd is mapped at `shm_offset`."""
        found = served.maps_of(fd)
        self.want(1, len(found), "places where the file is mapped")
        return found[0].start - shm_offset

    def child(self, work):
        """A process of its own that does some work, then stays until it is killed. Its pid, once the work is done."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                _kept = work()  # its connections, which must stay open
                os.write(writer, b"d")
                while True:
                    signal.pause()
            finally:
                os._exit(1)
        os.close(writer)
        said = os.read(reader, 1)
        os.close(reader)
        self.addCleanup(self.kill_child, pid)
        self.want(b"d", said, "what the child says when its work is done")
        return pid

    def kill_child(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    # What is asked of a daemon more than once.

    def want_served(self, provider, fd=None, rounds=3, **fields):
        """The provider is served promptly: questions, and maps where it has an fd."""
        for _ in range(rounds):
            begin = time.monotonic()
            self.want("-EOPNOTSUPP", provider.barrier(), "another provider's question")
            if fd is not None:
                self.want("0", provider.map(fd, **fields), "another provider's map")
                self.want("0", provider.unmap(**fields), "another provider's unmap")
            took = time.monotonic() - begin
            if took > PROMPT:
                raise daemon.Wrong("another provider's turn", f"at most {PROMPT} s", f"{took:.1f} s")

    def want_idle(self, served, seconds=0.5):
        """It does not spin: its CPU time stands nearly still."""
        before = served.cpu_seconds()
        time.sleep(seconds)
        spent = served.cpu_seconds() - before
        if spent > seconds * 0.4:
            raise daemon.Wrong("CPU time of a daemon that waits", "next to none",
                               f"{spent:.2f} s of {seconds} s")
