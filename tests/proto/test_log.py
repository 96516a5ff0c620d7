# test_log.py: the log: one line an event, its level first; who, what, where and why; nothing forged.
# SPDX-License-Identifier: BSD-2-Clause
import json
import os
import re
import socket
import subprocess
import time
import unittest

import daemon
from case import Case
from frontend import FrontEndCase
from wire import M, MAP, PAGE, Provider, map_message, payload


class Log(Case):
    def setUp(self):
        super().setUp()
        self.served = self.start("--socket-mode", "0666", regions=("0:64M", "37:64M"))

    def test_ready(self):
        self.served.wait_log("^info: ready")
        self.want(1, self.served.log().count("info: ready"), "lines that say ready")

    def test_who_connected(self):
        """The pid and the uid of whoever connects."""
        self.need(os.geteuid() == 0, "needs root to be somebody else")

        def work():
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65531)
            provider = Provider(self.path)
            assert provider.barrier() == "-EOPNOTSUPP"
            return provider
        mark = self.served.mark()
        pid = self.child(work)
        line = self.served.wait_log(rf"^info: .*\b{pid}\b", mark)
        self.want_in("65531", line, "the line about who connected")
        mark = self.served.mark()
        self.kill_child(pid)
        self.served.wait_log(r"^info: .*provider", mark)

    def test_what_was_mapped_where(self):
        me = self.provider(self.served)
        mark = self.served.mark()
        self.want("0", me.map(self.memfd(2 * M), shmid=37, shm_offset=3 * M, len=2 * M), "map")
        line = self.served.wait_log(r"^info: .*\b37\b", mark)
        for forms, what in ((("0x300000", "3145728", "3 mib", "3m"), "where"), (("0x200000", "2097152", "2 mib", "2m", "0x500000"), "how much")):
            self.want(True, any(form in line.lower() for form in forms), f"{what} was mapped, in {line!r}")
        mark = self.served.mark()
        self.want("0", me.unmap(shmid=37, shm_offset=3 * M, len=2 * M), "unmap")
        self.served.wait_log(r"^info: .*\b37\b", mark)

    def test_what_was_refused(self):
        me = self.provider(self.served)
        for fields, pattern in (({"shmid": 99}, r"\b99\b"), ({"shm_offset": 64 * M}, "region|beyond|range"),
                                ({"fd_offset": 1 << 30}, "short|end|size"), ({"flags": 2}, "flag")):
            mark = self.served.mark()
            me.quietly(MAP, payload(**fields), [self.memfd()])
            self.served.wait_log(rf"^(warning|info|error): .*({pattern})", mark)

    def test_framing_lost_is_logged(self):
        for data in (map_message(flags=2), map_message(flags=5), b"\xff" * 12):
            mark = self.served.mark()
            me = self.provider(self.served)
            me.send(data)
            self.want("closed", me.ending(), "framing lost")
            self.served.wait_log(r"^(warning|error|info): .*(provider|version|REPLY|size|message|header)", mark)

    def test_names_forge_nothing(self):
        """A file's name with line ends and escapes stays in one line, without them."""
        me = self.provider(self.served)
        for name in ("a\nerror: forged", "a\r\x1b[31mred\x07", "\x01\x7f", "ä\u202eb", "x" * 240):
            for options in ({"flags": 0}, {"fd_offset": 1 << 30}):
                got = me.map(self.memfd(name=name, flags=0), **options)
                if got == "0":
                    self.want("0", me.unmap(), "unmap")
        directory = os.path.join(self.logs, "d\nerror: forged\x1b[0m")
        os.mkdir(directory)
        path = os.path.join(directory, "file")
        with open(path, "wb") as file:
            file.truncate(PAGE)
        self.want("0", me.map(self.keep(os.open(path, os.O_RDWR))), "map of a file with a strange path")
        self.want("-EEXIST", me.map(self.keep(os.open(path, os.O_RDWR))), "the same again")
        me.close()
        self.served.settled()
        self.want(False, any(line.startswith("error: forged") for line in self.served.log().splitlines()), "a forged line in the log")
        self.served.check_log()

    # Bursts.

    def refuse(self, provider, count, **fields):
        for _ in range(count):
            self.want(True, provider.map(self.memfd_again, **fields).startswith("-"), "whether a map is refused")

    def test_a_burst_is_counted(self):
        """The same refusal 500 times: a few lines, and how many more there were."""
        me = self.provider(self.served)
        self.memfd_again = self.memfd()
        mark = self.served.mark()
        for index in range(500):
            self.want("-ERANGE", me.map(self.memfd_again, shm_offset=64 * M + index * PAGE), "map")

        def lines():
            return [line for line in self.served.log_since(mark).splitlines() if "SHMEM_MAP refused" in line]

        def told():
            """How many refusals the lines tell of; a slow machine takes longer than one count lasts."""
            counts = [re.search(r" \(repeated (\d+) times in \d+\.\d s\)$", line) for line in lines()]
            return sum(int(count.group(1)) if count else 1 for count in counts)
        self.wait_until(lambda: told() == 500, "refusals that the log tells of", 500, told, 15)
        self.want(True, len(lines()) <= 50, f"whether {len(lines())} lines for 500 refusals are a few")

    def test_a_burst_hides_nothing_else(self):
        """Other refusals, other users' providers and what is no refusal are written meanwhile."""
        self.memfd_again = self.memfd()
        noisy = self.provider(self.served)
        self.refuse(noisy, 100, shmid=99)
        mark = self.served.mark()
        self.want("-EINVAL", noisy.map(self.memfd_again, flags=2), "another refusal")
        self.served.wait_log(r"SHMEM_MAP refused: unknown flags", mark)
        if os.geteuid() == 0:
            pid = self.child(self.refuse_as_somebody)
            self.served.wait_log(rf"pid {pid}\b.*SHMEM_MAP refused: .*99", mark)
            self.kill_child(pid)
        for index in range(20):
            self.want("0", noisy.map(self.memfd_again, shm_offset=index * PAGE), "map")
        self.want(20, self.served.log_since(mark).count(": mapped "), "lines of mappings")

    def refuse_as_somebody(self):
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65531)
        provider = Provider(self.path)
        provider.map(self.memfd_again, shmid=99)
        return provider

    def test_a_burst_of_short_lived_processes_is_counted(self):
        """As by a shell loop: what is refused, or warned of, is the same user's each time."""
        refused, unsealed = self.memfd(), os.open(os.path.join(self.logs, "file"), os.O_RDWR | os.O_CREAT)
        self.keep(unsealed)
        os.ftruncate(unsealed, M)

        def work():
            provider = Provider(self.path)
            provider.map(refused, shmid=99)
            provider.map(unsealed, len=M)
            return provider
        mark = self.served.mark()
        for _ in range(30):
            self.kill_child(self.child(work))
        self.served.settled()
        for what in ("SHMEM_MAP refused", "can be truncated"):
            found = [line for line in self.served.log_since(mark).splitlines() if what in line]
            self.want(True, 10 <= len(found) <= 25, f"whether {len(found)} lines of '{what}' for 30 processes are a few")
            self.want(True, all(re.search(r"pid \d+", line) for line in found), f"whether each names a process: {found[0]!r}")

    def test_counts_are_not_lost_at_the_end(self):
        me = self.provider(self.served)
        self.memfd_again = self.memfd()
        self.refuse(me, 50, shmid=99)
        self.served.end()
        self.want_in("repeated 40 times", self.served.log(), "the log at the end")

    def test_many_kinds_stay_bounded(self):
        """More kinds of refusals than the table holds, again and again: nobody waits, and the log does not stop."""
        path = os.path.join(self.logs, "short")
        me = self.provider(self.served)
        for _ in range(3):
            for index in range(100):
                name = path + chr(ord("a") + index % 26) + chr(ord("a") + index // 26)
                with open(name, "wb"):
                    pass
                self.want("-EFBIG", me.map(self.keep(os.open(name, os.O_RDWR))), "map")
                os.unlink(name)
                os.close(self.fds.pop())
        self.want_served(me, self.memfd())


class Json(Case):
    def lines(self, served):
        return [json.loads(line) for line in served.log().splitlines()]

    def start_json(self):
        served = self.start("--log-json", ready=False)
        served.json = True
        self.wait_until(lambda: "ready" in served.log(), "log", "ready", served.log)
        served.base = served.fds()
        return served

    def test_lines_are_objects(self):
        """Every line is one object, with time, level, message, and the fields."""
        served = self.start_json()
        me = self.provider(served)
        self.want("0", me.map(self.memfd(2 * M), shm_offset=M, len=2 * M), "map")
        self.want("-ENXIO", me.map(self.memfd(name='q"uote\\', flags=0), shmid=9), "map")
        me.close()
        for word in ("disconnected", "unmapped"):
            self.wait_until(lambda: f": {word}" in served.log(), "log", word, served.log)
        lines = self.lines(served)
        for line in lines:
            self.want([True] * 3, [key in line for key in ("time", "level", "message")], f"keys of {line}")
            self.want(True, bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["time"])), f"form of the time in {line}")
        mapped = next(line for line in lines if ": mapped " in line["message"])
        me_pid = str(os.getpid())
        self.want({"MRSHARE_PROVIDER": "1", "MRSHARE_PROVIDER_PID": me_pid, "MRSHARE_PROVIDER_UID": str(os.getuid()), "MRSHARE_MAPPING_ID": "1", "MRSHARE_SHMID": "0", "MRSHARE_SHM_OFFSET": str(M),
                   "MRSHARE_LEN": str(2 * M)}, {key: value for key, value in mapped.items() if key.startswith("MRSHARE_")}, "fields")
        for word in ("connected", "mapped", "SHMEM_MAP refused", "unmapped", "disconnected"):
            line = next(line for line in lines if f": {word}" in line["message"])
            self.want("1", line.get("MRSHARE_PROVIDER"), f"MRSHARE_PROVIDER of {word}")
        for word, identity in (("mapped", "a03d18c5a45b4bf1a7c2daf206a203a0"), ("connected", "6bf892ad203245218de0930a37a4946e"), ("disconnected", "38a15d78c23044dcbc614c56ce47fe19")):
            line = next(line for line in lines if re.search(rf": {word}\b", line["message"]))
            self.want(identity, line.get("MESSAGE_ID"), f"MESSAGE_ID of {word}")
        self.want(False, any("MESSAGE_ID" in line for line in lines if "ready" in line["message"]), "a MESSAGE_ID of another line")
        refused = next(line for line in lines if "refused" in line["message"])
        self.want(("warning", me_pid, "6"), (refused["level"], refused["MRSHARE_PROVIDER_PID"], refused["ERRNO"]), "a refusal")

    def test_foreign_text(self):
        """Names that are no UTF-8, and the longest ones, are still JSON."""
        served = self.start_json()
        me = self.provider(served)
        for name in (b"\xff\xfe", b"\"\\" * 100, b"\xe2\x82", b"x" * 240):
            path = os.path.join(os.fsencode(self.logs), name)
            with open(path, "wb") as file:
                file.truncate(PAGE)
            me.map(self.keep(os.open(path, os.O_RDWR)))
            me.unmap()
        self.want(True, len(self.lines(served)) > 2, "whether all lines are JSON")


class JsonOfFrontEnds(FrontEndCase):
    def test_fields(self):
        """Lines of a front-end's life say whose they are, and which mapping."""
        served = self.serve("--log-json", ready=False)
        served.json = True
        self.wait_until(lambda: "ready" in served.log(), "log", "ready", served.log)
        served.base = served.fds()
        me = self.provider(served)
        self.want("0", me.map(self.memfd(M), shm_offset=M, len=M), "map")
        front_end = self.running()
        front_end.serve()
        me.close()
        front_end.serve()
        front_end.close()
        self.wait_until(lambda: ": gone" in served.log(), "log", "gone", served.log)
        lines = [json.loads(line) for line in served.log().splitlines()]
        mine = [line for line in lines if line["message"].startswith("front-end")]
        for line in mine:
            self.want((str(os.getpid()), str(os.getuid()), "1"), tuple(line.get(f"MRSHARE_FRONTEND{key}") for key in ("_PID", "_UID", "")),
                      f"fields of {line}")
        for word in ("announced", "taken back"):
            found = [line for line in mine if re.search(rf"\d {word} ", line["message"])]
            self.want([("1", "0")], [(line["MRSHARE_MAPPING_ID"], line["MRSHARE_SHMID"]) for line in found], f"fields of what was {word}")


    def test_a_refused_one(self):
        """Who was refused, and on which socket."""
        served = self.serve("--log-json", "--max-front-ends", "1", ready=False)
        served.json = True
        self.wait_until(lambda: "ready" in served.log(), "log", "ready", served.log)
        served.base = served.fds()
        front_end = self.running()
        refused = socket.socket(socket.AF_UNIX)
        self.addCleanup(refused.close)
        refused.settimeout(10)
        refused.connect(self.front_path)
        self.want(b"", refused.recv(1), "what the second front-end gets")
        self.wait_until(lambda: "refused" in served.log(), "log", "refused", served.log)
        line = next(line for line in map(json.loads, served.log().splitlines()) if "refused" in line["message"])
        self.want((str(os.getpid()), str(os.getuid())), (line["MRSHARE_FRONTEND_PID"], line["MRSHARE_FRONTEND_UID"]), "fields")
        for word in (f"(pid {os.getpid()}, uid {os.getuid()})", self.front_path, "--max-front-ends"):
            self.want_in(word, line["message"], "what it says")


@unittest.skipUnless(os.geteuid() == 0, "a journal of its own needs root")
class Journal(Case):
    """The journal is a socket of this test, in a mount namespace of the daemon's own."""

    def setUp(self):
        super().setUp()
        linked = subprocess.run(["ldd", self.binary], capture_output=True, text=True).stdout
        self.need("libsystemd" in linked, "built without libsystemd")
        self.journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.journal.close)
        self.journal.bind(os.path.join(self.logs, "socket"))
        self.stream_path = os.path.join(self.logs, "stream")
        probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True)
        self.need(probe.returncode == 0, "no mount namespace here")

    def launch(self, *options, stream=None):
        script = ('mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && '
                  'mount --bind "$1" /run/systemd/journal && shift && exec "$@"')
        with open(self.stream_path, "wb") as stderr:
            found = os.fstat(stderr.fileno())
            environment = dict(daemon.ENVIRONMENT, JOURNAL_STREAM=stream or f"{found.st_dev}:{found.st_ino}")
            process = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", self.logs,
                                        self.binary, "--no-rdma", "--shmem", "0:64M", "--provider-socket", self.path, *options],
                                       stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def stream(self):
        with open(self.stream_path) as stream:
            return stream.read()

    def read(self, pattern, seconds=10):
        """The first entry whose message matches."""
        self.journal.settimeout(seconds)
        while True:
            entry = dict(line.split("=", 1) for line in self.journal.recv(65536).decode().splitlines())
            if re.search(pattern, entry["MESSAGE"]):
                return entry

    def test_fields(self):
        process = self.launch()
        ready = self.read("ready")
        self.want(("6", os.path.basename(self.binary)), (ready["PRIORITY"], ready["SYSLOG_IDENTIFIER"]), "priority and identifier")
        self.want(False, ready["MESSAGE"].startswith("info"), "whether the message starts with its level")
        me = Provider(self.path)
        self.providers.append(me)
        self.want("0", me.map(self.memfd(M), shm_offset=M, len=M), "map")
        mapped = self.read(": mapped ")
        wanted = {"MESSAGE_ID": "a03d18c5a45b4bf1a7c2daf206a203a0", "MRSHARE_PROVIDER": "1", "MRSHARE_PROVIDER_PID": str(os.getpid()), "MRSHARE_MAPPING_ID": "1", "MRSHARE_SHMID": "0",
                  "MRSHARE_SHM_OFFSET": str(M), "MRSHARE_LEN": str(M)}
        self.want(wanted, {key: mapped.get(key) for key in wanted}, "fields of a mapping")
        self.want("-ENXIO", me.map(self.memfd(), shmid=7), "map")
        refused = self.read("refused")
        self.want(("4", "6"), (refused["PRIORITY"], refused["ERRNO"]), "priority and errno of a refusal")
        process.terminate()
        self.read("ending")
        self.want(0, process.wait(10), "exit code")
        self.want("", self.stream(), "what is on standard error")

    def test_journal_that_does_not_read(self):
        """Nobody waits for it; what it did not take is counted when it goes on; the end waits a moment only."""
        process = self.launch("--log-level", "debug")
        self.read("ready")
        me = Provider(self.path)
        self.providers.append(me)
        file = self.memfd()
        begin = time.monotonic()
        for index in range(1500):
            self.want("0", me.map(file), "map")
            self.want("0", me.unmap(), "unmap")
        self.want(True, time.monotonic() - begin < 60, "whether maps are as quick as always")
        self.read(r"\d+ lines of the log were lost")
        for index in range(1500):
            self.want("0", me.map(file), "map")
            self.want("0", me.unmap(), "unmap")
        begin = time.monotonic()
        process.terminate()
        self.want(0, process.wait(10), "exit code")
        self.want(True, time.monotonic() - begin < 3, "whether the end was prompt")

    def test_wrong_flags(self):
        """Before the log is there: one line on the stream, with its priority for the journal."""
        for options in (("--bogus",), ("--socket-path", self.path)):
            process = self.launch(*options)
            self.want(2, process.wait(10), f"exit code with {options}")
            self.want(True, bool(re.fullmatch(r"<3>mrshared: .*\n", self.stream())), f"whether {self.stream()!r} is an error")

    def test_another_stream(self):
        """$JOURNAL_STREAM names another file, as in a process whose standard error was redirected: plain lines."""
        for stream in ("1:2", "", "x", "1", "99999999999999999999:1"):
            process = self.launch(stream=stream or " ")
            self.wait_until(lambda: "info: ready" in self.stream(), "standard error", "ready", self.stream)
            process.terminate()
            self.want(0, process.wait(10), "exit code")
