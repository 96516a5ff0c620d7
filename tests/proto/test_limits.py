# test_limits.py: the daemon's own limits and the system's: mappings, bytes, providers, open files.
# SPDX-License-Identifier: BSD-2-Clause
import os
import re
import resource
import time

import daemon
from case import PROMPT, Case
from wire import M, MAP, PAGE, map_message

PAGE_8 = os.path.join(os.path.dirname(__file__), "..", "..", "man", "mrshared.8")


class Limits(Case):
    def setUp(self):
        super().setUp()
        self.one = self.memfd(16 * M)

    def place(self, provider, page, pages=1):
        return provider.map(self.one, shm_offset=page * PAGE, len=pages * PAGE)

    def test_mappings_in_total(self):
        served = self.start("--max-mappings", "3")
        one, two = self.provider(served), self.provider(served)
        self.want(["0", "0", "0", "-EDQUOT"], [self.place(who, page) for page, who in enumerate((one, two, one, two))], "maps up to 3")
        self.want("-EDQUOT", self.place(one, 9), "the first one's fourth")
        self.want("-EEXIST", self.place(one, 0), "an overlap at the limit: the earlier row answers")
        self.want("0", one.unmap(), "unmap")
        self.want("0", self.place(two, 9), "a map when there is room again")
        two.close()
        self.wait_until(lambda: self.place(one, 10) == "0", "room left by a provider that is gone", "free")
        self.want(["0", "-EDQUOT"], [self.place(one, 11), self.place(one, 12)], "maps up to 3 again")

    def test_mappings_a_provider(self):
        served = self.start("--max-mappings", "3,2")
        one, two = self.provider(served), self.provider(served)
        self.want(["0", "0", "-EDQUOT"], [self.place(one, page) for page in range(3)], "maps of the first up to 2")
        self.want(["0", "-EDQUOT"], [self.place(two, page) for page in (3, 4)], "maps of the second up to 3 in total")
        self.want("0", one.unmap(shm_offset=PAGE), "unmap")
        self.want(["0", "-EDQUOT"], [self.place(two, page) for page in (4, 5)], "maps of the second up to 2")

    def test_bytes_in_total(self):
        served = self.start("--max-bytes", "1M")
        one, two = self.provider(served), self.provider(served)
        self.want("-EDQUOT", self.place(one, 0, 257), "one page more than 1 MiB")
        self.want("0", self.place(one, 0, 200), "200 pages")
        self.want("-EDQUOT", self.place(two, 300, 57), "57 pages more")
        self.want("0", self.place(two, 300, 56), "56 pages more: 1 MiB to the byte")
        self.want("-EDQUOT", self.place(two, 400), "another page")
        self.want("0", one.unmap(len=200 * PAGE), "unmap")
        self.want("0", self.place(two, 400, 200), "200 pages when there is room again")

    def test_bytes_a_provider(self):
        served = self.start("--max-bytes", "16M,1M")
        one, two = self.provider(served), self.provider(served)
        self.want("-EDQUOT", self.place(one, 0, 257), "one page more than its 1 MiB")
        self.want("0", self.place(one, 0, 256), "its 1 MiB")
        self.want("-EDQUOT", self.place(one, 300), "another page")
        self.want("0", self.place(two, 300, 256), "the other's 1 MiB")

    def test_refused_maps_do_not_count(self):
        served = self.start("--max-mappings", "2,2", "--max-bytes", "1M,1M")
        me = self.provider(served)
        for _ in range(20):
            self.want("-EFBIG", me.map(self.one, fd_offset=1 << 30), "file too short")
            self.want("-ENODEV", me.map(self.keep(daemon.os.open("/dev/null", 2))), "device")
            self.want("-EDQUOT", self.place(me, 0, 257), "too many bytes")
        self.want(["0", "0", "-EDQUOT"], [self.place(me, page) for page in range(3)], "maps up to 2")

    def test_providers(self):
        """The third of two is accepted and closed at once, and the log says so; when one leaves another may come."""
        served = self.start("--max-providers", "2")
        one, two = self.provider(served), self.provider(served)
        for who in (one, two):
            self.want("-EOPNOTSUPP", who.barrier(), "a question of one of two")
        for _ in range(5):
            mark = served.mark()
            third = self.provider(served)
            self.want("closed", third.ending(PROMPT), "the third of two")
            served.wait_log(r"^warning: provider .*: refused: no more than 2 may be connected \(--max-providers\)$", mark)
        self.want_served(one, self.one)
        two.close()

        def admitted():
            again = self.provider(served)
            got = again.barrier()
            again.close()
            return got == "-EOPNOTSUPP"
        self.wait_until(admitted, "a provider after one of two left", "served")

    def test_out_of_fds_case_37(self):
        """Case 37: accept fails with EMFILE: accepting pauses without spinning, others are served, then it resumes."""
        served = self.start()
        early = self.provider(served)
        self.want_served(early, self.one)
        soft, hard = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        free = served.free_fd()
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (free, hard))
        late = [self.provider(served) for _ in range(3)]
        for each in late:
            each.send(map_message(shmid=9))
        self.want("silence", late[0].answer(MAP, 0.3), "an answer when the daemon is out of fds")
        self.want_idle(served, 1)
        self.want_served(early)
        self.want(True, served.log().count("\n") < 60, "a log that does not fill with it")
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (soft, hard))
        for each in late:
            self.want("-EBADF", each.answer(MAP), "the answer when fds are free again")
        self.want_idle(served)

    def test_out_of_fds_until_one_leaves_case_37(self):
        """Case 37: fds become free because a provider leaves."""
        served = self.start()
        early = self.provider(served)
        self.want_served(early)
        limits = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (served.free_fd(), limits[1]))
        late = self.provider(served)
        late.send(map_message(shmid=9))
        self.want("silence", late.answer(MAP, 0.3), "an answer when the daemon is out of fds")
        early.close()
        self.want("-EBADF", late.answer(MAP), "the answer when a provider has left")
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, limits)

    def test_out_of_fds_and_ended(self):
        served = self.start()
        self.provider(served).barrier()
        limits = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (served.free_fd(), limits[1]))
        self.provider(served)
        time.sleep(0.2)
        served.end()

    def test_files_are_raised_to_the_hard_limit(self):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        served = self.start(limits=[(resource.RLIMIT_NOFILE, (min(1024, hard), hard))])
        self.want((hard, hard), resource.prlimit(served.pid, resource.RLIMIT_NOFILE), "RLIMIT_NOFILE of the daemon")

    def want_refused(self, options, limits, names):
        code, out, said = daemon.run(self.binary, "--no-rdma", "--provider-socket", self.path, "--shmem", "0:64M", *options, limits=limits)
        self.want(True, code in (1, 2), f"{options}: exit code 1 or 2 ({code})")
        self.want(1, said.count("\n"), f"{options}: lines on standard error ({said!r})")
        for name in names:
            self.want_in(name, said, f"{options}: the message")
        self.want([], daemon.os.listdir(self.directory), f"{options}: what was made beside the socket")

    def test_too_few_files_are_refused(self):
        """Limits that cannot hold are refused at start, with the figure needed."""
        few = [(resource.RLIMIT_NOFILE, (64, 64))]  # fewer than a daemon needs for anything
        some = [(resource.RLIMIT_NOFILE, (2048, 2048))]
        self.want_refused((), few, ("64",))
        self.want_refused(("--max-mappings", "1000"), few, ("64",))
        self.want_refused(("--max-providers", "2000", "--max-mappings", "4"), some, ("2048",))
        self.want_refused(("--max-providers", "1", "--max-mappings", "3000"), some, ("2048",))
        served = self.start("--max-mappings", "4", "--max-providers", "4", limits=some)
        self.want_served(self.provider(served), self.one)

    def test_too_few_map_areas_are_refused(self):
        with open("/proc/sys/vm/max_map_count") as file:
            areas = int(file.read())
        self.want_refused(("--max-mappings", "10000000"), (), ("10000000",))
        self.want_refused(("--max-mappings", str(areas)), (), ("max_map_count", str(areas)))

    def needed(self, pattern, *options, limits=()):
        """The figure in the text that refuses to start."""
        _, _, said = daemon.run(self.binary, "--no-rdma", "--provider-socket", self.path, "--shmem", "0:64M", *options, limits=limits)
        found = re.search(pattern, said)
        self.want(True, found is not None, f"{options}: a refusal that matches {pattern!r} ({said!r})")
        return int(found[1])

    def figures(self, unit):
        """The figures that SYSTEM LIMITS of mrshared(8) has for files or maps."""
        with open(PAGE_8, encoding="utf-8") as page:
            limits = page.read().split(".Sh SYSTEM LIMITS")[1].split(".El")[0]
        item = next(item for item in limits.split(".It")[1:] if unit in item)
        return {int(figure) for figure in re.findall(r"\d+", item)}

    def test_files_of_the_manual(self):
        """What mrshared(8) says of files is what it refuses to start with."""
        few = [(resource.RLIMIT_NOFILE, (64, 64))]
        front_ends = ("--socket-path", os.path.join(self.directory, "front-end"))

        def files(*options):
            return self.needed(r"need (\d+) open files", *options, limits=few)
        one = files("--max-providers", "1", "--max-mappings", "1")
        provider = files("--max-providers", "2", "--max-mappings", "1") - one
        mapping = files("--max-providers", "1", "--max-mappings", "2") - one
        front_end = files("--max-providers", "1", "--max-mappings", "1", *front_ends, "--max-front-ends", "1") - one
        self.want(self.figures("files"),
                  {provider, front_end, mapping, one - provider - mapping, files(), files(*front_ends)}, "figures for files")

    def test_maps_of_the_manual(self):
        """Likewise of maps."""
        with open("/proc/sys/vm/max_map_count") as file:
            half = int(file.read()) // 2
        front_ends = ("--socket-path", os.path.join(self.directory, "front-end"), "--max-front-ends")

        def maps(mappings, *options):
            return self.needed(r"vm.max_map_count = (\d+)", "--max-mappings", str(mappings), *options)
        some = maps(half)
        mapping = maps(half + 1) - some
        front_end = maps(half, *front_ends, "1") - some
        own = some - mapping * half
        defaults = mapping * 4096 + own
        self.want(self.figures("maps"), {mapping, front_end, own, defaults, defaults + 16 * front_end}, "figures for maps")
