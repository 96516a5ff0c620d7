# test_files.py: what may be mapped and what not: kinds of files, access, seals, huge pages, sizes.
# SPDX-License-Identifier: BSD-2-Clause
import ctypes
import mmap
import os
import resource
import select
import socket
import time

from case import (F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, PROMPT, Case, libc)
from wire import M, MAP, PAGE, payload

HUGE = 2 * M
PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


class Files(Case):
    def setUp(self):
        super().setUp()
        self.served = self.start()
        self.me = self.provider(self.served)

    def want_map(self, wanted, fd, what, **fields):
        self.want(wanted, self.me.map(fd, **fields), what)
        if wanted == "0":
            self.want("0", self.me.unmap(**{key: value for key, value in fields.items() if key in ("len", "shm_offset")}), f"unmap: {what}")

    def test_access(self):
        """Writable needs O_RDWR, reading needs anything but O_WRONLY."""
        for kind, made in (("memfd", self.memfd()), ("file", self.file())):
            for name, flags, reads, writes in (("O_RDWR", os.O_RDWR, "0", "0"), ("O_RDONLY", os.O_RDONLY, "0", "-EACCES"),
                                               ("O_WRONLY", os.O_WRONLY, "-EACCES", "-EACCES"), ("O_PATH", os.O_PATH, "-EBADF", "-EBADF")):
                fd = self.reopen(made, flags)
                self.want_map(reads, fd, f"{kind} {name}, read-only", flags=0)
                self.want_map(writes, fd, f"{kind} {name}, writable", flags=1)

    def test_read_only_map_is_read_only(self):
        fd = self.memfd(name="read-only")
        self.want("0", self.me.map(fd, flags=0), "map")
        self.want("r--s", self.served.maps_of(fd)[0].access, "access of a read-only mapping of an O_RDWR fd")
        only = self.reopen(fd, os.O_RDONLY)
        self.want("0", self.me.map(only, flags=0, shm_offset=M), "map of an O_RDONLY fd")
        self.want(["r--s", "r--s"], [entry.access for entry in self.served.maps_of(fd)], "access of both")

    def test_not_regular(self):
        """Sockets, pipes, devices, directories, anonymous inodes: -ENODEV, whatever access they offer."""
        reader, writer = os.pipe()
        left, right = socket.socketpair()
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        epoll = select.epoll()
        for each in (left, right, tcp, epoll):
            self.addCleanup(each.close)
        for fd in (reader, writer):
            self.keep(fd)
        os.mkfifo(os.path.join(self.logs, "fifo"))
        for what, fd, access in (
                ("read end of a pipe", reader, 0), ("socket pair", left.fileno(), 1), ("socket pair, read-only", left.fileno(), 0),
                ("TCP socket", tcp.fileno(), 1), ("eventfd", self.keep(os.eventfd(0)), 1), ("epoll", epoll.fileno(), 1),
                ("pidfd", self.keep(os.pidfd_open(os.getpid())), 1),
                ("/dev/null", self.keep(os.open("/dev/null", os.O_RDWR)), 1), ("/dev/zero", self.keep(os.open("/dev/zero", os.O_RDWR)), 1),
                ("/dev/null, read-only", self.keep(os.open("/dev/null", os.O_RDONLY)), 0),
                ("directory", self.keep(os.open(self.directory, os.O_RDONLY)), 0),
                ("FIFO", self.keep(os.open(os.path.join(self.logs, "fifo"), os.O_RDWR)), 1)):
            self.want("-ENODEV", self.me.map(fd, flags=access), what)
        self.want("-EACCES", self.me.map(writer, flags=0), "write end of a pipe, to be read")

    def test_files_that_cannot_be_mapped(self):
        """mmap's own errno: a file of sysfs is regular, long enough, and cannot be mapped."""
        path = "/sys/kernel/mm/transparent_hugepage/enabled"
        self.need(os.path.exists(path), f"{path} is not there")
        self.want("-ENODEV", self.me.map(self.keep(os.open(path, os.O_RDONLY)), flags=0), "file of sysfs")
        self.want("-EFBIG", self.me.map(self.keep(os.open("/proc/self/status", os.O_RDONLY)), flags=0), "file of proc, size 0")

    def test_shorter_than_asked(self):
        for kind, make in (("memfd", self.memfd), ("file", lambda size: self.file(size, name=f"file{size}"))):
            for size, fd_offset, length, wanted in ((0, 0, PAGE, "-EFBIG"), (1, 0, PAGE, "-EFBIG"), (PAGE - 1, 0, PAGE, "-EFBIG"),
                                                    (PAGE, 0, PAGE, "0"), (PAGE, 0, 2 * PAGE, "-EFBIG"), (PAGE, PAGE, PAGE, "-EFBIG"),
                                                    (2 * PAGE, PAGE, PAGE, "0"), (2 * PAGE - 1, PAGE, PAGE, "-EFBIG"),
                                                    (2 * PAGE, 1 << 40, PAGE, "-EFBIG"), (3 * PAGE + 1, 2 * PAGE, PAGE, "0")):
                self.want_map(wanted, make(size), f"{kind} of {size}, {length} at {fd_offset}", fd_offset=fd_offset, len=length)

    def test_large_fd_offset(self):
        """Offsets beyond 4 GiB and near the end of what a file can hold."""
        fd = self.memfd((1 << 40) + PAGE)
        self.want_map("0", fd, "a page at 1 TiB", fd_offset=1 << 40)
        self.want_map("-EFBIG", fd, "two pages at 1 TiB", fd_offset=1 << 40, len=2 * PAGE)
        self.want_map("0", self.memfd(2**63 - PAGE), "the last page of a file of 8 EiB", fd_offset=2**63 - 2 * PAGE)

    def test_disk_file(self):
        """A writable map of a file on a disk: allowed where nothing is pinned (--no-rdma)."""
        fd = self.file(4 * PAGE)
        self.want("0", self.me.map(fd, len=4 * PAGE), "writable map of a file on a disk")
        base = self.base_of(self.served, fd)
        self.served.write_memory(base + PAGE, b"through the region")
        self.want(b"through the region", os.pread(fd, 18, PAGE), "the file")
        self.want("0", self.me.unmap(len=4 * PAGE), "unmap")

    def test_unlinked_and_tmpfs_files(self):
        self.need(os.path.ismount("/dev/shm") and os.access("/dev/shm", os.W_OK), "/dev/shm is no tmpfs to write to")
        fd = self.keep(os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600))
        os.ftruncate(fd, 2 * PAGE)
        self.want_map("0", fd, "unlinked file on tmpfs", len=2 * PAGE)

    def test_memfd_is_sealed(self):
        """A memfd that takes seals gets F_SEAL_SHRINK; case 23: then nobody truncates it."""
        for seals, access, what in ((0, 1, "no seals"), (F_SEAL_GROW, 1, "F_SEAL_GROW"), (F_SEAL_SHRINK, 1, "sealed already"),
                                    (0, 0, "read-only map")):
            fd = self.memfd(2 * PAGE, seals=seals)
            self.want("0", self.me.map(fd, flags=access), f"map: {what}")
            self.want(seals | F_SEAL_SHRINK, self.seals(fd), f"seals afterwards: {what}")
            try:
                os.ftruncate(fd, PAGE)
                got = "0"
            except PermissionError:
                got = "EPERM"
            self.want("EPERM", got, "truncating a sealed memfd")
            self.want("0", self.me.unmap(), f"unmap: {what}")

    def test_sealed_against_writing(self):
        """F_SEAL_WRITE and F_SEAL_FUTURE_WRITE: no writable map; read-only is fine."""
        for seal, what in ((F_SEAL_WRITE, "F_SEAL_WRITE"), (F_SEAL_FUTURE_WRITE, "F_SEAL_FUTURE_WRITE"),
                           (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_SEAL, "F_SEAL_WRITE, all sealed")):
            fd = self.memfd(PAGE, seals=seal)
            self.want_map("-EACCES", fd, f"{what}, writable", flags=1)
            only = self.reopen(fd, os.O_RDONLY)
            self.want_map("0", only, f"{what}, read-only, O_RDONLY fd", flags=0)
            self.want_map("-EACCES", only, f"{what}, writable, O_RDONLY fd", flags=1)
            # Before Linux 6.7 an O_RDWR fd with F_SEAL_WRITE cannot be mapped shared at all.
            try:
                mmap.mmap(fd, PAGE, mmap.MAP_SHARED, mmap.PROT_READ).close()
                wanted = "0"
            except PermissionError:
                wanted = "-EPERM"
            self.want_map(wanted, fd, f"{what}, read-only, O_RDWR fd", flags=0)

    def test_truncated_after_the_map_case_23(self):
        """Case 23: a memfd that cannot be sealed is truncated, or a hole punched: the daemon lives and unmaps."""
        for change in ("truncate", "hole"):
            fd = self.memfd(16 * PAGE, flags=0)
            os.pwrite(fd, b"x" * 16 * PAGE, 0)
            self.want("0", self.me.map(fd, len=16 * PAGE), "map")
            if change == "truncate":
                os.ftruncate(fd, 0)
            else:
                self.want(0, libc.fallocate64(fd, PUNCH_HOLE, *self.offsets(0, 16 * PAGE)), "fallocate")
            self.want("0", self.me.map(self.memfd(), shm_offset=M), f"another map after: {change}")
            self.want("0", self.me.unmap(shm_offset=M), "its unmap")
            self.want("0", self.me.unmap(len=16 * PAGE), f"unmap after: {change}")
        fd = self.memfd(16 * PAGE, flags=0)
        self.want("0", self.me.map(fd, len=16 * PAGE), "map")
        os.ftruncate(fd, 0)
        self.me.close()
        self.wait_until(lambda: not self.served.maps_of(fd), "mapping of a truncated file, its provider gone", "removed")

    @staticmethod
    def offsets(*values):
        return [ctypes.c_int64(value) for value in values]

    def test_hole_in_a_sealed_memfd_case_23(self):
        fd = self.memfd(4 * PAGE)
        self.want("0", self.me.map(fd, len=4 * PAGE), "map")
        self.want(0, libc.fallocate64(fd, PUNCH_HOLE, *self.offsets(0, 4 * PAGE)), "fallocate")
        self.want("0", self.me.unmap(len=4 * PAGE), "unmap")

    def test_huge_pages_case_11(self):
        """Case 11: 4 KiB steps into a hugetlbfs file: refused, the huge page size named."""
        fd = self.huge_memfd(2 * HUGE)
        for fields in ({"len": PAGE}, {"len": HUGE + PAGE}, {"len": HUGE, "fd_offset": PAGE}, {"len": HUGE, "shm_offset": PAGE},
                       {"len": HUGE - PAGE}, {"len": HUGE, "fd_offset": HUGE + PAGE}):
            mark = self.served.mark()
            self.want("-EINVAL", self.me.map(fd, **fields), f"huge pages, {fields}")
            self.served.wait_log(r"\b2 ?M(i?B)?\b|\b2048 ?k|\b2097152\b", mark)
        self.want("-EFBIG", self.me.map(fd, len=HUGE, fd_offset=2 * HUGE), "beyond the end of huge pages")

    def test_huge_pages_mapped(self):
        reserve = "/proc/sys/vm/nr_overcommit_hugepages"
        self.need(os.access(reserve, os.W_OK), "no rights to allow huge pages")
        with open(reserve) as file:
            before = file.read()
        with open(reserve, "w") as file:
            file.write("8")
        self.addCleanup(self.write, reserve, before)
        fd = self.huge_memfd(2 * HUGE)
        try:
            mmap.mmap(fd, 2 * HUGE).close()
        except OSError as error:
            self.skipTest(f"no huge pages here: {error.strerror}")
        self.want("0", self.me.map(fd, len=2 * HUGE, shm_offset=HUGE), "map of two huge pages")
        self.want(0, self.base_of(self.served, fd, HUGE) % (1 << 30), "base, modulo 1 GiB")
        self.want("0", self.me.unmap(len=2 * HUGE, shm_offset=HUGE), "unmap")
        self.want_map("0", fd, "map of the second huge page", len=HUGE, fd_offset=HUGE)

    @staticmethod
    def write(path, text):
        with open(path, "w") as file:
            file.write(text)

    def test_address_space_full(self):
        """mmap fails in the kernel: its errno, and everything as before."""
        self.need(not self.sanitized, "AddressSanitizer needs address space of its own")
        fd = self.memfd(M)
        limits = resource.prlimit(self.served.pid, resource.RLIMIT_AS)
        # MAP_FIXED over a reservation needs no new address space, so this may succeed; what must not happen is an end.
        resource.prlimit(self.served.pid, resource.RLIMIT_AS, (self.served.status("VmSize"), limits[1]))
        got = self.me.map(fd, len=M)
        resource.prlimit(self.served.pid, resource.RLIMIT_AS, limits)
        self.want(True, got in ("0", "-ENOMEM"), f"a map at the limit of the address space: {got}")
        if got == "0":
            self.want("0", self.me.unmap(len=M), "unmap")
        self.want_map("0", fd, "a map afterwards", len=M)


class Unsealed(Case):
    """Files that cannot be sealed against truncation."""

    def opened(self):
        """Each with its name; the bool says whether it is safe all the same."""
        plain = self.memfd(flags=0, name="plain")
        closed = self.memfd(seals=F_SEAL_SEAL, name="closed")
        only = self.reopen(self.memfd(name="only"), os.O_RDONLY)
        safe = self.memfd(seals=F_SEAL_SHRINK | F_SEAL_SEAL, name="safe")
        safe_only = self.reopen(self.memfd(seals=F_SEAL_SHRINK, name="safe-only"), os.O_RDONLY)
        return (("memfd made without sealing", plain, 1, False), ("memfd with F_SEAL_SEAL", closed, 1, False),
                ("O_RDONLY fd of a memfd", only, 0, False), ("file", self.file(), 1, False), ("file, read-only", self.file(), 0, False),
                ("memfd with all seals needed", safe, 1, True), ("O_RDONLY fd of a sealed memfd", safe_only, 0, True),
                ("memfd that takes seals", self.memfd(), 1, True))

    def test_unsealed_refused(self):
        served = self.start("--unsealed=refuse")
        me = self.provider(served)
        for what, fd, access, safe in self.opened():
            self.want("0" if safe else "-EPERM", me.map(fd, flags=access), f"--unsealed=refuse: {what}")
            if safe:
                self.want("0", me.unmap(), f"unmap: {what}")

    def test_unsealed_allowed_with_a_warning(self):
        for options in ((), ("--unsealed=allow",)):
            served = self.start(*options)
            me = self.provider(served)
            for what, fd, access, safe in self.opened():
                mark = served.mark()
                self.want("0", me.map(fd, flags=access), f"{options}: {what}")
                if not safe:
                    self.want_in("trunc", served.wait_log(r"^warning: ", mark).lower(), f"warning that names the danger: {what}")
                self.want("0", me.unmap(), f"unmap: {what}")
                if safe:
                    self.want(False, "warning: " in served.log_since(mark), f"a warning about what is safe: {what}")
            self.providers.pop().close()
            served.settled()
            served.end()


class ServedByOthers(Case):
    """Files of FUSE: whoever touches one may wait for another process."""

    def setUp(self):
        super().setUp()
        self.mounted = self.fuse()

    def open(self):
        """Closed after the server is gone: closing asks it."""
        return self.keep(self.mounted.open())

    def test_fuse_refused(self):
        served = self.start()
        me = self.provider(served)
        with self.mounted:
            file = self.open()
            begin = time.monotonic()
            for access in (0, 1):
                self.want("-ENODEV", me.map(file, flags=access), "file on FUSE")
            self.want("nothing", me.quietly(MAP, payload(), [file]), "file on FUSE, no reply asked")
            self.want(True, time.monotonic() - begin < PROMPT, "answered promptly")

    def test_fuse_with_any_filesystem(self):
        served = self.start("--any-filesystem")
        me = self.provider(served)
        with self.mounted:
            file = self.open()
            self.want("0", me.map(file, flags=0, len=4 * PAGE), "file on FUSE with --any-filesystem")
            self.want(b"served by", served.read_memory(self.base_of(served, file), 9), "what the region shows")
            self.want("0", me.unmap(len=4 * PAGE), "unmap")
