# test_rows.py: the table of checks: each row's answer, and of two rows the first one's, with and without NEED_REPLY.
# SPDX-License-Identifier: BSD-2-Clause
import os

from case import SIZE, Case
from wire import BARRIER, MAP, PAGE, UNMAP, WRITABLE, payload

HUGE = 2 << 20

# The rows in their order, each with its answer.
MAP_ROWS = {
    "unknown request": "-EOPNOTSUPP",
    "size": "-EINVAL",
    "number of fds": "-EBADF",
    "form": "-EINVAL",
    "shmid": "-ENXIO",
    "beyond the region": "-ERANGE",
    "overlap": "-EEXIST",
    "limit": "-EDQUOT",
    "O_PATH": "-EBADF",
    "access": "-EACCES",
    "kind of file": "-ENODEV",
    "page size": "-EINVAL",
    "too short": "-EFBIG",
}
UNMAP_ROWS = {
    "unknown request": "-EOPNOTSUPP",
    "size": "-EINVAL",
    "an fd": "-EINVAL",
    "form": "-EINVAL",
    "shmid": "-ENXIO",
    "beyond the region": "-ERANGE",
    "no such mapping": "-ENOENT",
    "another's": "-EPERM",
}
# Rows that exclude each other: no message violates both.
EXCLUSIVE = ({"kind of file", "page size"}, {"no such mapping", "another's"}, {"beyond the region", "another's"},
             {"shmid", "another's"}, {"form", "another's"})


class Rows(Case):
    def setUp(self):
        """One provider is at its limit, the other is not; the region's last page is taken."""
        super().setUp()
        self.served = self.start("--max-mappings", "8,1")
        self.full, self.free = self.provider(self.served), self.provider(self.served)
        self.good = self.memfd(2 * PAGE, name="good")
        self.want("0", self.full.map(self.good, shm_offset=SIZE - PAGE), "the mapping that takes the last page")
        self.made = {}

    def opened(self, rows):
        """A file that violates exactly the rows among those that a file can violate."""
        key = frozenset(rows & {"O_PATH", "access", "kind of file", "page size"})
        if key not in self.made:
            if "kind of file" in key:
                path = self.directory
            elif "page size" in key:
                path = f"/proc/self/fd/{self.huge_memfd(HUGE)}"
            else:
                path = f"/proc/self/fd/{self.good}"
            flags = os.O_PATH if "O_PATH" in key else os.O_RDONLY
            self.made[key] = self.keep(os.open(path, flags | os.O_CLOEXEC))
        return self.made[key]

    def map_that_violates(self, rows):
        """The provider, request, payload and fds of a map that violates these rows and no other."""
        fields = {"flags": WRITABLE if "access" in rows else 0}
        if "form" in rows:
            fields["flags"] |= 2
        if "shmid" in rows:
            fields["shmid"] = 9
        if "overlap" in rows:
            fields["shm_offset"] = SIZE - PAGE
        if "beyond the region" in rows:
            fields.update({"len": 2 * PAGE} if "overlap" in rows else {"shm_offset": SIZE})
        if "too short" in rows:
            fields["fd_offset"] = 1 << 30
        body = payload(**fields) + (b"\0" if "size" in rows else b"")
        fds = [self.opened(rows)] * (2 if "number of fds" in rows else 1)
        return self.full if "limit" in rows else self.free, 5 if "unknown request" in rows else MAP, body, fds

    def unmap_that_violates(self, rows):
        fields = {"flags": 0, "shm_offset": SIZE - PAGE}
        if "no such mapping" in rows:
            fields["shm_offset"] = PAGE
        if "form" in rows:
            fields["len"] = 100
        if "shmid" in rows:
            fields["shmid"] = 9
        if "beyond the region" in rows:
            fields["shm_offset"] = SIZE
        body = payload(**fields) + (b"\0" if "size" in rows else b"")
        fds = [self.good] if "an fd" in rows else []
        return self.full if "another's" not in rows else self.free, 6 if "unknown request" in rows else UNMAP, body, fds

    def want_answer(self, wanted, sent, what):
        """The answer with NEED_REPLY; without it nothing."""
        provider, request, body, fds = sent
        self.want(wanted, provider.call(request, body, fds), what)
        self.want("nothing", provider.quietly(request, body, fds), f"{what}, no reply asked")

    def want_logged(self, sent, what):
        """Without NEED_REPLY there is nothing but a line in the log, which is written at once where it is not one of many."""
        provider, request, body, fds = sent
        mark = self.served.mark()
        self.want("nothing", provider.quietly(request, body, fds), f"{what}, no reply asked")
        self.wait_until(lambda: [line for line in self.served.log_since(mark).splitlines() if str(BARRIER) not in line],
                        f"log of {what}, no reply asked", "a line", lambda: repr(self.served.log_since(mark)))

    def go_through(self, rows, violate):
        names = list(rows)
        for index, first in enumerate(names):
            self.want_logged(violate({first}), first)
            self.want_answer(rows[first], violate({first}), first)
            for second in names[index + 1:]:
                if not any({first, second} == pair for pair in EXCLUSIVE):
                    self.want_answer(rows[first], violate({first, second}), f"{first} and {second}")
            # All that come after, at once.
            rest = set(names[index:])
            for pair in EXCLUSIVE:
                if pair <= rest:
                    rest -= pair - {first}
            self.want_answer(rows[first], violate(rest), f"{first} and all that come after it")

    def test_map_rows(self):
        """Every row of the table and every pair of rows of a map."""
        self.go_through(MAP_ROWS, self.map_that_violates)
        self.want("0", self.free.map(self.good), "a map that violates none")

    def test_unmap_rows(self):
        """Every row and pair of rows of an unmap."""
        self.go_through(UNMAP_ROWS, self.unmap_that_violates)
        self.want("0", self.full.unmap(shm_offset=SIZE - PAGE), "an unmap that violates none")

    def test_fd_number_reused_case_5(self):
        """Case 5: refused at each check, then the fd's number is used again: nobody closes what is not his."""
        mine = self.provider(self.served)
        for row in MAP_ROWS:
            for _ in range(3):
                provider, request, body, fds = self.map_that_violates({row})
                self.want(MAP_ROWS[row], provider.call(request, body, fds), row)
                self.want("0", mine.map(self.good, shm_offset=PAGE), f"a map after one refused: {row}")
                self.want(MAP_ROWS[row], provider.call(request, body, fds), f"{row} again")
                # Refused fds are closed by workers, so it may take a moment until only the live mappings' are left.
                self.wait_until(lambda: self.served.fds()["/memfd:good (deleted)"] <= 2, "fds of refused maps", "closed")
                self.want(2, self.served.fds()["/memfd:good (deleted)"], f"open fds of the two live mappings after: {row}")
                self.want("0", mine.unmap(shm_offset=PAGE), "unmap")


class Form(Case):
    def setUp(self):
        super().setUp()
        self.served = self.start()
        self.one = self.memfd(4 * PAGE, name="one")
        self.me = self.provider(self.served)

    def want_refused(self, wanted, what, fds=None, **fields):
        self.want(wanted, self.me.call(MAP, payload(**fields), [self.one] if fds is None else fds), f"map: {what}")
        self.want("nothing", self.me.quietly(MAP, payload(**fields), [self.one]), f"map without NEED_REPLY: {what}")

    def test_each_size_of_payload(self):
        for size in [*range(0, 40), *range(41, 100), 128, 1024, 4095, 4096]:
            for request, fds in ((MAP, [self.one]), (MAP, []), (UNMAP, []), (UNMAP, [self.one])):
                self.want("-EINVAL", self.me.call(request, payload()[:size].ljust(size, b"\0"), fds), f"request {request}, size {size}")

    def test_each_unknown_map_flag(self):
        for bit in range(1, 64):
            for access in (0, 1):
                self.want_refused("-EINVAL", f"flag bit {bit}", flags=access | 1 << bit)

    def test_form_of_a_map(self):
        for fields in ({"len": 0}, {"len": 1}, {"len": PAGE - 1}, {"len": PAGE + 1}, {"len": PAGE + 512}, {"len": 2**64 - 1},
                       {"shm_offset": 1}, {"shm_offset": PAGE - 1}, {"shm_offset": PAGE // 2}, {"shm_offset": 2**64 - 1},
                       {"fd_offset": 1}, {"fd_offset": PAGE - 1}, {"fd_offset": 512}, {"fd_offset": 2**64 - 1},
                       {"len": 0, "shm_offset": 2 * SIZE}, {"len": 0, "shmid": 7}):
            self.want_refused("-EINVAL", str(fields), **fields)

    def test_form_of_an_unmap(self):
        for fields in ({"len": 0}, {"len": 1}, {"len": PAGE + 512}, {"shm_offset": 1}, {"shm_offset": 512},
                       {"shm_offset": 2**64 - PAGE}, {"shm_offset": PAGE, "len": 2**64 - PAGE}):
            self.want("-EINVAL", self.me.unmap(**fields), f"unmap: {fields}")
        self.want("0", self.me.map(self.one), "map")
        for fields in ({"fd_offset": 1}, {"fd_offset": 2**64 - 1, "flags": 2**64 - 1}, {"flags": 2}, {"padding": b"\xff" * 7}):
            self.want("0", self.me.unmap(**fields), f"unmap that does not look at {fields}")
            self.want("0", self.me.map(self.one), "map")

    def test_padding_is_ignored(self):
        for index in range(7):
            padding = bytes(0xFF if at == index else 0 for at in range(7))
            self.want("0", self.me.map(self.one, padding=padding), f"map, padding byte {index} set")
            self.want("0", self.me.unmap(padding=padding), f"unmap, padding byte {index} set")

    def test_overflow_case_8(self):
        """Case 8: offset + len of 2^64 and beyond, for the region's offset and the file's."""
        for offset, length in ((2**64 - PAGE, PAGE), (2**64 - PAGE, 2 * PAGE), (PAGE, 2**64 - PAGE), (2 * PAGE, 2**64 - PAGE),
                               (2**63, 2**63), (2**63, 2**63 + PAGE)):
            self.want_refused("-EINVAL", f"shm_offset {offset:#x}, len {length:#x}", shm_offset=offset, len=length)
            self.want("-EINVAL", self.me.unmap(shm_offset=offset, len=length), f"unmap, shm_offset {offset:#x}, len {length:#x}")
        self.want_refused("-ERANGE", "len 2^64 - 4096 at 0", len=2**64 - PAGE)
        for fd_offset, length in ((2**64 - PAGE, PAGE), (2**64 - PAGE, 2 * PAGE), (2**63, PAGE), (2**63 - PAGE, PAGE)):
            got = self.me.map(self.one, fd_offset=fd_offset, len=length)
            # The table names the overflow of shm_offset only: as a form error or as a file too short it is refused.
            self.want(True, got in ("-EFBIG", "-EINVAL"), f"fd_offset {fd_offset:#x}, len {length:#x}: {got}")

    def test_huge_len_case_9(self):
        """Case 9: 8 EiB into a region of 64 MiB: refused, nothing allocated by it."""
        before = self.served.status("VmSize")
        self.want_refused("-ERANGE", "8 EiB", len=1 << 63)
        self.want_refused("-ERANGE", "1 TiB", len=1 << 40)
        self.want(True, self.served.status("VmSize") - before < 16 << 20, "address space flat")

    def test_number_of_fds(self):
        for count in (0, 2, 3, 8, 32, 100):
            self.want("-EBADF", self.me.call(MAP, payload(), [self.one] * count), f"map with {count} fds")
            if count:
                self.want("-EINVAL", self.me.call(UNMAP, payload(), [self.one] * count), f"unmap with {count} fds")

    def test_refusals_are_logged_with_their_reason(self):
        """Without NEED_REPLY the log is the only place to learn of a failure."""
        for fields, fds in (({"shmid": 7}, [self.one]), ({"shm_offset": SIZE}, [self.one]), ({}, []), ({"fd_offset": 1 << 30}, [self.one])):
            mark = self.served.mark()
            self.me.quietly(MAP, payload(**fields), fds)
            line = self.served.wait_log(r"^(warning|info|error): ", mark)
            self.want(True, len(line) > 25, f"a line that says why: {line!r}")
