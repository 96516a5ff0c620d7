# test_socket.py: the provider socket's file: its rights, a dead one, a live one, somebody else's.
# SPDX-License-Identifier: BSD-2-Clause
import fcntl
import grp
import os
import signal
import socket
import stat
import threading

import daemon
from case import Case
from wire import Provider, map_message


class Socket(Case):
    def want_refused(self, what, path=None, names=None):
        """A start that ends with a line that names the path."""
        failed = self.start(path=path, ready=False)
        code = failed.wait(5)
        self.want(True, code in (1, 2), f"{what}: exit code 1 or 2 ({code})")
        self.want_in(names or path or self.path, failed.log(), f"{what}: the message")

    def test_mode(self):
        for options, wanted in (((), 0o600), (("--socket-mode", "0660"), 0o660), (("--socket-mode=666",), 0o666)):
            served = self.start(*options)
            status = os.stat(self.path)
            self.want((True, oct(wanted)), (stat.S_ISSOCK(status.st_mode), oct(status.st_mode & 0o7777)), f"mode with {options}")
            served.end()

    def test_group(self):
        self.need(os.geteuid() == 0, "needs root")
        group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, os.getegid()))
        served = self.start("--socket-group", group.gr_name, "--socket-mode", "0660")
        status = os.stat(self.path)
        self.want((group.gr_gid, 0o660), (status.st_gid, status.st_mode & 0o7777), "group and mode")
        served.end()

    def test_a_folder_that_is_not_there(self):
        """It is named, with what to do; another reason is not taken for it."""
        folder = os.path.join(self.directory, "a", "b")
        self.want_refused("no folder", f"{folder}/socket", f"{folder}/socket.lock: No such file or directory: make the folder {folder}\n")
        self.want_refused("no folder", os.path.join(self.path, "x"), "x.lock: No such")
        self.file(name="file")
        self.want_refused("a file in place of a folder", f"{self.logs}/file/socket", "socket.lock: Not a directory\n")

    def test_only_ours_is_removed_at_the_end(self):
        """Case 16: only our own socket file is unlinked."""
        served = self.start()
        os.unlink(self.path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(self.path)
            served.send_signal(signal.SIGTERM)
            self.want(0, served.wait(), "exit code")
            self.want(True, os.path.exists(self.path), "the socket file of the one who came meanwhile is there")

    def test_ours_is_gone_already(self):
        served = self.start()
        os.unlink(self.path)
        served.end()

    def test_dead_socket_file_is_replaced_case_37(self):
        """Case 37: a socket file that nobody listens on, and one left by kill -9."""
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.path)
        served = self.start()
        self.want_served(self.provider(served), self.memfd())
        for _ in range(3):
            served.kill()
            self.want(True, os.path.exists(self.path), "a socket file after kill -9")
            served = self.start()
            self.want_served(self.provider(served), self.memfd())

    def test_second_daemon_case_37(self):
        """Case 37: a second daemon on the same path is refused, the first unharmed."""
        served = self.start()
        me = self.provider(served)
        file = self.memfd()
        self.want("0", me.map(file), "map")
        for _ in range(3):
            self.want_refused("a second daemon")
            self.want("0", me.unmap(), "the first daemon's unmap")
            self.want("0", me.map(file), "the first daemon's map")
            self.want_served(self.provider(served), self.memfd(), shm_offset=1 << 20)

    def test_second_daemon_while_the_first_is_stopped(self):
        served = self.start()
        served.stop()
        self.want_refused("a second daemon")
        served.go_on()
        self.want_served(self.provider(served), self.memfd())

    def test_live_socket_of_another_program(self):
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(self.path)
            other.listen()
            self.want_refused("a socket that another program listens on")
            other.settimeout(2)
            self.want(True, os.path.exists(self.path), "its file is still there")
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(self.path)

    def test_not_a_socket(self):
        """A regular file, a directory, a link at the path: refused and not touched."""
        with open(self.path, "w") as file:
            file.write("precious")
        self.want_refused("a regular file at the path")
        with open(self.path) as file:
            self.want("precious", file.read(), "the regular file afterwards")
        os.unlink(self.path)
        os.mkdir(self.path)
        self.want_refused("a directory at the path")
        os.rmdir(self.path)
        self.want_refused("no such directory", path=os.path.join(self.directory, "missing", "socket"))

    def test_lock_file(self):
        """A file beside the socket is held with flock while the daemon lives."""
        served = self.start()
        beside = [name for name in os.listdir(self.directory) if name != os.path.basename(self.path)]
        self.want(1, len(beside), f"files beside the socket ({beside})")

        def free():
            with open(os.path.join(self.directory, beside[0])) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    return False
        self.want(False, free(), "the lock is free while the daemon lives")
        served.end()
        if os.path.exists(os.path.join(self.directory, beside[0])):
            self.want(True, free(), "the lock is free when the daemon has ended")

    def test_two_daemons_at_once(self):
        """Started at the same moment, with a dead socket file there: exactly one serves."""
        for round in range(4):
            path = os.path.join(self.directory, f"race{round}")
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(path)
            both = [self.start(path=path, ready=False) for _ in range(3)]
            self.wait_until(lambda: sum(each.ended() for each in both) == 2, "daemons that gave way", 2,
                            lambda: sum(each.ended() for each in both))
            left, = (each for each in both if not each.ended())
            left.ready()
            self.want_served(self.provider(left), self.memfd())
            self.want({1}, {each.wait() for each in both if each.ended()}, "exit codes of those that gave way")
            self.providers[-1].close()
            left.settled()
            left.end()

    def test_killed_in_the_handshake_case_16(self):
        """Case 16: kill -9 with connections half made; clients that connect while the daemon restarts."""
        stop = threading.Event()
        served_once = []

        def knock():
            while not stop.is_set():
                try:
                    provider = Provider(self.path)
                    provider.send(map_message()[:5])
                    provider.send(map_message()[5:])
                    if provider.answer(9, seconds=5) == "-EBADF":
                        served_once.append(True)
                    provider.close()
                except OSError:
                    pass
        clients = [threading.Thread(target=knock) for _ in range(3)]
        served = self.start()
        base = served.base
        for client in clients:
            client.start()
        try:
            for round in range(6):
                half = self.provider(served)
                half.send(map_message()[:5])
                before = len(served_once)
                self.wait_until(lambda: len(served_once) > before, f"a client served in round {round}", "one")
                if round % 2:
                    served.send_signal(signal.SIGTERM)
                    self.want(0, served.wait(), "exit code")
                else:
                    served.kill()
                served = self.start()
                served.base = base  # its own was taken among clients
        finally:
            stop.set()
            for client in clients:
                client.join()
        self.want_served(self.provider(served), self.memfd())

    def test_signal_during_the_start(self):
        """Ended at any moment of its start it leaves no socket file."""
        for delay in range(0, 40, 4):
            starting = self.start(ready=False)
            daemon.time.sleep(delay / 1000)
            starting.send_signal(signal.SIGTERM)
            code = starting.wait(5)
            self.want(True, code in (0, -signal.SIGTERM), f"exit code 0, or the signal's ({code})")
            self.want(False, os.path.lexists(self.path), f"a socket file after SIGTERM {delay} ms into the start")
