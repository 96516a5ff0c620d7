# test_cli.py: what `mrshare` says to arguments that are wrong, and that its --help and errors go where they belong.
# SPDX-License-Identifier: BSD-2-Clause
import os
import re
import select
import signal
import subprocess

import daemon
from case import Case

# Arguments, and what the one line on standard error says.
USAGE = (
    ("", "a command is wanted"),
    ("bogus", "'bogus' is no command"),
    ("--bogus", "'--bogus' is no command"),
    ("list", "wanted is the daemon's address, and nothing else"),
    ("list a b", "wanted is the daemon's address, and nothing else"),
    ("\x1b[2J\x9b", "'?[2J??' is no command"),
    ("list a\nb c", "wanted is the daemon's address"),
    ("read a \x1b:\n 1", "?:?: wanted is SHMID:OFFSET"),
    ("list --json=x a", "--json=x: no such option"),
    ("list --output f a", "--output: no such option"),
    ("list -o f a", "-o: no such option"),
    ("list --source", "--source needs a value"),
    ("list --source= a", "--source : wanted is a value that is not empty"),
    ("list --timeout 0 a", "--timeout 0: wanted is a number from 1 to 86400"),
    ("list --timeout 1s a", "--timeout 1s: wanted is a number from 1 to 86400"),
    ("list --timeout 86401 a", "--timeout 86401: wanted is a number from 1 to 86400"),
    ("list [::1", "'[::1' is no address: wanted [IPV6] or [IPV6]:PORT"),
    ("list [::1]7471", "'[::1]7471' is no address"),
    ("list 127.0.0.1:70000", "'127.0.0.1:70000': the port must be a number from 1 to 65535"),
    ("read :7471 0:0 1", "':7471' is no address"),
    ("write a:x 0:0", "'a:x': the port must be"),
    ("watch --source [::1 a", "--source: '[::1' is no address"),
    ("watch", "wanted is the daemon's address, and nothing else"),
    ("watch --continue a", "--continue: no such option"),
    ("read a", "wanted are the daemon's address, SHMID:OFFSET and LEN"),
    ("read a 0:0", "wanted are the daemon's address, SHMID:OFFSET and LEN"),
    ("read a 0:0 1 file", "wanted are the daemon's address, SHMID:OFFSET and LEN"),
    ("read a 0 1", "0: wanted is SHMID:OFFSET"),
    ("read a 256:0 1", "256:0: wanted is SHMID:OFFSET"),
    ("read a 0:-1 1", "0:-1: wanted is SHMID:OFFSET"),
    ("read a 0:16E 1", "0:16E: wanted is SHMID:OFFSET"),
    ("read a 0:0x10000000000000000 1", "wanted is SHMID:OFFSET"),
    ("read a 0:0 1x", "1x: wanted is a length"),
    ("read a 0:0 -- -1", "-1: wanted is a length"),
    ("read -o", "-o needs a value"),
    ("read --continue a 0:0 1", "--continue goes on with a file"),
    ("read --continue -o - a 0:0 1", "--continue goes on with a file"),
    ("read --json a 0:0 1", "--json: no such option"),
    ("write a", "wanted are the daemon's address, SHMID:OFFSET, and perhaps a FILE"),
    ("write a 0:0 f g", "wanted are the daemon's address, SHMID:OFFSET, and perhaps a FILE"),
    ("write a x:0", "x:0: wanted is SHMID:OFFSET"),
    ("atomic a 0:0", "fetch-and-add N or compare-and-swap EXPECTED NEW"),
    ("atomic a 0:0 fetch-and-add", "fetch-and-add N or compare-and-swap EXPECTED NEW"),
    ("atomic a 0:0 add 1", "add: wanted is fetch-and-add or compare-and-swap"),
    ("atomic a 0:0 fetch-and-add 1 2", "wanted is one number to add"),
    ("atomic a 0:0 compare-and-swap 1", "wanted are EXPECTED and NEW"),
    ("atomic a 0:0 compare-and-swap 1 2 3", "fetch-and-add N or compare-and-swap EXPECTED NEW"),
    ("atomic a 0:0 fetch-and-add x", "x: wanted is a number of 64 bits"),
    ("atomic a 0:0 fetch-and-add 1K", "1K: wanted is a number of 64 bits"),
    ("atomic a 0:0 fetch-and-add 18446744073709551616", "wanted is a number of 64 bits"),
    ("atomic a 0:0 fetch-and-add -- --1", "--1: wanted is a number of 64 bits"),
    ("atomic a 0:0 fetch-and-add -1", "-1: no such option"),
    ("map --shmid 0 f", "--shmid and --shm-offset say where to map"),
    ("map --shmid 256 --shm-offset 0 f", "--shmid 256: wanted is a number from 0 to 255"),
    ("map --shmid 0 --shm-offset 1Q f", "--shm-offset 1Q: wanted is a size"),
    ("map --shmid 0 --shm-offset 0", "wanted is either one FILE or --memfd SIZE"),
    ("map --shmid 0 --shm-offset 0 --memfd 4K f", "wanted is either one FILE or --memfd SIZE"),
    ("map --shmid 0 --shm-offset 0 f --", "a command is wanted after --"),
)

COMMANDS = ("map", "list", "watch", "read", "write", "atomic")
PEERS = COMMANDS[1:]

LOOP = "for i in $(seq 200); do sleep 0.05; done"


class Cli(Case):
    def mrshare(self, *arguments):
        return daemon.run(os.path.join(os.path.dirname(self.binary), "mrshare"), *arguments)

    def test_usage(self):
        """Exit code 2, nothing on standard output, and one line that says what is wanted and where there is more."""
        for line, words in USAGE:
            code, out, err = self.mrshare(*line.split(" ") if line else ())
            self.want((2, ""), (code, out), f"exit code and output of 'mrshare {line}'")
            self.want_in(words, err, f"the error of 'mrshare {line}'")
            self.want(1, err.count("\n"), f"the lines of the error of 'mrshare {line}'")
            command = line.split(" ")[0]
            more = f"mrshare {command} --help" if command in COMMANDS else "mrshare --help"
            self.want_in(f"(see: {more})\n", err, f"where 'mrshare {line}' says there is more")

    def test_help(self):
        code, out, err = self.mrshare("--help")
        self.want((0, ""), (code, err), "exit code and error of mrshare --help")
        self.want(COMMANDS, tuple(re.findall(r"^  ([a-z]+) {2,}[A-Z]", out, re.M)), "the commands of mrshare --help")
        for command in COMMANDS:
            code, out, err = self.mrshare(command, "--help")
            self.want((0, ""), (code, err), f"exit code and error of mrshare {command} --help")
            self.want_in(f"Usage: mrshare {command} ", out, f"mrshare {command} --help")
            wanted = command in PEERS
            self.want((wanted, wanted), ("--source ADDRESS " in out, "--timeout SECONDS " in out),
                      f"whether mrshare {command} --help has --source and --timeout")
            self.want(command in ("list", "watch"), "--json " in out, f"whether mrshare {command} --help has --json")

    def test_no_device(self):
        """Where there is no RDMA device every command that connects fails with one line."""
        self.need(not os.path.exists("/dev/infiniband/rdma_cm"), "this machine has RDMA")
        for line in ("list a", "watch a", "read a 0:0 1", "write a 0:0 /dev/null", "atomic a 0:0 fetch-and-add 1"):
            code, out, err = self.mrshare(*line.replace(" a", " 127.0.0.1", 1).split(" "))
            self.want((1, "", 1), (code, out, err.count("\n")), f"exit code, output and lines of error of 'mrshare {line}'")
            self.want_in("rdma", err.lower(), f"the error of 'mrshare {line}'")

    def map(self, *arguments, wanted, path=None):
        """A map that fails with one line."""
        code, out, err = self.mrshare("map", "--socket", path or self.path, "--shmid", "0", *arguments)
        self.want((1, "", 1), (code, out, err.count("\n")), f"exit code, output and lines of error of map {arguments}: {err}")
        self.want_in(wanted, err, f"the error of map {arguments}")

    def test_files(self):
        """What is no file that can be shared is said without a daemon, and is not waited for."""
        fifo, empty = (os.path.join(self.logs, name) for name in ("fifo", "empty"))
        os.mkfifo(fifo)
        self.file(0, name="empty")
        for more in ((), ("--read-only",), ("--len", "4K")):
            self.map("--shm-offset", "0", fifo, *more, wanted="fifo: it is no regular file")
        self.map("--shm-offset", "0", self.logs, "--read-only", wanted=": it is no regular file")
        self.map("--shm-offset", "0", "/dev/null", wanted="/dev/null: its size is not known: give --len")
        self.map("--shm-offset", "0", empty, wanted="empty: it is empty")
        self.map("--shm-offset", "0", "--memfd", "0", wanted="--memfd: it is empty")
        self.file(4096, name="page")
        self.map("--shm-offset", "0", os.path.join(self.logs, "page"), "--offset", "4K",
                 wanted="page: --offset is not before its end (4 KiB)")

    def test_refusals(self):
        """What a daemon refuses is explained."""
        self.start("--unsealed", "refuse")
        self.file()
        name = os.path.join(self.logs, "file")
        self.map("--shm-offset", "0", name, wanted="--unsealed=refuse: use a memfd made with MFD_ALLOW_SEALING")
        self.map("--shm-offset", "0xfffffffffffff000", "--memfd", "8K", wanted="and offset + length within 64 bits")
        self.map("--shm-offset", "64M", "--memfd", "8K", wanted="the range ends beyond the region")

    def test_a_daemon_that_is_full(self):
        """The end of a connection before the first answer is explained."""
        served = self.start("--max-providers", "1")
        self.want("-EOPNOTSUPP", self.provider(served).barrier(), "the first provider's question")
        self.map("--shm-offset", "0", "--memfd", "8K", wanted="its log says why (is --max-providers reached?)")

    def start_map(self, *arguments, ignored=()):
        """A map that is in place, by the line that says so."""
        def dispositions():
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # which must not keep it from seeing the command's end
        process = subprocess.Popen(
            (os.path.join(os.path.dirname(self.binary), "mrshare"), "map", "--socket", self.path, "--shmid", "0",
             "--shm-offset", "0", "--memfd", "8K", *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            env=daemon.ENVIRONMENT, preexec_fn=dispositions)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.want("mapped region 0 at 0x0, 8 KiB, read-write\n", process.stdout.readline().decode(), "the line of a map")
        return process

    def test_signals(self):
        """Each signal that may end it makes it unmap in order, or is the command's; an ignored one stays so."""
        served = self.start()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            mark = served.mark()
            process = self.start_map()
            process.send_signal(number)
            self.want(0, process.wait(10), f"exit code of map after {number.name}")
            served.wait_log("unmap", mark)
            process = self.start_map("--", "/bin/sh", "-c",
                                     f"trap 'exit 7' {number.name[3:]}; echo ready; {LOOP}")
            self.want(b"ready\n", process.stdout.readline(), "the line of the command")
            process.send_signal(number)
            self.want(7, process.wait(10), f"exit code of a command that gets {number.name}")
        process = self.start_map(ignored=(signal.SIGHUP,))
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGQUIT)
        self.want(0, process.wait(10), "exit code of map after SIGQUIT, which ignores SIGHUP")

    def test_killed(self):
        """The command gets SIGTERM when map is killed."""
        self.start()
        process = self.start_map("--", "/bin/sh", "-c", f"trap 'echo told; exit' TERM; echo ready; {LOOP}")
        self.want(b"ready\n", process.stdout.readline(), "the line of the command")
        process.kill()
        self.want(b"told\n", process.stdout.readline(), "the line of the command whose map was killed")

    def test_a_daemon_that_does_not_answer(self):
        """What is waited for is said once, and a signal ends it."""
        served = self.start()
        served.stop()
        process = subprocess.Popen(
            (os.path.join(os.path.dirname(self.binary), "mrshare"), "map", "--socket", self.path, "--shmid", "0",
             "--shm-offset", "0", "--memfd", "8K"), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=daemon.ENVIRONMENT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(process.kill)
        self.addCleanup(served.go_on)
        self.addCleanup(process.stderr.close)
        self.want(True, bool(select.select([process.stderr], [], [], 15)[0]), "whether it says what it waits for")
        self.want(f"mrshare: waiting for the daemon at {self.path} to map 8 KiB\n", process.stderr.readline().decode(),
                  "the error of a map whose daemon is stopped")
        process.send_signal(signal.SIGINT)
        self.want(-signal.SIGINT, process.wait(10), "its exit code")
        served.go_on()

    def test_output_that_fails(self):
        program = os.path.join(os.path.dirname(self.binary), "mrshare")
        code, _, err = daemon.run("/bin/sh", "-c", f"'{program}' --help >/dev/full")
        self.want(1, code, "the exit code where standard output is full")
        self.want_in("mrshare: standard output: ", err, "the error where standard output is full")
