# test_signals.py: SIGTERM and SIGINT: exit 0, promptly, whatever goes on.
# SPDX-License-Identifier: BSD-2-Clause
import os
import pty
import signal
import subprocess
import threading
import time

from case import PROMPT, Case
from wire import M, PAGE, UNMAP, Provider, map_message, unmap_message


class Signals(Case):
    def test_idle(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            served = self.start()
            served.end(number, PROMPT)

    def test_with_mappings_and_messages_half_sent(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            served = self.start()
            file = self.memfd(100 * PAGE)
            everybody = [self.provider(served) for _ in range(10)]
            for index, provider in enumerate(everybody):
                self.want("0", provider.map(file, shm_offset=index * M, len=100 * PAGE), "map")
                provider.send(map_message()[:5 * index + 1], [file])
            served.end(number, PROMPT)
            for provider in everybody:
                self.want("closed", provider.ending(), "a connection when the daemon has ended")
                provider.close()

    def reach(self):
        """A connection to a daemon whose log tells us nothing."""
        def connect():
            try:
                self.providers.append(Provider(self.path))
            except OSError:
                return False
            return True
        self.wait_until(connect, "the socket", "served")
        return self.providers[-1]

    def test_with_a_log_that_nobody_reads(self):
        """Standard error is full, a pipe or a terminal, ours alone or shared: everybody is served, and SIGTERM ends the daemon."""
        for kind, options in (("pipe", ()), ("terminal", ()), ("terminal", ("--log-json",)), ("shared pipe", ())):
            unread, log = pty.openpty() if kind == "terminal" else os.pipe()
            self.fds.append(unread)
            process = subprocess.Popen([self.binary, "--no-rdma", "--shmem", "0:64M", "--provider-socket", self.path, *options],
                                       stdin=subprocess.DEVNULL, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            provider = self.reach()
            file = self.memfd()
            for index in range(1200):
                if kind == "shared pipe":
                    # Another writer takes the room between a look at it and a write.
                    os.set_blocking(log, False)
                    try:
                        os.write(log, b"x" * 4000)
                    except BlockingIOError:
                        pass
                    os.set_blocking(log, True)
                self.want(("0", "0"), (provider.map(file), provider.unmap()), f"answers {index} with a {kind} that nobody reads")
            provider.close()
            os.close(log)
            process.terminate()
            self.want(0, process.wait(10), f"the exit code with a {kind} that nobody reads")

    def test_the_last_lines_come_out(self):
        """Who reads in time has every line, in order, up to the last, whatever standard error is; of a start that fails, too."""
        for make in (os.pipe, pty.openpty):
            reader, log = make()
            self.fds.append(reader)
            process = subprocess.Popen([self.binary, "--no-rdma", "--shmem", "0:64M", "--provider-socket", self.path],
                                       stdin=subprocess.DEVNULL, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            os.close(log)
            said = []

            def read():
                try:
                    while piece := os.read(reader, 65536):
                        said.append(piece.decode())
                except OSError:
                    pass  # the end of a terminal
            reading = threading.Thread(target=read)
            reading.start()
            provider = self.reach()
            file = self.memfd()
            for index in range(300):
                self.want(("0", "0"), (provider.map(file), provider.unmap()), f"answers {index}")
            process.terminate()
            self.want(0, process.wait(10), "the exit code")
            reading.join(10)
            lines = "".join(said).splitlines()
            numbers = [int(line.rpartition(" ")[2]) for line in lines if ": unmapped " in line]
            self.want(list(range(1, 301)), numbers, "the mappings, in order")
            self.want("info: ending", lines[-1], "the last line")

            reader, log = make()
            self.fds.append(reader)
            done = subprocess.run([self.binary, "--no-rdma", "--shmem", "0:64M", "--map", "shmid=0,path=/nonexistent"],
                                  stdin=subprocess.DEVNULL, stderr=log, timeout=20)
            self.want(1, done.returncode, "the exit code of a start that fails")
            self.want_in("/nonexistent", os.read(reader, 65536).decode(), "what it says")
            os.close(log)

    def test_with_replies_unread(self):
        served = self.start()
        provider = self.provider(served)
        provider.socket.settimeout(0.3)
        try:
            while True:
                provider.socket.send(unmap_message() * 10)
        except TimeoutError:
            pass
        served.end(seconds=PROMPT)

    def test_under_load_case_21(self):
        """Case 21: SIGTERM while providers map and unmap as fast as they can."""
        for number in (signal.SIGTERM, signal.SIGINT) * 2:
            served = self.start()
            file = self.memfd(4 * M)
            wrong = []

            def turn(index, provider):
                try:
                    while True:
                        got = (provider.map(file, shm_offset=index * 4 * M, len=4 * M), provider.unmap(shm_offset=index * 4 * M, len=4 * M))
                        if got != ("0", "0"):
                            # Cut off by the end: part of an answer is not an answer.
                            wrong.extend(one for one in got if one not in ("0", "closed"))
                            return
                except OSError:
                    pass
            turns = [threading.Thread(target=turn, args=(index, self.provider(served))) for index in range(4)]
            for each in turns:
                each.start()
            time.sleep(0.2)
            try:
                served.end(number, 5)
            finally:
                for each in turns:
                    each.join()
            self.want([], wrong, "answers under load that are wrong")

    def test_second_signal(self):
        """A second signal while it ends: it ends."""
        for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)):
            served = self.start()
            provider = self.provider(served)
            self.want("0", provider.map(self.memfd()), "map")
            served.send_signal(first)
            served.send_signal(second)
            served.wait(PROMPT)
            provider.close()

    def test_stopped_and_continued(self):
        served = self.start()
        provider = self.provider(served)
        served.stop()
        provider.send(unmap_message())
        time.sleep(0.05)
        served.go_on()
        self.want("-ENOENT", provider.answer(UNMAP), "the answer after a stop")

    def test_broken_pipe(self):
        """Providers that leave before their answers are written: SIGPIPE ends nobody."""
        served = self.start()
        for _ in range(50):
            provider = self.provider(served)
            served.stop()
            provider.send(unmap_message() * 20)
            provider.close()
            served.go_on()
        self.want_served(self.provider(served), self.memfd())
