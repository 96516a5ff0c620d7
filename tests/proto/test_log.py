# test_log.py: the log: one line an event, its level first; who, what, where and why; nothing forged.
# SPDX-License-Identifier: BSD-2-Clause
import os

from case import Case
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
