# test_frontend.py: front-ends: what each request takes and answers, in and out of its time.
# SPDX-License-Identifier: BSD-2-Clause
import os
import socket
import struct

import frontend as fe
from daemon import Wrong
from frontend import FrontEndCase, state, table, u64
from wire import M, NEED_REPLY, REPLY, VERSION

REGION = 64 * M

# Each request with a payload and fds that are right, as (request, payload, number of fds, has a reply of its own).
REQUESTS = (
    (fe.GET_FEATURES, b"", 0, True),
    (fe.SET_FEATURES, u64(fe.FEATURES), 0, False),
    (fe.SET_OWNER, b"", 0, False),
    (fe.SET_MEM_TABLE, table((0, fe.RAM_SIZE, fe.USER_BASE, 0)), 1, False),
    (fe.SET_VRING_NUM, state(0, fe.NUM), 0, False),
    (fe.SET_VRING_ADDR, struct.pack("=IIQQQQ", 0, 0, *(fe.USER_BASE + at for at in (fe.DESC, fe.USED, fe.AVAIL)), 0), 0, False),
    (fe.SET_VRING_BASE, state(0, 0), 0, False),
    (fe.GET_VRING_BASE, state(0, 0), 0, True),
    (fe.SET_VRING_KICK, u64(0), 1, False),
    (fe.SET_VRING_CALL, u64(0), 1, False),
    (fe.SET_VRING_ERR, u64(0), 1, False),
    (fe.GET_PROTOCOL_FEATURES, b"", 0, True),
    (fe.GET_QUEUE_NUM, b"", 0, True),
    (fe.SET_VRING_ENABLE, state(0, 0), 0, False),
    (fe.SET_BACKEND_REQ_FD, b"", 1, False),
    (fe.GET_CONFIG, struct.pack("=III", 0, 16, 0) + bytes(16), 0, True),
    (fe.SET_CONFIG, struct.pack("=III", 0, 8, 0) + bytes(8), 0, False),
    (fe.RESET_DEVICE, b"", 0, False),
    (fe.GET_MAX_MEM_SLOTS, b"", 0, True),
    (fe.ADD_MEM_REG, bytes(8) + struct.pack("=QQQQ", 1 << 40, fe.RAM_SIZE, 1 << 41, 0), 1, False),
    (fe.REM_MEM_REG, bytes(8) + struct.pack("=QQQQ", 1 << 40, fe.RAM_SIZE, 1 << 41, 0), 0, False),
    (fe.SET_STATUS, u64(7), 0, False),
    (fe.GET_STATUS, b"", 0, True),
    (fe.GET_SHMEM_CONFIG, b"", 0, True),
    (fe.RESET_OWNER, b"", 0, False),
)


class Requests(FrontEndCase):
    def test_like_qemu(self):
        """The whole sequence: connected, started, a mapping announced, a flush, stopped, gone."""
        served = self.serve()
        provider = self.provider(served)
        fd = self.mapped_file(provider, size=2 * M)
        front_end = self.negotiated()
        self.want(fe.PROTOCOL, front_end.offered, "protocol features offered")
        self.want(1, front_end.number(fe.GET_QUEUE_NUM), "GET_QUEUE_NUM")
        self.want(8, front_end.number(fe.GET_MAX_MEM_SLOTS), "GET_MAX_MEM_SLOTS")
        self.want(False, front_end.pending(0.1), "a request before the start")
        self.want("0", front_end.start(base=0), "a start")
        self.want([("map", 0, 0, 2 * M, 0)], front_end.serve(), "announced at the start")
        self.want(True, os.path.samestat(os.fstat(fd), os.fstat(front_end.mapped[0, 0][1])), "the same file")
        self.want("0", front_end.set_table(), "the table with the mapping")
        self.want(0, front_end.flush(), "a flush")
        self.want(1, front_end.stop(), "the base at the stop")
        for said in (rf"front-end 1 \(pid {os.getpid()}, uid {os.getuid()}\): connected to {self.front_path}", "features 0x", "started",
                     r"region 0 \[0, 0x200000\), mapping 1 announced \(answer 0 after \d+ ms\)", "stopped"):
            served.wait_log(said)
        front_end.close()
        served.wait_log("front-end 1 .*gone")
        self.want("0", provider.unmap(len=2 * M), "unmap afterwards")

    def right(self, front_end, request, body, fds):
        given = [front_end.ram_fd] if request in (fe.SET_MEM_TABLE, fe.ADD_MEM_REG) else [front_end.kick]
        if request == fe.SET_BACKEND_REQ_FD:
            given = [front_end.back_given.fileno()]
        return given[:fds]

    def fresh(self, owned=True, protocol=fe.PROTOCOL):
        front_end = self.connect()
        front_end.send(fe.SET_PROTOCOL_FEATURES, u64(protocol), flags=VERSION)
        if owned:
            front_end.send(fe.SET_OWNER, flags=VERSION)
        return front_end

    def test_every_request_that_is_right(self):
        self.serve()
        front_end = self.fresh()
        for request, body, fds, replies in REQUESTS:
            given = self.right(front_end, request, body, fds)
            if replies:
                self.want(bytes, type(front_end.get(request, body, given)), f"request {request}: its reply")
            else:
                wanted = {fe.SET_CONFIG: "-EPERM"}.get(request, "0")
                self.want(wanted, front_end.call(request, body, given), f"request {request}: its acknowledgement")
        self.want_alive(front_end)

    def test_wrong_sizes_and_fds(self):
        """One byte too few, one too many, an fd too many, one too few: refused, or the end of this front-end only."""
        served = self.serve()
        other = self.running()
        for request, body, fds, replies in REQUESTS:
            wrong = [(body + b"\0", fds), (body, fds + 2)]
            wrong += [(body[:-1], fds)] if body else []
            wrong += [(body, fds - 1)] if fds else []
            for bad_body, bad_fds in wrong:
                front_end = self.fresh()
                given = self.right(front_end, request, body, 1) * bad_fds
                got = front_end.call(request, bad_body, given)
                closes = replies and request != fe.GET_CONFIG
                if request == fe.GET_CONFIG:
                    self.want(b"", got, f"GET_CONFIG with {len(bad_body)} bytes and {bad_fds} fds: an empty reply")
                elif closes:
                    self.want("closed", got, f"request {request} with {len(bad_body)} bytes and {bad_fds} fds")
                else:
                    self.want(True, got in ("-EINVAL", "-EBADF"),
                              f"request {request} with {len(bad_body)} bytes and {bad_fds} fds: -EINVAL or -EBADF ({got})")
                    self.want_alive(front_end)
                front_end.close()
        self.want(0, other.flush(), "another front-end's flush")
        other.close()
        served.settled()

    def test_without_an_acknowledgement_an_error_ends_the_front_end(self):
        """Where it cannot be told it would go on from something that is not so."""
        served = self.serve()
        front_end = self.fresh()
        front_end.send(fe.SET_VRING_NUM, state(0, 3), flags=VERSION)
        self.want_closed(front_end, "a wrong SET_VRING_NUM without NEED_REPLY")
        served.wait_log("dropped: SET_VRING_NUM refused")
        front_end = self.fresh(protocol=fe.PROTOCOL & ~fe.P_REPLY_ACK)
        front_end.send(fe.SET_VRING_NUM, state(0, 3))
        self.want_closed(front_end, "the same with NEED_REPLY but without REPLY_ACK")

    def test_unknown_requests(self):
        self.serve()
        front_end = self.fresh()
        for request in (0, 6, 7, 19, 20, 22, 23, 26, 33, 35, 41, 43, 45, 1000, 0xFFFFFFFF):
            self.want("-EOPNOTSUPP", front_end.call(request), f"request {request}")
            self.want("-EOPNOTSUPP", front_end.call(request, bytes(100), [front_end.kick] * 3), f"request {request} with fds")
        front_end.send(0, flags=VERSION)
        self.want_closed(front_end, "an unknown request without NEED_REPLY")

    def test_lost_framing(self):
        served = self.serve()
        for data in (struct.pack("=III", 1, VERSION | REPLY, 0), struct.pack("=III", 1, 2, 0), struct.pack("=III", 1, 0, 0),
                     struct.pack("=III", 1, VERSION, 4097), struct.pack("=III", 1, VERSION, 0xFFFFFFFF)):
            front_end = self.connect()
            socket.send_fds(front_end.socket, [data], [front_end.kick] * 5)
            self.want("closed", front_end.reply(0), f"header {data.hex()}")
        served.settled()

    def test_slow_is_not_wrong(self):
        """Byte by byte; a close in the middle."""
        served = self.serve()
        front_end, other = self.fresh(), self.running()
        data = struct.pack("=III", fe.SET_VRING_NUM, VERSION | NEED_REPLY, 8) + state(0, 64)
        for i in range(len(data)):
            front_end.socket.sendall(data[i:i + 1])
            if i % 5 == 0:
                self.want(0, other.flush(), "another front-end's flush")
        self.want(bytes(8), front_end.reply(fe.SET_VRING_NUM), "its acknowledgement")
        front_end.socket.sendall(data[:15])
        front_end.close()
        served.wait_log("front-end 1 .*gone in the middle")

    def test_every_request_byte_by_byte(self):
        """Each request in single bytes, its fds with the first, with the last, or one with each of the last."""
        served = self.serve()
        other = self.running()
        for request, body, fds, replies in REQUESTS:
            for place in ("first", "last") if fds else ("none",):
                front_end = self.fresh()
                self.want("0", front_end.call(fe.SET_FEATURES, u64(fe.FEATURES)), "SET_FEATURES")
                given = self.right(front_end, request, body, fds)
                if request == fe.REM_MEM_REG:
                    self.want("0", front_end.call(fe.ADD_MEM_REG, body, [front_end.ram_fd]), "ADD_MEM_REG")
                data = fe.message(request, body, VERSION if replies else VERSION | NEED_REPLY)
                for i in range(len(data)):
                    if (place, i) in (("first", 0), ("last", len(data) - 1)):
                        socket.send_fds(front_end.socket, [data[i:i + 1]], given)
                    else:
                        front_end.socket.sendall(data[i:i + 1])
                got = front_end.reply(request)
                wanted = {fe.SET_CONFIG: struct.pack("=q", -1)}.get(request, bytes(8))
                self.want(bytes if replies else wanted, type(got) if replies else got, f"request {request}, fds with the {place} byte")
                self.want_alive(front_end)
                front_end.close()
        self.want(0, other.flush(), "another front-end's flush")

    def test_features_while_the_queue_runs(self):
        """What a running queue was started with cannot change under it."""
        self.serve()
        front_end = self.running()
        self.want("-EBUSY", front_end.call(fe.SET_FEATURES, u64(fe.FEATURES)), "SET_FEATURES while the queue runs")
        self.want(0, front_end.flush(), "a flush")
        front_end.send(fe.SET_PROTOCOL_FEATURES, u64(fe.PROTOCOL), flags=VERSION)
        self.want_closed(front_end, "SET_PROTOCOL_FEATURES while the queue runs")

    def test_before_owner(self):
        """What needs an owner, before SET_OWNER and after RESET_OWNER."""
        self.serve()
        free = (fe.GET_FEATURES, fe.SET_FEATURES, fe.SET_OWNER, fe.RESET_OWNER, fe.GET_PROTOCOL_FEATURES, fe.GET_QUEUE_NUM,
                fe.SET_BACKEND_REQ_FD, fe.GET_CONFIG, fe.SET_CONFIG, fe.GET_MAX_MEM_SLOTS, fe.SET_STATUS, fe.GET_STATUS,
                fe.GET_SHMEM_CONFIG)
        for request, body, fds, replies in REQUESTS:
            for again in (False, True):
                if request in free:
                    continue
                front_end = self.fresh(owned=again)
                if again:
                    self.want("0", front_end.call(fe.RESET_OWNER), "RESET_OWNER")
                got = front_end.call(request, body, self.right(front_end, request, body, fds))
                self.want("closed" if replies else "-EPROTO", got, f"request {request} without an owner")
                front_end.close()

    def test_without_the_protocol_feature(self):
        self.serve()
        for request, feature, wanted in ((fe.GET_QUEUE_NUM, fe.P_MQ, "closed"), (fe.GET_CONFIG, fe.P_CONFIG, b""),
                                         (fe.SET_CONFIG, fe.P_CONFIG, "-EPROTO"), (fe.SET_STATUS, fe.P_STATUS, "-EPROTO"),
                                         (fe.GET_STATUS, fe.P_STATUS, "closed"), (fe.GET_SHMEM_CONFIG, fe.P_SHMEM, "closed"),
                                         (fe.RESET_DEVICE, fe.P_RESET_DEVICE, "-EPROTO"),
                                         (fe.SET_BACKEND_REQ_FD, fe.P_BACKEND_REQ, "-EPROTO")):
            front_end = self.fresh(protocol=fe.PROTOCOL & ~feature)
            body, fds = next((body, fds) for number, body, fds, _ in REQUESTS if number == request)
            self.want(wanted, front_end.call(request, body, self.right(front_end, request, body, fds)), f"request {request}")

    def test_features_that_were_not_offered(self):
        self.serve()
        for bit in (1, 2, 26, 31, 33, 34, 63):
            front_end = self.fresh()
            self.want("-EINVAL", front_end.call(fe.SET_FEATURES, u64(fe.FEATURES | 1 << bit)), f"feature {bit}")
            self.want("0", front_end.call(fe.SET_FEATURES, u64(fe.FEATURES)), "those that were")
            front_end.close()

    def test_protocol_features_case_13(self):
        """Case 13: bit 21 or 22 alone, both, none; and bits that were never offered end the connection."""
        served = self.serve()
        for bits, taken in ((fe.P_SHMEM, True), (fe.P_GPA_ADDRESSES, False), (fe.P_SHMEM | fe.P_GPA_ADDRESSES, False), (0, True),
                            (1 << 20, False), (1 << 15, False), (1 << 63, False), (1 << 2, False)):
            front_end = self.connect()
            front_end.send(fe.SET_PROTOCOL_FEATURES, u64(fe.PROTOCOL & ~fe.P_SHMEM | bits), flags=VERSION)
            self.want(fe.FEATURES if taken else "closed", front_end.barrier(), f"protocol features with {bits:#x}")
            front_end.close()
        served.wait_log("was not offered|were not offered")
        served.wait_log("does not know shared memory regions")
        served.settled()

    def test_gpa_addresses_case_13(self):
        """Case 13 with --gpa-addresses: the queue is at guest addresses where bit 21 is acknowledged."""
        self.serve("--gpa-addresses")
        for protocol in (fe.PROTOCOL, fe.PROTOCOL | fe.P_GPA_ADDRESSES):
            front_end = self.running(protocol)
            self.want(fe.PROTOCOL | fe.P_GPA_ADDRESSES, front_end.offered, "what is offered")
            self.want(0, front_end.flush(), f"a flush with {protocol:#x}")
            front_end.close()
        front_end = self.negotiated(fe.PROTOCOL | fe.P_GPA_ADDRESSES)
        self.want("-EINVAL", front_end.call(fe.SET_MEM_TABLE, table((0, fe.RAM_SIZE, fe.USER_BASE, 0)), [front_end.ram_fd]),
                  "an entry whose two addresses differ")

    def test_configuration(self):
        """All of it, parts of it, and beyond it."""
        self.serve()
        front_end = self.fresh()
        whole = struct.pack("<QQ", 0, REGION).ljust(256, b"\0")
        for offset, size in ((0, 16), (0, 256), (8, 8), (255, 1), (256, 0), (0, 0), (3, 200)):
            head = struct.pack("=III", offset, size, 0)
            self.want(head + whole[offset:offset + size], front_end.get(fe.GET_CONFIG, head + bytes(size)),
                      f"GET_CONFIG of {size} at {offset}")
        for offset, size, sent in ((0, 257, 257), (256, 1, 1), (255, 2, 2), (0xFFFFFFFF, 1, 1), (1, 0xFFFFFFFF, 16), (0, 16, 15),
                                   (0, 4084, 4084)):
            head = struct.pack("=III", offset, size, 0)
            self.want(b"", front_end.get(fe.GET_CONFIG, head + bytes(sent)), f"GET_CONFIG of {size} at {offset}")
            self.want("-EINVAL", front_end.call(fe.SET_CONFIG, head + bytes(sent)), f"SET_CONFIG of {size} at {offset}")
        self.want("-EPERM", front_end.call(fe.SET_CONFIG, struct.pack("=III", 0, 16, 0) + whole[:16]), "SET_CONFIG")
        self.want_alive(front_end)

    def test_regions(self):
        """GET_SHMEM_CONFIG: 2056 bytes, sizes by shmid; a socket offers what it is told to."""
        few = os.path.join(self.directory, "few")
        self.serve("--socket-path", f"{few},shmid=0", regions=("0:64M", "7:32M", "255:32M"))

        def config(**sizes):
            return struct.pack("=II256Q", len(sizes), 0, *(sizes.get(f"r{shmid}", 0) for shmid in range(256)))
        self.want(config(r0=64 * M, r7=32 * M, r255=32 * M), self.fresh().get(fe.GET_SHMEM_CONFIG), "regions of all")
        front_end = self.negotiated(path=few)
        self.want(config(r0=64 * M), front_end.get(fe.GET_SHMEM_CONFIG), "regions of the second socket")
        provider = self.provider(self.daemons[0])
        self.mapped_file(provider, shmid=7)
        self.mapped_file(provider, shm_offset=4096)
        self.want("0", front_end.start(base=0), "a start")
        self.want([("map", 0, 4096, 4096, 0)], front_end.serve(), "announced on the second socket")

    def test_status(self):
        self.serve()
        front_end = self.running()
        self.want(0, front_end.number(fe.GET_STATUS), "GET_STATUS at first")
        self.want("0", front_end.call(fe.SET_STATUS, u64(15)), "SET_STATUS")
        self.want(15, front_end.number(fe.GET_STATUS), "GET_STATUS")
        for value in (256, 1 << 63):
            self.want("-EINVAL", front_end.call(fe.SET_STATUS, u64(value)), f"SET_STATUS {value:#x}")
        self.want(0, front_end.flush(), "a flush")
        self.want("0", front_end.call(fe.RESET_DEVICE), "RESET_DEVICE")
        self.want(0, front_end.number(fe.GET_STATUS), "GET_STATUS after it")
        front_end.post_flush()
        front_end.ring()
        self.want([], front_end.answers(1, 0.3), "answers of a device that was reset")
        self.want("0", front_end.start(base=0), "a start afterwards")
        self.want(0, front_end.flush(), "a flush afterwards")

    def test_order_of_a_slow_table(self):
        """What follows a table waits for it, and is done in its order."""
        self.serve()
        front_end = self.negotiated()
        for i in range(20):
            front_end.send(fe.SET_MEM_TABLE, table(front_end.entry()), [front_end.ram_fd])
            front_end.send(fe.SET_VRING_NUM, state(0, 3 if i % 2 else 64))
            front_end.send(fe.GET_QUEUE_NUM, flags=VERSION)
        for i in range(20):
            self.want(bytes(8), front_end.reply(fe.SET_MEM_TABLE), "SET_MEM_TABLE")
            self.want(i % 2 == 0, front_end.reply(fe.SET_VRING_NUM) == bytes(8), "SET_VRING_NUM taken")
            self.want(u64(1), front_end.reply(fe.GET_QUEUE_NUM), "GET_QUEUE_NUM")

    def test_flood_of_requests(self):
        """A front-end that never reads its answers holds up itself."""
        self.serve()
        flooder, other = self.connect(), self.running()
        flooder.socket.settimeout(0.5)
        data = struct.pack("=III", fe.GET_FEATURES, VERSION, 0) * 1000
        try:
            for _ in range(1000):
                flooder.socket.sendall(data)
            raise Wrong("a front-end that sends without reading", "a full socket", "none")
        except TimeoutError:
            pass
        self.want(0, other.flush(), "another front-end's flush")
        self.want_idle(self.daemons[0])

    def test_two_back_end_channels(self):
        self.serve()
        front_end = self.negotiated()
        one, two = socket.socketpair()
        with one, two:
            self.want("-EBUSY", front_end.call(fe.SET_BACKEND_REQ_FD, b"", [one.fileno()]), "a second back-end channel")
        for fd in (front_end.kick, front_end.ram_fd):
            fresh = self.fresh()
            self.want("-EINVAL", fresh.call(fe.SET_BACKEND_REQ_FD, b"", [fd]), "an fd that is no socket")
            fresh.close()
