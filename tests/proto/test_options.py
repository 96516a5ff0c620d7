# test_options.py: the command line: what is wrong is named in one line, with exit code 2, before anything is opened.
# SPDX-License-Identifier: BSD-2-Clause
import os
import re
import subprocess

import daemon
from case import Case
from wire import PAGE

FLAGS = ("--provider-socket", "--shmem", "--map", "--rdma-listen", "--no-rdma", "--allow", "--revoke-timeout", "--keepalive",
         "--max-mappings", "--max-bytes", "--max-extents", "--max-peers", "--max-providers", "--max-mr-size", "--unsealed",
         "--any-filesystem", "--odp", "--socket-mode", "--socket-group", "--log-level", "--log-json", "--map-file", "--version", "--help", "--socket-path", "--fd",
         "--device", "--gpa-addresses", "--max-front-ends", "--print-capabilities")

NUMBERS = ("", "x", "-1", "1x", "1.5", "0x", "99999999999999999999", " 1")
PAIRS = ("1,", ",1", "1,x", "1,2,3", "1,-1")

# Wrong values of each flag, and a word of what is allowed that the message must hold.
WRONG = (
    ("--shmem", ("", "0", "0:", ":1M", "x:1M", "1:1M:2", "1:x", "1:1MB", "1:1X", "1:-4096", "1:0x", "1: 4096", "1:4096 ",
                 "1:99999999999999999999", "1:16777216T"), ""),
    ("--shmem", ("256:1M", "-1:1M", "1000:1M", "0x100:1M"), "255"),
    ("--shmem", ("1:0",), ""),
    ("--shmem", ("1:1", "1:4095", "1:4097", "1:6K"), "4096"),
    ("--map", ("", "x", "shmid=0", "path=FILE", "shmid=0,path=", "shmid=x,path=FILE", "shmid=256,path=FILE", "shmid=,path=FILE",
               "shmid=0,path=FILE,bogus", "shmid=0,path=FILE,bogus=1", "shmid=0,path=FILE,offset=x", "shmid=0,path=FILE,offset=1",
               "shmid=0,path=FILE,len=1", "shmid=0,path=FILE,len=0", "shmid=0,path=FILE,len=", "shmid=0,path=FILE,shm-offset=100",
               "shmid=0,path=FILE,shm-offset=-4096"), ""),
    ("--revoke-timeout", ("", "x", "-1", "1x", "nan", "inf", "1e99", "1.2.3"), ""),
    ("--keepalive", ("", "x", "-1", "0", "1x", "65536", "nan"), ""),
    ("--max-mappings", NUMBERS + PAIRS, ""),
    ("--max-bytes", ("", "x", "-1", "1MB", "0x", "99999999999999999999T") + PAIRS, ""),
    ("--max-extents", NUMBERS, ""),
    ("--max-peers", NUMBERS, ""),
    ("--max-providers", NUMBERS, ""),
    ("--max-mr-size", ("", "x", "-1", "1MB", "99999999999999999999T"), ""),
    ("--unsealed", ("", "maybe", "allow,refuse"), "allow"),
    ("--unsealed", ("no",), "refuse"),
    ("--socket-mode", ("", "x", "8", "0999", "-1", "10000", "0600x"), ""),
    ("--socket-group", ("", "no-such-group-anywhere"), ""),
    ("--log-level", ("", "loud", "infos"), "debug"),
    ("--log-level", ("2",), "warning"),
    ("--allow", ("", "x", "10.0.0.0/33", "10.0.0.0/x", "10.0.0.0/8,rx", "::/129", "10.0.0.0/-1", "10.0.0.0/8,"), ""),
    ("--provider-socket", ("",), ""),
    ("--no-rdma", (None,), ""),  # takes no value
    ("--any-filesystem", (None,), ""),
    ("--log-json", (None,), ""),
    ("--map-file", ("",), ""),
    ("--odp", (None,), ""),
)


class Options(Case):
    def run_daemon(self, *options):
        return daemon.run(self.binary, *options)

    def want_refused(self, flag, *options, word=""):
        """Exit 2, one line that names the flag, nothing on standard output, nothing made."""
        code, out, said = self.run_daemon(*options)
        shown = " ".join(options[-3:])
        self.want(2, code, f"{shown}: exit code ({said!r})")
        self.want("", out, f"{shown}: standard output")
        self.want(True, said.count("\n") == 1 and said.endswith("\n"), f"{shown}: exactly one line on standard error ({said!r})")
        self.want(None, daemon.CONTROL.search(said), f"{shown}: control characters")
        self.want_in(flag, said, f"{shown}: the message")
        self.want_in(word, said, f"{shown}: what is allowed, in the message")
        self.want([], os.listdir(self.directory), f"{shown}: what was made beside the socket")

    def good(self, *more):
        return ("--no-rdma", "--provider-socket", self.path, "--shmem", "0:1M", *more)

    def test_wrong_values(self):
        """Every flag, every kind of wrong value."""
        file = os.readlink(f"/proc/self/fd/{self.file(4 * PAGE)}")
        for flag, values, word in WRONG:
            for value in values:
                if value is None:
                    self.want_refused(flag, *self.good(f"{flag}=yes"))
                    continue
                value = value.replace("FILE", file)
                self.want_refused(flag, *self.good(f"{flag}={value}"), word=word)
        # As words of their own, and before the good flags.
        for flag, values, word in WRONG[1:]:
            if values[0]:
                self.want_refused(flag, flag, values[0].replace("FILE", file), *self.good(), word=word)

    def test_path_too_long_for_a_socket(self):
        self.want_refused("--provider-socket", *self.good("--provider-socket", f"{self.directory}/{'x' * 108}"), word="107")

    def test_wrong_listen_addresses(self):
        for value in ("", "10.0.0.1:65536", "10.0.0.1:x", "10.0.0.1:-1", "[::1", "[::1]x", "[::1]:65536", "10.0.0.1:"):
            self.want_refused("--rdma-listen", "--provider-socket", self.path, "--shmem", "0:1M", f"--rdma-listen={value}")

    def test_duplicate_shmid(self):
        for again in ("0:1M", "0:2M", "0x0:1M"):
            self.want_refused("--shmem", *self.good("--shmem", again))

    def test_unknown_flags(self):
        for flag in ("--bogus", "--bogus=1", "-z", "--shmemm=0:1M"):
            self.want_refused(flag.partition("=")[0].lstrip("-"), *self.good(flag))
        self.want_refused("left-over", *self.good("left-over"))
        self.want_refused("left-over", *self.good("--", "left-over"))

    def test_fd_case_6(self):
        """Case 6: an fd that nobody passed: a clear error at start."""
        for options in (("--fd", "999"), ("--fd=999",)):
            self.want_refused("fd", *self.good(*options))

    def test_missing_values(self):
        for flag in FLAGS:
            if flag not in ("--no-rdma", "--any-filesystem", "--odp", "--gpa-addresses", "--log-json", "--print-capabilities", "--version",
                            "--help"):
                self.want_refused(flag, *self.good(flag))

    def test_control_characters_in_values(self):
        """One line, whatever the value holds."""
        for flag in ("--shmem", "--log-level", "--map", "--socket-group", "--allow", "--max-bytes"):
            self.want_refused(flag, *self.good(flag, "1\nerror: forged\x1b[31m\x07"))
        self.want_refused("bo", *self.good("--bo\ngus\x1b"))

    def test_neither_listen_nor_no_rdma(self):
        self.want_refused("--no-rdma", "--provider-socket", self.path, "--shmem", "0:1M", word="--rdma-listen")

    def test_unconfigured_shmid_of_a_static_mapping(self):
        code, _, said = self.run_daemon(*self.good("--map", "shmid=5,path=/dev/null"))
        self.want(True, code in (1, 2), f"exit code 1 or 2 ({code})")
        self.want_in("5", said, "the message")

    def test_help(self):
        """--help names every flag on standard output, exit 0, whatever else is there."""
        for options in (("--help",), self.good("--help")):
            code, out, said = self.run_daemon(*options)
            self.want((0, ""), (code, said), "exit code and standard error of --help")
            for flag in FLAGS:
                self.want(True, re.search(re.escape(flag) + r"\b", out) is not None, f"{flag} in --help")
            usage, _, _ = out.partition("Shares memory")
            self.want({"--shmem", "--rdma-listen", "--no-rdma"}, set(re.findall(r"--[a-z-]+", re.sub(r"\[.*?\]", "", usage))),
                      "flags that are not optional in the usage line")
        self.want([], os.listdir(self.directory), "what was made beside the socket")

    def test_output_that_is_full(self):
        """What cannot be printed is said, however much of it was."""
        for option in ("--help", "--version", "--print-capabilities"):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([self.binary, option], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20, env=daemon.ENVIRONMENT)
            self.want((1, "mrshared: cannot write to standard output: No space left on device\n"), (done.returncode, done.stderr),
                      f"exit code and standard error of {option}")

    def test_version(self):
        for options in (("--version",), self.good("--version")):
            code, out, said = self.run_daemon(*options)
            self.want((0, "", 1), (code, said, out.count("\n")), "exit code, standard error and lines of --version")
            self.want(True, re.match(r"mrshared\b.* \d+\.\d+", out) is not None, f"name and number in --version ({out!r})")

    def test_right_values(self):
        """Every flag with values that are right, as one word and as two."""
        served = self.start("--shmem=1:0x10K", "--allow", "10.0.0.0/8", "--allow", "10.0.0.0/8,ro", "--allow=fd00::/8,rw",
                            "--revoke-timeout", "0.25", "--keepalive=7", "--max-mappings", "100,10", "--max-bytes=1T,0x100M",
                            "--max-extents=1000", "--max-peers", "10", "--max-providers=9", "--max-mr-size", "1G", "--unsealed=allow",
                            "--any-filesystem", "--socket-mode", "0600", "--log-level=debug")
        self.want_served(self.provider(served), self.memfd(), shmid=1, shm_offset=3 * PAGE)
        self.providers[-1].close()
        served.settled()
        served.end()
        for timeout in ("1", "2.5", "0.001"):
            served = self.start("--revoke-timeout", timeout)
            served.end()

    def test_log_levels(self):
        """Lines above the level are not written."""
        for level, shown in (("error", set()), ("warning", {"warning"}), ("info", {"warning", "info"}), ("debug", {"warning", "info"})):
            served = self.start("--log-level", level, path=self.path + level)
            me = self.provider(served)
            self.want("0", me.map(self.memfd(flags=0)), "map of a memfd that cannot be sealed")
            self.want("0", me.unmap(), "unmap")
            me.close()
            served.settled()
            served.end()
            levels = {line.partition(":")[0] for line in served.log().splitlines()}
            self.want(shown, levels - {"debug"} if level == "debug" else levels, f"levels in the log with --log-level {level}")
