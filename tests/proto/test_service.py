# test_service.py: under a service manager: notices, watchdog, sockets that it passes.
# SPDX-License-Identifier: BSD-2-Clause
import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import time

import daemon
from case import PROMPT, Case
from wire import M, PAGE, Provider

FIRST = 3  # SD_LISTEN_FDS_START


class Manager:
    """What systemd is to a service: the socket that notices come to."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.path = path
        self.heard = []  # (when, assignment), one a line of a notice

    def read(self, seconds=0.0):
        while select.select([self.socket], [], [], seconds)[0]:
            now = time.monotonic()
            self.heard += [(now, line) for line in self.socket.recv(65536).decode().splitlines()]
            seconds = 0

    def find(self, pattern, start=0):
        """The index and text of the first assignment from `start` on that matches."""
        for index, (_, line) in enumerate(self.heard[start:], start):
            if re.fullmatch(pattern, line):
                return index, line
        return None

    def wait(self, pattern, start=0, seconds=10):
        end = time.monotonic() + seconds
        while not self.find(pattern, start):
            if time.monotonic() > end:
                raise daemon.Wrong("notices", f"one like /{pattern}/", [line for _, line in self.heard[start:]][-20:])
            self.read(0.05)
        return self.find(pattern, start)


class Service(Case):
    def setUp(self):
        super().setUp()
        linked = subprocess.run(["ldd", self.binary], capture_output=True, text=True).stdout
        self.need("libsystemd" in linked, "built without libsystemd")
        self.manager = Manager(os.path.join(self.logs, "notify"))
        self.addCleanup(self.manager.socket.close)
        self.log_path = os.path.join(self.logs, "service.log")
        self.vhost_path = os.path.join(self.directory, "vhost")

    def launch(self, *options, sockets=(), names=None, pid=None, environment=()):
        """A daemon as systemd starts it: `sockets` from fd 3 on."""
        numbers = [each.fileno() for each in sockets]

        def give():
            high = [os.dup2(os.dup(number), 100 + index) for index, number in enumerate(numbers)]
            for index, number in enumerate(high):
                os.dup2(number, FIRST + index)
                os.close(number)
            os.execve(self.binary, [self.binary, "--no-rdma", "--shmem", "0:64M", *options],
                      dict(environ, LISTEN_PID=str(pid or os.getpid())))
        environ = {**daemon.ENVIRONMENT, "NOTIFY_SOCKET": self.manager.path, **dict(environment)}
        if sockets:
            environ["LISTEN_FDS"] = str(len(sockets if names is None else names))
            if names is not None:
                environ["LISTEN_FDNAMES"] = ":".join(names)
        with open(self.log_path, "ab") as log:
            process = subprocess.Popen([self.binary], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       pass_fds=range(FIRST, FIRST + len(sockets)), preexec_fn=give)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    def listening(self, path, kind=socket.SOCK_STREAM):
        made = socket.socket(socket.AF_UNIX, kind)
        self.addCleanup(made.close)
        made.bind(path)
        if kind == socket.SOCK_STREAM:
            made.listen()
        return made

    def end(self, process, seconds=10):
        process.send_signal(signal.SIGTERM)
        self.want(0, process.wait(seconds), f"exit code at the end ({self.log()[-600:]!r})")

    def connect(self, path):
        provider = Provider(path)
        self.providers.append(provider)
        return provider

    # Notices.

    def test_ready_status_stopping(self):
        """READY when it serves, the counts in STATUS, STOPPING at the end; in this order."""
        process = self.launch("--provider-socket", self.path)
        ready, _ = self.manager.wait("READY=1")
        provider = self.connect(self.path)
        file = self.memfd(2 * PAGE)
        self.want("0", provider.map(file), "map")
        self.want("0", provider.map(file, shm_offset=PAGE, fd_offset=PAGE), "map")
        self.manager.wait("STATUS=.*front-ends: 0, providers: 1, mappings: 2, peers: 0", ready)
        provider.close()
        self.manager.wait("STATUS=.*providers: 0, mappings: 0, .*", ready)
        self.want(None, self.manager.find("STOPPING=1"), "STOPPING before its end")
        self.end(process)
        self.manager.read()
        self.want(True, bool(self.manager.find("STOPPING=1", ready)), "whether STOPPING was said")
        self.want(1, sum(line == "READY=1" for _, line in self.manager.heard), "times that READY was said")

    def test_status_is_rate_limited(self):
        """However much comes and goes, STATUS is told about once a second, and not at all where nothing changes."""
        process = self.launch("--provider-socket", self.path)
        ready, _ = self.manager.wait("READY=1")
        begin = time.monotonic()
        provider = self.connect(self.path)
        while time.monotonic() < begin + 2.5:
            self.want("0", provider.map(self.memfd()), "map")
            self.want("0", provider.unmap(), "unmap")
        took = time.monotonic() - begin
        self.manager.read()
        told = sum(line.startswith("STATUS=") for _, line in self.manager.heard[ready:])
        self.want(True, told <= took + 3, f"whether {told} STATUS in {took:.1f} s are few")
        heard = len(self.manager.heard)
        provider.close()
        self.manager.wait("STATUS=.*providers: 0, mappings: 0.*", heard)
        heard = len(self.manager.heard)
        time.sleep(2.2)
        self.manager.read()
        self.want([], self.manager.heard[heard:], "notices while nothing changes")
        self.end(process)

    def test_watchdog(self):
        """WATCHDOG about every half of WATCHDOG_USEC, and none from a loop that stands still."""
        process = self.launch("--provider-socket", self.path, environment={"WATCHDOG_USEC": "400000"})
        self.manager.wait("READY=1")
        self.manager.wait("WATCHDOG=1", len(self.manager.heard))
        heard, begin = len(self.manager.heard), time.monotonic()
        time.sleep(2)
        self.manager.read()
        took = time.monotonic() - begin
        count = sum(line == "WATCHDOG=1" for _, line in self.manager.heard[heard:])
        self.want(True, 4 <= count <= took / 0.2 + 2, f"whether {count} notices of the watchdog in {took:.1f} s are one in 0.2 s")
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        self.manager.read()
        heard = len(self.manager.heard)
        time.sleep(1)
        self.manager.read()
        self.want([], self.manager.heard[heard:], "notices while it is stopped")
        process.send_signal(signal.SIGCONT)
        self.manager.wait("WATCHDOG=1", heard)
        self.end(process)

    def test_watchdog_shorter_than_the_clock(self):
        """The loop has time for more than that."""
        for usec in ("1", "1999"):
            process = self.launch("--provider-socket", self.path, environment={"WATCHDOG_USEC": usec})
            ready, _ = self.manager.wait("READY=1", len(self.manager.heard))
            begin, heard = time.monotonic(), len(self.manager.heard)
            while time.monotonic() < begin + 0.5:
                self.manager.read(0.01)
            count = sum(line == "WATCHDOG=1" for _, line in self.manager.heard[heard:])
            most = 1000 * (time.monotonic() - begin) + 50
            self.want(True, 1 <= count <= most, f"whether {count} notices of a watchdog of {usec} us are at most one a ms")
            self.end(process)

    def test_manager_that_does_not_read(self):
        """Its queue is full: everybody is served, and READY comes when it reads again."""
        clutter = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(clutter.close)
        clutter.setblocking(False)
        try:
            while True:
                clutter.sendto(b"STATUS=clutter", self.manager.path)
        except BlockingIOError:
            pass
        process = self.launch("--provider-socket", self.path, environment={"WATCHDOG_USEC": "100000"})
        self.wait_until(lambda: "ready" in self.log(), "log", "ready", self.log)
        me = self.connect(self.path)
        self.want_served(me, self.memfd())
        time.sleep(1.5)
        self.want_served(me, self.memfd())
        self.manager.wait("READY=1")
        self.manager.wait("STATUS=.*providers: 1.*")
        self.manager.wait("WATCHDOG=1")
        self.end(process)

    def test_wrong_notify_socket(self):
        for path in ("relative", "/", "@", "/" + 200 * "x"):
            process = self.launch("--provider-socket", self.path, environment={"NOTIFY_SOCKET": path})
            self.want(1, process.wait(10), f"exit code with NOTIFY_SOCKET={path}")
            self.want_in("NOTIFY_SOCKET", self.log(), "what it says")

    def test_no_watchdog_unasked(self):
        """Another process's watchdog is not ours."""
        process = self.launch("--provider-socket", self.path, environment={"WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"})
        self.manager.wait("READY=1")
        time.sleep(0.5)
        self.manager.read()
        self.want(None, self.manager.find("WATCHDOG=1"), "a notice of the watchdog")
        self.end(process)

    def test_starting_is_extended(self):
        """While static mappings come to stand the manager hears so; a file whose server hangs runs into its time limit."""
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(self.fuse(f"fuse{index}")) for index in range(2)]
            for server in servers:
                server.pause()
            maps = [f"--map=shmid=0,path={server.mount_point}/file,len={PAGE},shm-offset={index}M,ro" for index, server in enumerate(servers)]
            process = self.launch("--provider-socket", self.path, "--any-filesystem", *maps)
            self.manager.wait("STATUS=starting; .*")
            for index, server in enumerate(servers):
                # The first tick may tell of what came just before.
                time.sleep(1.2)
                self.manager.read()
                heard = len(self.manager.heard)
                time.sleep(2.2)
                self.manager.read()
                self.want(None, self.manager.find("EXTEND_TIMEOUT_USEC=.*", heard), f"an extension while file {index} hangs")
                self.want(None, self.manager.find("READY=1"), "READY while a mapping does not stand")
                server.go_on()
                if server is not servers[-1]:
                    self.manager.wait("EXTEND_TIMEOUT_USEC=30000000", heard)
            ready, _ = self.manager.wait("READY=1")
            time.sleep(1.2)
            self.manager.read()
            self.want(None, self.manager.find("EXTEND_TIMEOUT_USEC=.*", ready), "an extension after READY")
            self.end(process)

    def test_reloading_is_extended(self):
        """The same of a reload: its file hangs after another one was mapped."""
        map_file = os.path.join(self.logs, "maps")
        with open(map_file, "w"):
            pass
        with self.fuse() as server:
            process = self.launch("--map-file", map_file, "--any-filesystem")
            self.manager.wait("READY=1")
            server.pause()
            with open(map_file, "w") as file:
                file.write(f"shmid=0,path={self.file_path('a')}\nshmid=0,path={server.mount_point}/file,len={PAGE},shm-offset=1M,ro\n")
            heard = len(self.manager.heard)
            process.send_signal(signal.SIGHUP)
            self.manager.wait("EXTEND_TIMEOUT_USEC=30000000", heard)
            time.sleep(1.2)
            self.manager.read()
            heard = len(self.manager.heard)
            time.sleep(2.2)
            self.manager.read()
            self.want(None, self.manager.find("EXTEND_TIMEOUT_USEC=.*", heard), "an extension while a file hangs")
            server.go_on()
            self.manager.wait("READY=1", heard)
            self.end(process)

    def test_reload(self):
        """RELOADING with the clock, then READY; what went wrong is in STATUS until a reload goes well."""
        map_file = os.path.join(self.logs, "maps")

        def reload(text):
            with open(map_file, "w") as file:
                file.write(text)
            heard = len(self.manager.heard)
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            process.send_signal(signal.SIGHUP)
            reloading, _ = self.manager.wait("RELOADING=1", heard)
            _, clock = self.manager.wait(r"MONOTONIC_USEC=\d+", heard)
            ready, _ = self.manager.wait("READY=1", reloading)
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self.want(True, before <= int(clock.partition("=")[2]) <= after, f"whether {clock} is from {before} to {after}")
            return ready
        with open(map_file, "w"):
            pass
        process = self.launch("--map-file", map_file)
        self.manager.wait("READY=1")
        reload(f"shmid=0,path={self.file_path('a')}\n")
        ready = reload("bogus\n")
        self.manager.wait(f"STATUS=.*mappings: 1.*the last reload failed: {map_file}:1: .*", ready)
        ready = reload(f"shmid=0,path=/nonexistent\nshmid=0,path={self.file_path('b')},shm-offset=1M\n")
        self.manager.wait(f"STATUS=.*mappings: 1.*the last reload failed: 1 failed, such as: {map_file}:1: /nonexistent.*", ready)
        ready = reload("")
        self.manager.wait("STATUS=[^;]*mappings: 0[^;]*", ready)
        self.end(process)

    def file_path(self, name, size=M):
        path = os.path.join(self.logs, name)
        with open(path, "wb") as file:
            file.truncate(size)
        return path

    def test_failed_start_says_why(self):
        """Wherever it fails, from the first flag on."""
        map_file = os.path.join(self.logs, "maps")
        with open(map_file, "w") as file:
            file.write("bogus\n")
        taken = self.file_path("taken")
        sockets = ("--provider-socket", self.path)
        for options, code, error, text in (
                ((*sockets, "--map", "shmid=0,path=/nonexistent/file,ro"), 1, 2, ".*/nonexistent/file.*"),
                ((*sockets, "--map-file", map_file), 1, 22, f".*{map_file}:1: .*bogus.*"),
                ((*sockets, "--map-file", map_file + ".missing"), 1, 2, ".*maps.missing.*"),
                ((*sockets, "--max-providers", "1000000"), 1, 34, ".*open files.*"),
                ((*sockets, "--max-mappings", "2000000000"), 1, 34, ".*(max_map_count|open files).*"),
                ((*sockets, "--socket-path", taken), 1, 17, ".*is no socket.*"),
                (("--provider-socket", taken), 1, 17, ".*is no socket.*"),
                (("--bogus",), 2, 22, ".*--bogus.*"),
                ((*sockets, "--log-level", "loud"), 2, 22, ".*loud.*"),
                ((), 2, 22, ".*could ever be mapped.*"),
        ):
            heard = len(self.manager.heard)
            process = self.launch(*options)
            self.want(code, process.wait(10), f"exit code with {options}")
            self.manager.wait(f"STATUS=cannot start: {text}", heard)
            self.manager.wait(f"ERRNO={error}", heard)
            self.want(None, self.manager.find("READY=1", heard), "READY of a daemon that cannot start")

    def test_unknown_listen_name_says_why(self):
        name = 64 * "x"  # no name server is asked for such a one
        done = subprocess.run([self.binary, "--rdma-listen", name, "--shmem", "0:64M", "--provider-socket", self.path],
                              env={**daemon.ENVIRONMENT, "NOTIFY_SOCKET": self.manager.path}, capture_output=True, text=True, timeout=30)
        self.want(1, done.returncode, f"exit code ({done.stderr!r})")
        self.manager.wait(f"STATUS=cannot start: --rdma-listen.*{name}.*")

    # Sockets.

    def test_sockets_by_name(self):
        """A passed socket is served as one of ours, and its file stays its owner's."""
        vhost, provider = self.listening(self.vhost_path), self.listening(self.path)
        process = self.launch(sockets=(provider, vhost), names=("provider", "vhost"))
        self.manager.wait("READY=1")
        me = self.connect(self.path)
        self.want("0", me.map(self.memfd(M), len=M), "map")
        with socket.socket(socket.AF_UNIX) as front_end:
            front_end.connect(self.vhost_path)
            self.manager.wait("STATUS=.*front-ends: 1, providers: 1, mappings: 1.*")
        self.end(process)
        for path in (self.path, self.vhost_path):
            self.want(True, os.path.exists(path), f"whether {path} is still there")

    def test_passed_and_named_sockets_together(self):
        """Different sockets of both kinds are all served."""
        vhost = self.listening(self.vhost_path)
        process = self.launch("--provider-socket", self.path, "--socket-path", self.vhost_path + "2",
                              sockets=(vhost,), names=("vhost",))
        self.manager.wait("READY=1")
        fronts = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for each, path in zip(fronts, (self.vhost_path, self.vhost_path + "2")):
            each.connect(path)
        self.manager.wait("STATUS=.*front-ends: 2.*")
        for each in fronts:
            each.close()
        self.end(process)

    def test_connections_before_the_start(self):
        """Who connected before the daemon was there is served when it is: that is what activation is for."""
        listening = self.listening(self.path)
        me = self.connect(self.path)
        process = self.launch(sockets=(listening,), names=("provider",))
        self.want("0", me.map(self.memfd()), "map")
        me.close()
        self.end(process)

    def test_wrong_sockets(self):
        """Each is named in one line, with what to do; exit code 2, and nobody's socket is touched."""
        vhost, provider = self.listening(self.vhost_path), self.listening(self.path)
        datagram = self.listening(os.path.join(self.logs, "datagram"), socket.SOCK_DGRAM)
        connected, other = socket.socketpair()
        inet = socket.socket()
        inet.bind(("127.0.0.1", 0))
        inet.listen()
        for each in (connected, other, inet):
            self.addCleanup(each.close)
        again = vhost.dup()
        self.addCleanup(again.close)
        mapped = ("--map", "shmid=0,path=/dev/zero")
        rows = (
            (mapped, (vhost,), None, "FileDescriptorName="),
            (mapped, (vhost,), ("",), "FileDescriptorName="),
            (mapped, (vhost,), ("mrshared-vhost.socket",), "FileDescriptorName="),
            (mapped, (vhost,), ("VHOST",), "FileDescriptorName="),
            (mapped, (datagram,), ("vhost",), "ListenStream="),
            (mapped, (connected,), ("provider",), "Accept=no"),
            (mapped, (inet,), ("provider",), "ListenStream="),
            (mapped, (vhost, again), ("vhost", "vhost"), "pass it once"),
            (mapped, (vhost, again), ("vhost", "provider"), "pass it once"),
            (mapped, (vhost, provider), ("provider", "provider"), "another for providers"),
            (mapped + ("--socket-path", self.vhost_path), (vhost,), ("vhost",), "--socket-path"),
            (mapped + ("--socket-path", os.path.join(self.directory, ".", "vhost")), (vhost,), ("vhost",), "--socket-path"),
            (mapped + ("--socket-path", self.path), (provider,), ("provider",), "--socket-path"),
            (mapped + ("--provider-socket", self.path), (provider,), ("provider",), "--provider-socket"),
            (mapped + ("--provider-socket", self.path + "2"), (provider,), ("provider",), "--provider-socket"),
            (mapped + ("--provider-socket", self.vhost_path), (vhost,), ("vhost",), "--provider-socket"),
            (mapped + ("--fd", "3"), (vhost,), ("vhost",), "--fd 3"),
            (mapped + ("--fd", "3"), (provider,), ("provider",), "--fd 3"),
            (mapped + ("--fd", "4"), (vhost, again), ("vhost",), "--fd 4"),
            (mapped + ("--fd", "5"), (provider, vhost, provider), ("provider", "vhost"), "--fd 5"),
            (mapped + ("--fd", "3", "--fd", "4"), (vhost, again), (), "given twice"),
            (mapped + ("--shmem", "1:3M"), (vhost,), ("vhost",), "vhost socket"),
            ((), (vhost,), ("vhost",), "could ever be mapped"),
        )
        for options, sockets, names, word in rows:
            if os.path.exists(self.log_path):
                os.unlink(self.log_path)
            process = self.launch(*options, sockets=sockets, names=names)
            self.want(2, process.wait(10), f"exit code with {names} and {options}")
            self.want_in(word, self.log(), f"what it says of {names} with {options}")
            self.want(1, self.log().count("\n"), f"lines that it says ({self.log()!r})")
            for path in (self.path, self.vhost_path):
                self.want(True, os.path.exists(path), f"whether {path} is still there")

    def test_sockets_of_another_process(self):
        """LISTEN_PID is not ours: they are not for us."""
        process = self.launch("--provider-socket", self.path, sockets=(self.listening(self.vhost_path),), names=("bogus",), pid=1)
        self.manager.wait("READY=1")
        self.end(process)

    def test_without_a_manager(self):
        """NOTIFY_SOCKET that leads nowhere, or is empty, holds up nothing."""
        for path in ("/nonexistent/notify", "@nobody-is-there", ""):
            if os.path.exists(self.log_path):
                os.unlink(self.log_path)
            begin = time.monotonic()
            process = self.launch("--provider-socket", self.path, environment={"NOTIFY_SOCKET": path})
            self.wait_until(lambda: "ready" in self.log(), "log", "ready", self.log)
            self.end(process)
            self.want(True, time.monotonic() - begin < 2 * PROMPT, "whether it was prompt")

    def test_abstract_notify_socket(self):
        """As a manager in a container has."""
        self.manager.socket.close()
        self.manager = Manager("\0" + os.path.basename(self.logs))
        self.addCleanup(self.manager.socket.close)
        process = self.launch("--provider-socket", self.path, environment={"NOTIFY_SOCKET": "@" + os.path.basename(self.logs)})
        self.manager.wait("READY=1")
        self.end(process)

    def test_read_only_place(self):
        """A writable static mapping where the unit lets nobody write: the message says what the unit lacks."""
        self.need(os.geteuid() == 0, "needs root to mount")
        place = os.path.join(self.logs, "place")
        os.mkdir(place)
        with open(os.path.join(place, "file"), "wb") as file:
            file.truncate(M)
        script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
        done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", place, self.binary, "--no-rdma",
                               "--shmem", "0:64M", "--map", f"shmid=0,path={place}/file"], capture_output=True, text=True, timeout=20)
        self.need("mount:" not in done.stderr and "unshare:" not in done.stderr, "no mount namespace here")
        self.want(1, done.returncode, f"exit code ({done.stderr!r})")
        self.want_in(f"ReadWritePaths={place}/file", done.stderr, "what it says")
