# test_frontend_queue.py: a front-end's memory table, its queue and the flushes in it, with front-ends that mean harm.
# SPDX-License-Identifier: BSD-2-Clause
import fcntl
import os
import select
import signal
import socket
import struct
import threading
import time

import frontend as fe
from frontend import FrontEndCase, state, table, u64
from wire import G, M, PAGE, VERSION


class Tables(FrontEndCase):
    def test_half_wrong_table_case_4(self):
        """Case 4: three regions, the second fd is a pipe: all or nothing, the old table stays, each fd closed once."""
        served = self.serve()
        front_end = self.running()
        self.want(0, front_end.flush(), "a flush")
        before = served.fd_count()
        reader, writer = os.pipe()
        more = [(1 << 30, PAGE, 1 << 43, 0), (1 << 31, fe.RAM_SIZE, 1 << 44, 0)]
        for _ in range(20):
            got = front_end.call(fe.SET_MEM_TABLE, table(front_end.entry(), *more), [front_end.ram_fd, reader, front_end.ram_fd])
            self.want(True, got.startswith("-E"), f"a table with a pipe in it: an error ({got})")
            self.want(0, front_end.flush(), "a flush with the table before")
        os.close(reader)
        os.close(writer)
        self.wait_until(lambda: served.fd_count() == before, "open fds", before, served.fd_count)
        self.want("0", front_end.call(fe.SET_MEM_TABLE, table(front_end.entry(), more[1]), [front_end.ram_fd] * 2), "a right one")
        self.want(0, front_end.flush(), "a flush with the new table")

    def test_wrong_tables(self):
        served = self.serve()
        front_end = self.running()
        ram, whole = front_end.ram_fd, fe.RAM_SIZE
        wrong = (
            ("a size of 0", [(0, 0, fe.USER_BASE, 0)]),
            ("a guest address that overflows", [((1 << 64) - PAGE, 2 * PAGE, fe.USER_BASE, 0)]),
            ("a user address that overflows", [(0, whole, (1 << 64) - PAGE, 0)]),
            ("an offset that overflows", [(0, whole, fe.USER_BASE, (1 << 64) - PAGE)]),
            ("a file that is too short", [(0, 2 * whole, fe.USER_BASE, 0)]),
            ("an offset behind the end", [(0, whole, fe.USER_BASE, whole)]),
            ("8 EiB", [(0, 1 << 63, fe.USER_BASE, 0)]),
            ("two that overlap", [(0, whole, fe.USER_BASE, 0), (PAGE, whole, 1 << 44, 0)]),
            ("two whose user addresses overlap", [(0, whole, fe.USER_BASE, 0), (G, whole, fe.USER_BASE + PAGE, 0)]),
        )
        for what, entries in wrong:
            got = front_end.call(fe.SET_MEM_TABLE, table(*entries), [ram] * len(entries))
            self.want(True, got.startswith("-E"), f"{what}: an error ({got})")
            self.want(0, front_end.flush(), f"a flush after {what}")
        nine = [(i * G, whole, (1 << 44) + i * G, 0) for i in range(9)]
        self.want("-EINVAL", front_end.call(fe.SET_MEM_TABLE, table(*nine), [ram] * 8), "9 regions with 8 fds")
        self.want("0", front_end.call(fe.SET_MEM_TABLE, table(front_end.entry(), *nine[1:8]), [ram] * 8), "8 regions")
        got = front_end.call(fe.ADD_MEM_REG, bytes(8) + struct.pack("=QQQQ", *nine[8]), [ram])
        self.want(True, got.startswith("-E"), f"a ninth: an error ({got})")
        one = bytes(8) + struct.pack("=QQQQ", *nine[1])
        self.want("0", front_end.call(fe.REM_MEM_REG, one, [ram]), "one is removed, with its fd sent along")
        got = front_end.call(fe.REM_MEM_REG, one)
        self.want(True, got.startswith("-E"), f"removed again: an error ({got})")
        self.want("0", front_end.call(fe.ADD_MEM_REG, bytes(8) + struct.pack("=QQQQ", *nine[8]), [ram]), "the ninth then")
        self.want(0, front_end.flush(), "a flush in the end")
        self.want_idle(served)

    def test_table_while_the_queue_is_busy_case_19(self):
        """Case 19: tables that come while flushes run; the old memory goes."""
        served = self.serve()
        front_end = self.running()
        stop = threading.Event()
        flushed = []

        def flush():
            while not stop.is_set():
                flushed.append(front_end.flush())
        thread = threading.Thread(target=flush)
        thread.start()
        try:
            answers = {front_end.set_table() for _ in range(200)}
        finally:
            stop.set()
            thread.join()
        self.want({"0"}, answers, "acknowledgements of tables")
        self.want({0}, set(flushed), "answers of flushes")
        self.wait_until(lambda: len(served.maps_of(front_end.ram_fd)) == 1, "mappings of its memory", 1,
                        lambda: len(served.maps_of(front_end.ram_fd)))

    def test_memory_is_truncated_case_36(self):
        """Case 36: the memory's file is truncated under a queue that runs: that front-end ends, others go on."""
        served = self.serve()
        provider = self.provider(served)
        self.mapped_file(provider)
        front_end, other = self.running(), self.running()
        other.serve()
        self.want(0, front_end.flush(), "a flush")
        os.ftruncate(front_end.ram_fd, 0)
        front_end.ring()
        self.wait_until(lambda: front_end.barrier() == "closed", "the end of the front-end", "it")
        served.wait_log("front-end 1 .*dropped")
        self.want(0, other.flush(), "another front-end's flush")

    def test_descriptor_into_the_bar_case_36(self):
        """Case 36: a descriptor, or the ring, points into memory that is a mapping of ours: the ring is broken."""
        served = self.serve("--revoke-timeout", "0.2")
        provider = self.provider(served)
        fd = self.mapped_file(provider, size=M)
        front_end, other = self.running(), self.running()
        front_end.serve()
        other.serve()
        self.want("0", front_end.set_table(), "a table with our file")
        bar = front_end.held_entries()[0][0]
        front_end.put_desc(0, fe.BUFFERS, 4, fe.NEXT, 1)
        front_end.put_desc(1, bar, 4, fe.WRITE)
        front_end.offer(0)
        front_end.ring()
        self.want_broken(front_end, "a descriptor into a mapping")
        self.want(bytes(M), os.pread(fd, M, 0), "the mapping's bytes")
        self.want(0, other.flush(), "another front-end's flush")

    def want_broken(self, front_end, what):
        """The ring stands still and says so; a new start mends it."""
        self.want(True, bool(select.select([front_end.err], [], [], 5)[0]), f"{what}: the err fd")
        os.eventfd_read(front_end.err)
        front_end.post_flush(9)
        front_end.ring()
        self.want([], front_end.answers(1, 0.2), f"{what}: answers of a broken ring")
        self.want_alive(front_end, what)
        front_end.stop()
        self.want("0", front_end.start(base=0), f"{what}: a start afterwards")
        self.want(0, front_end.flush(), f"{what}: a flush afterwards")

    def test_broken_rings(self):
        self.serve()
        front_end, other = self.running(), self.running()

        def loop():
            front_end.put_desc(0, fe.BUFFERS, 4, fe.NEXT, 1)
            front_end.put_desc(1, fe.BUFFERS, 4, fe.NEXT | fe.WRITE, 0)
            front_end.offer(0)

        def beyond():
            front_end.put_desc(0, fe.BUFFERS, 4, fe.NEXT, fe.NUM)
            front_end.offer(0)

        def head():
            front_end.offer(fe.NUM)

        def outside():
            front_end.put_desc(0, fe.BUFFERS, 4, fe.NEXT, 1)
            front_end.put_desc(1, fe.RAM_SIZE - 2, 4, fe.WRITE)
            front_end.offer(0)

        def huge():
            front_end.put_desc(0, fe.BUFFERS, 0xFFFFFFFF, fe.NEXT, 1)
            front_end.offer(0)

        def jump():
            struct.pack_into("<H", front_end.ram, fe.AVAIL + 2, (front_end.avail + fe.NUM + 1) & 0xFFFF)

        def odd_indirect():
            front_end.put_desc(0, fe.BUFFERS, 17, fe.INDIRECT)
            front_end.offer(0)

        def huge_indirect():
            front_end.put_desc(0, fe.BUFFERS, 0xFFFFFFF0, fe.INDIRECT)
            front_end.offer(0)

        def indirect_over_the_end():
            front_end.put_desc(0, fe.RAM_SIZE - 16, 32, fe.INDIRECT)
            front_end.offer(0)

        def nested_indirect():
            front_end.put_desc(0, fe.BUFFERS, 32, fe.INDIRECT)
            front_end.put_desc(0, fe.BUFFERS, 32, fe.INDIRECT, at=fe.BUFFERS)
            front_end.offer(0)

        def endless_indirect():
            front_end.put_desc(0, fe.BUFFERS, 32, fe.INDIRECT)
            front_end.put_desc(0, fe.BUFFERS + 64, 4, fe.NEXT, 1, at=fe.BUFFERS)
            front_end.put_desc(1, fe.BUFFERS + 64, 4, fe.NEXT, 0, at=fe.BUFFERS)
            front_end.offer(0)
        for make in (loop, beyond, head, outside, huge, jump, odd_indirect, huge_indirect, indirect_over_the_end,
                     nested_indirect, endless_indirect):
            make()
            front_end.ring()
            self.want_broken(front_end, make.__name__)
            self.want(0, other.flush(), "another front-end's flush")

    def test_wrong_ring_set_up(self):
        self.serve()
        front_end = self.negotiated()
        front_end.send(fe.SET_FEATURES, u64(fe.FEATURES), flags=VERSION)
        for num in (0, 3, 2048, 65536, 0xFFFFFFFF):
            self.want("-EINVAL", front_end.call(fe.SET_VRING_NUM, state(0, num)), f"{num} descriptors")
        for index in (1, 2, 255, 0xFFFFFFFF):
            self.want("-EINVAL", front_end.call(fe.SET_VRING_NUM, state(index, 64)), f"queue {index}")
            self.want("-EINVAL", front_end.call(fe.SET_VRING_ENABLE, state(index, 1)), f"queue {index}")
            self.want("-EINVAL", front_end.call(fe.SET_VRING_ADDR, front_end.ring_addr(index)), f"queue {index}")
        self.want("-EINVAL", front_end.call(fe.SET_VRING_BASE, state(0, 65536)), "a base of 65536")
        self.want("-EINVAL", front_end.call(fe.SET_VRING_ENABLE, state(0, 2)), "enabled by 2")
        self.want("-EINVAL", front_end.call(fe.SET_VRING_ADDR, front_end.ring_addr(flags=1)), "a log of writes")
        self.want("-EINVAL", front_end.call(fe.SET_VRING_ADDR, front_end.ring_addr(desc=fe.DESC + 8)), "an odd table")
        self.want("0", front_end.call(fe.SET_VRING_KICK, u64(0), [front_end.kick]), "a kick fd")
        got = front_end.call(fe.SET_VRING_ENABLE, state(0, 1))
        self.want(True, got.startswith("-E"), f"enabled without anything else: an error ({got})")
        self.want("0", front_end.start(base=0), "a start in the end")
        self.want("-EBUSY", front_end.call(fe.SET_VRING_NUM, state(0, 64)), "NUM while it runs")
        self.want("-EBUSY", front_end.call(fe.SET_VRING_ADDR, front_end.ring_addr()), "ADDR while it runs")
        self.want("-EBUSY", front_end.call(fe.SET_VRING_BASE, state(0, 0)), "BASE while it runs")
        self.want("-EBUSY", front_end.call(fe.SET_FEATURES, u64(fe.FEATURES)), "SET_FEATURES while it runs")
        self.want(0, front_end.flush(), "a flush")

    def test_kick_call_err_fds(self):
        """What is no eventfd, bit 8, unknown bits; fds that are replaced."""
        served = self.serve()
        front_end = self.running()
        reader, writer = os.pipe()
        one, two = socket.socketpair()
        for fd in (front_end.ram_fd, reader, writer, one.fileno()):
            for request in (fe.SET_VRING_KICK, fe.SET_VRING_CALL, fe.SET_VRING_ERR):
                self.want("-EINVAL", front_end.call(request, u64(0), [fd]), f"request {request} with what is no eventfd")
        os.close(reader)
        os.close(writer)
        one.close()
        two.close()
        for request in (fe.SET_VRING_KICK, fe.SET_VRING_CALL, fe.SET_VRING_ERR):
            self.want("-EINVAL", front_end.call(request, u64(1), [front_end.kick]), f"request {request} for queue 1")
            self.want("-EINVAL", front_end.call(request, u64(0x200), [front_end.kick]), f"request {request} with bit 9")
            self.want("-EBADF", front_end.call(request, u64(0)), f"request {request} without fd and without bit 8")
            self.want("-EBADF", front_end.call(request, u64(fe.NO_FD), [front_end.kick]), f"request {request} with fd and bit 8")
        self.want("-EOPNOTSUPP", front_end.call(fe.SET_VRING_KICK, u64(fe.NO_FD)), "a queue that is polled")
        self.want(0, front_end.flush(), "a flush afterwards")
        before = served.fd_count()
        for _ in range(50):
            self.want("0", front_end.call(fe.SET_VRING_CALL, u64(0), [front_end.call_fd]), "a call fd")
            self.want("0", front_end.call(fe.SET_VRING_ERR, u64(0), [front_end.err]), "an err fd")
        self.want(0, front_end.flush(), "a flush")
        self.wait_until(lambda: served.fd_count() == before, "open fds", before, served.fd_count)
        self.want("0", front_end.call(fe.SET_VRING_CALL, u64(fe.NO_FD)), "no call fd")
        front_end.post_flush()
        front_end.ring()
        self.wait_until(lambda: front_end.used_index() != front_end.used, "an answer that nobody is called for", "one")

    def test_eventfds_that_block(self):
        """Kick and call eventfds whose other owner makes them block, a call that is never read: nobody else waits."""
        served = self.serve()
        front_end, other = self.running(), self.running()
        for fd in (front_end.kick, front_end.call_fd):
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        self.fill(front_end.call_fd)
        for slot in range(8):
            front_end.post_flush(slot)
            front_end.ring()
        for _ in range(5):
            self.want(0, other.flush(), "another front-end's flush")
        self.want_alive(front_end)
        os.eventfd_read(front_end.call_fd)
        self.want([(slot, 0) for slot in range(8)], front_end.answers(8), "its answers")
        self.want_idle(served)

    def fill(self, fd):
        """The next write to an eventfd waits for somebody to read it."""
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
        try:
            os.eventfd_read(fd)
        except BlockingIOError:
            pass
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        os.eventfd_write(fd, (1 << 64) - 2)

    def test_front_ends_that_leave_calls_blocked(self):
        """Those that have gone take no place and no worker, though nobody ever reads their call eventfds."""
        served = self.serve("--max-front-ends", "2")
        for _ in range(3):
            pair = [self.running(), self.running()]
            for front_end in pair:
                self.want(0, front_end.flush(), "a flush")
                self.fill(front_end.call_fd)
                front_end.post_flush()
                front_end.ring()
                self.wait_until(lambda: front_end.used_index() == 2, "the used index", 2, front_end.used_index)
            self.want(2, len([front_end.socket.close() for front_end in pair]), "front-ends that leave")
            self.wait_until(lambda: self.connect().barrier() == fe.FEATURES, "a front-end in the place of one that went", "one")
            for each in self.front_ends:
                each.close()
            served.settled()

    def test_a_call_is_never_lost(self):
        """Where the call eventfd changes, or the queue starts anew, a driver may have missed a call: it gets one."""
        self.serve()
        front_end = self.running()
        old = front_end.call_fd
        for slot in range(8):
            front_end.post_flush(slot)
            front_end.ring()
            self.wait_until(lambda: front_end.used_index() == slot + 1, "the used index", slot + 1, front_end.used_index)
            front_end.call_fd = self.keep(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
            self.want("0", front_end.call(fe.SET_VRING_CALL, u64(0), [front_end.call_fd]), "another call fd")
            self.want(True, front_end.called(), "a call on it")
        front_end.post_flush()
        front_end.ring()
        self.wait_until(lambda: front_end.used_index() == 9, "the used index", 9, front_end.used_index)
        self.want(9, front_end.stop(), "the base at the stop")
        front_end.call_fd = self.keep(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self.want("0", front_end.start(), "a start")
        self.want(True, front_end.called(), "a call after it")
        front_end.call_fd = old

    def test_own_ends(self):
        """Who sends an end of a connection to the daemon, and leaves, would be connected for ever."""
        served = self.serve("--max-front-ends", "2", "--max-providers", "1")

        def half(front_end):
            fe.socket.send_fds(front_end.socket, [struct.pack("=III", fe.SET_MEM_TABLE, VERSION, 40)], [front_end.socket.fileno()])

        def channel(front_end):
            front_end.negotiate(back=False)
            front_end.send(fe.SET_BACKEND_REQ_FD, b"", [front_end.socket.fileno()])

        def answer(front_end):
            front_end.negotiate()
            fe.socket.send_fds(front_end.back, [b"x"], [front_end.socket.fileno()])

        def crossed(front_end):
            fe.socket.send_fds(front_end.socket, [b"x"], [self.front_ends[-2].socket.fileno()])
        for way in (half, channel, answer, crossed):
            pair = [self.connect(), self.connect()]
            for front_end in pair:
                way(front_end)
            for front_end in pair:
                front_end.close()
            served.wait_log("it sent an end of a connection to mrshared itself")
            served.settled()
        for _ in range(2):
            provider = self.provider(served)
            fe.socket.send_fds(provider.socket, [fe.message(9, bytes(40))[:12]], [provider.socket.fileno()])
            provider.close()
            served.settled()

    def test_hang_up_beside_a_busy_one(self):
        """That others are served does not put off that somebody's end is noticed while its fds are being closed."""
        served = self.serve()
        front_end, other = self.running(), self.running()
        with self.lingering() as fd:
            front_end.send(fe.SET_OWNER, b"", [fd.fileno()])
        self.want("-EBADF", fe.in_words(struct.unpack("=Q", front_end.reply(fe.SET_OWNER))[0]), "SET_OWNER with an fd")
        mark = served.mark()
        front_end.close()
        end = time.monotonic() + 5
        while "front-end 1" not in served.log_since(mark) and time.monotonic() < end:
            self.want(0, other.flush(), "another front-end's flush")
            time.sleep(0.02)
        self.want_in("front-end 1", served.log_since(mark), "the log while others flush")

    def lingering(self):
        """A socket whose close waits for 8 s."""
        listening = socket.create_server(("127.0.0.1", 0))
        other_end = socket.socket()
        other_end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        other_end.connect(listening.getsockname())
        lingers, _ = listening.accept()
        listening.close()
        self.addCleanup(other_end.close)
        lingers.setblocking(False)
        try:
            while True:
                lingers.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        lingers.setblocking(True)
        lingers.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 8))
        return lingers

    def test_huge_tables(self):
        """A front-end that lends a sparse file of any size leaves the others, and the daemon, room to live."""
        self.need(not self.sanitized, "AddressSanitizer has the address space")
        self.serve()
        big = self.memfd(1 << 46)
        other = self.negotiated()
        for _ in range(6):
            front_end = self.negotiated()
            self.want("-E2BIG", front_end.call(fe.SET_MEM_TABLE, table((0, 1 << 42, 0, 0)), [big]), "4 TiB of one front-end")
            for i in range(3):
                entry = bytes(8) + struct.pack("=QQQQ", i << 40, 1 << 40, i << 40, 0)
                self.want("0" if i < 2 else "-E2BIG", front_end.call(fe.ADD_MEM_REG, entry, [big]), f"TiB {i + 1} of one front-end")
        self.want("0", other.start(base=0, extra=[(1 << 40, 4 << 30, 1 << 50, 0)], extra_fds=[big]), "another front-end's start")
        self.want(0, other.flush(), "its flush")

    def test_the_largest_memory(self):
        """32 TiB divided by --max-front-ends, as mrshared(8) says."""
        self.need(not self.sanitized, "AddressSanitizer has the address space")
        self.serve("--max-front-ends", "4")
        big = self.memfd(1 << 44)
        front_end = self.negotiated()
        for size, answer in ((8 << 40, "0"), ((8 << 40) + PAGE, "-E2BIG")):
            self.want(answer, front_end.call(fe.SET_MEM_TABLE, table((0, size, 0, 0)), [big]), f"a memory of {size} bytes")

    def test_files_that_hang(self):
        """Fds of a file system whose server does not answer, in every message that takes one: everybody else is served."""
        with self.fuse() as server:
            served = self.serve(leaks=False)
            other = self.running()
            before = served.fd_count()
            front_ends = [self.negotiated() for _ in range(4)]
            fds = [server.open() for _ in front_ends]
            server.pause()
            for front_end, fd, request in zip(front_ends, fds, (fe.SET_MEM_TABLE, fe.SET_VRING_KICK, fe.SET_BACKEND_REQ_FD, 0)):
                front_end.send(request, table(front_end.entry()) if request == fe.SET_MEM_TABLE else u64(0), [fd])
            for _ in range(5):
                self.want(0, other.flush(), "another front-end's flush")
            self.want_idle(served)
            mark = served.mark()
            for front_end in front_ends:
                front_end.close()
            for number in range(2, 2 + len(front_ends)):
                served.wait_log(rf"front-end {number} \(.*gone", mark)
            self.want(0, other.flush(), "another front-end's flush")
            server.go_on()
            for fd in fds:
                os.close(fd)
            self.wait_until(lambda: served.fd_count() == before, "open fds", before, served.fd_count)


class Flushes(FrontEndCase):
    def test_wrong_requests_case_27(self):
        """Case 27: requests of another length or type: completed, by 1 where there is room for an answer."""
        self.serve()
        front_end = self.running()
        for fields, wanted in (({"type": 1}, 1), ({"type": 0xFFFFFFFF}, 1), ({"length": 3}, 1), ({"length": 5}, 1),
                               ({"length": 16}, 1), ({}, 0), ({"answer_length": 32}, 0)):
            self.want(wanted, front_end.flush(**fields), f"a flush with {fields}")
        for fields in ({"answer_length": 1}, {"answer_length": 3}):
            front_end.post_flush(**fields)
            front_end.ring()
            self.want(1, len(front_end.answers(1)), f"answers of a flush with {fields}")
        self.want(0, front_end.flush(), "a right one")

    def test_many_flushes(self):
        """All that fit into the queue, again and again; the index wraps."""
        self.serve()
        front_end = self.negotiated()
        self.want("0", front_end.start(base=65500), "a start just before the index wraps")
        for _ in range(10):
            for slot in range(fe.NUM // 2):
                front_end.post_flush(slot)
            front_end.ring()
            self.want([(slot, 0) for slot in range(fe.NUM // 2)], front_end.answers(fe.NUM // 2), "answers in their order")
        self.want((65500 + 320) % 65536, front_end.stop(), "the base at the stop")

    def test_disk_files_are_synced(self):
        """Flushes over more files on a disk than one sync holds, while their mappings are removed (case 27)."""
        served = self.serve("--revoke-timeout", "5")
        provider = self.provider(served)
        for i in range(70):
            self.want("0", provider.map(self.file(PAGE, name=f"disk{i}"), shm_offset=i * PAGE), "map of a file")
        front_end = self.running()
        front_end.serve()
        stop, answers = threading.Event(), []

        def flush():
            while not stop.is_set():
                answers.append(front_end.flush())
        thread = threading.Thread(target=flush)
        thread.start()
        try:
            for i in range(20, 70):
                self.want("0", provider.unmap(shm_offset=i * PAGE), "unmap during flushes")
        finally:
            stop.set()
            thread.join()
        self.want({0}, set(answers), "answers of flushes")

    def on_fuse(self, server, *options):
        """A front-end that has a file of that server."""
        served = self.serve("--any-filesystem", *options, leaks=False)
        provider = self.provider(served)
        self.want("0", provider.map(self.keep(server.open())), "map of a file on FUSE")
        front_end = self.running()
        front_end.serve()
        return served, front_end

    def test_flush_fails_case_27(self):
        """Case 27: a sync that fails is answered by 1, and the log names the file."""
        with self.fuse(flush=False) as server:
            served, front_end = self.on_fuse(server)
            server.process.kill()
            self.want(1, front_end.flush(), "a flush whose sync fails")
            served.wait_log("flush failed.*provider 1.*region 0")
            served.kill()

    def test_stop_with_a_flush_outstanding(self):
        """A stop gives back what was not answered: it is taken again after the next start."""
        with self.fuse(flush=False) as server:
            served, front_end = self.on_fuse(server)
            other = self.running()
            server.pause()
            front_end.post_flush()
            front_end.ring()
            self.want([], front_end.answers(1, 0.3), "answers while the sync hangs")
            begin = time.monotonic()
            self.want(0, front_end.stop(), "the base at the stop")
            self.want(True, time.monotonic() - begin < 2, "answered at once")
            self.want_alive(other)
            front_end.reset()  # with the file in its table it would have to wait for it
            self.want("0", front_end.start(), "a start")
            server.go_on()
            self.want([(0, 0)], front_end.answers(1), "the answer after the next start")
            served.kill()

    def test_table_with_a_file_of_ours_that_hangs(self):
        """QEMU passes our mapping on in its table, and stands still until that is answered: whatever its server does."""
        with self.fuse(flush=False) as server:
            served, front_end = self.on_fuse(server)
            server.pause()
            self.want("0", front_end.set_table(), "the table with the mapping")
            server.go_on()
            self.want(0, front_end.flush(), "a flush")
            served.kill()

    def test_flush_of_what_a_guest_still_has(self):
        """A mapping that was removed, but not by the front-end: its file is synced, until the front-end lets go."""
        with self.fuse(flush=False) as server:
            served = self.serve("--any-filesystem", "--revoke-timeout", "0.3", leaks=False)
            provider = self.provider(served)
            self.want("0", provider.map(self.keep(server.open())), "map of a file on FUSE")
            front_end = self.running()
            front_end.serve()
            self.want("-EINPROGRESS", provider.unmap(), "unmap without an answer of the front-end")
            server.process.kill()
            self.want(1, front_end.flush(), "a flush whose sync fails")
            front_end.serve()
            served.wait_log("cannot sync the file of mapping 1")
            self.want_free(provider)
            self.want(0, front_end.flush(), "a flush when the front-end has let go")
            served.kill()

    def want_free(self, provider):
        self.wait_until(lambda: provider.map(self.memfd()) == "0", "map into the range", "0 in the end")

    def test_removal_syncs(self):
        """What a guest wrote and did not flush is made durable when the mapping is removed: later flushes do not know it."""
        with self.fuse(flush=False) as server:
            served = self.serve("--any-filesystem", leaks=False)
            provider = self.provider(served)
            self.want("0", provider.map(self.keep(server.open())), "map of a file on FUSE")
            front_end = self.running()
            front_end.serve()
            server.process.kill()
            provider.send(fe.message(10, struct.pack("=B7xQQQQ", 0, 0, 0, PAGE, 0)))
            front_end.serve()
            self.want("0", provider.answer(10), "unmap")
            served.wait_log("cannot sync the file of mapping 1")
            served.kill()

    def test_end_under_a_flush(self):
        """SIGTERM with flushes outstanding: each is answered by 1, and the daemon ends."""
        with self.fuse(flush=False) as server:
            served, front_end = self.on_fuse(server)
            server.pause()
            for slot in range(3):
                front_end.post_flush(slot)
            front_end.ring()
            self.want([], front_end.answers(1, 0.3), "answers while the sync hangs")
            served.send_signal(signal.SIGTERM)
            self.want([(0, 1), (1, 1), (2, 1)], front_end.answers(3, 2), "answers at the daemon's end")
            server.go_on()
            self.want(0, served.wait(), "exit code")
            self.want(False, os.path.exists(self.front_path), "its socket file at the end")
