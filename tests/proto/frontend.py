# frontend.py: a front-end that speaks vhost-user byte by byte, and does with mappings what QEMU does.
# SPDX-License-Identifier: BSD-2-Clause
import mmap
import os
import select
import socket
import struct
import time

from case import Case
from wire import HEADER_SIZE, M, MAP, NEED_REPLY, PAGE, PATIENCE, REPLY, UNMAP, VERSION, in_words, message

GET_FEATURES, SET_FEATURES, SET_OWNER, RESET_OWNER, SET_MEM_TABLE = 1, 2, 3, 4, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE = 8, 9, 10, 11
SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR = 12, 13, 14
GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, GET_QUEUE_NUM, SET_VRING_ENABLE = 15, 16, 17, 18
SET_BACKEND_REQ_FD, GET_CONFIG, SET_CONFIG, RESET_DEVICE = 21, 24, 25, 34
GET_MAX_MEM_SLOTS, ADD_MEM_REG, REM_MEM_REG, SET_STATUS, GET_STATUS, GET_SHMEM_CONFIG = 36, 37, 38, 39, 40, 44

# Bits of the device's features: VIRTIO_PMEM_F_SHMEM_REGION, indirect descriptors, event index, protocol features, VERSION_1.
F_SHMEM_REGION, F_INDIRECT, F_EVENT_IDX, F_PROTOCOL, F_VERSION_1 = 1 << 0, 1 << 28, 1 << 29, 1 << 30, 1 << 32
FEATURES = F_SHMEM_REGION | F_INDIRECT | F_EVENT_IDX | F_PROTOCOL | F_VERSION_1

P_MQ, P_REPLY_ACK, P_BACKEND_REQ, P_CONFIG, P_SEND_FD = 1 << 0, 1 << 3, 1 << 5, 1 << 9, 1 << 10
P_RESET_DEVICE, P_STATUS, P_GPA_ADDRESSES, P_SHMEM = 1 << 13, 1 << 16, 1 << 21, 1 << 22
PROTOCOL = P_MQ | P_REPLY_ACK | P_BACKEND_REQ | P_CONFIG | P_SEND_FD | P_RESET_DEVICE | P_STATUS | P_SHMEM

NO_FD = 0x100  # in the payload of SET_VRING_KICK, CALL, ERR

RAM_SIZE, USER_BASE = 4 * M, 0x7F00_0000_0000
NUM = 64
DESC, AVAIL, USED, BUFFERS = 0x10000, 0x11000, 0x12000, 0x20000
NEXT, WRITE, INDIRECT = 1, 2, 4


def table(*entries):
    """The payload of SET_MEM_TABLE: entries are (guest address, size, user address, offset)."""
    return struct.pack("=II", len(entries), 0) + b"".join(struct.pack("=QQQQ", *entry) for entry in entries)


def state(index=0, num=0):
    return struct.pack("=II", index, num)


def u64(value):
    return struct.pack("=Q", value)


class FrontEnd:
    """A connection, the memory and queue of its guest, and the mappings that it was given."""

    def __init__(self, connected):
        self.socket = connected
        self.socket.settimeout(PATIENCE)
        self.back, self.back_given = socket.socketpair()
        self.back.settimeout(PATIENCE)
        self.ram_fd = os.memfd_create("ram", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.ram_fd, RAM_SIZE)
        self.ram = mmap.mmap(self.ram_fd, RAM_SIZE)
        self.kick, self.call_fd, self.err = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(3))
        self.own = (self.ram_fd, self.kick, self.call_fd, self.err)
        self.gpa = False
        self.started = False
        self.mapped = {}    # (shmid, offset): (length, fd), as QEMU has it
        self.requests = []  # what came over the back-end request channel: (name, shmid, offset, length, answer)
        self.avail = self.used = self.base = 0  # of what we offered, of the answers we took, where the queue goes on
        self.features = FEATURES

    def close(self):
        for each in (self.socket, self.back, self.back_given):
            each.close()
        self.reset()
        for fd in self.own:
            os.close(fd)
        self.own = ()

    # Messages.

    def send(self, request, body=b"", fds=(), flags=VERSION | NEED_REPLY, size=None):
        data = message(request, body, flags, size)
        if fds:
            socket.send_fds(self.socket, [data], fds)
        else:
            self.socket.sendall(data)

    def read(self, size, source=None):
        data = b""
        while len(data) < size:
            part = (source or self.socket).recv(size - len(data))
            if not part:
                break
            data += part
        return data

    def reply(self, request, seconds=PATIENCE):
        """The payload of the next reply, which is one to `request`; or "closed", "silence"."""
        self.socket.settimeout(seconds)
        try:
            header = self.read(HEADER_SIZE)
            if len(header) < HEADER_SIZE:
                return "closed"
            got, flags, size = struct.unpack("=III", header)
            body = self.read(size)
        except TimeoutError:
            return "silence"
        except ConnectionResetError:
            return "closed"
        finally:
            self.socket.settimeout(PATIENCE)
        return body if (got, flags) == (request, VERSION | REPLY) else f"request {got} flags {flags:#x}: {body.hex()}"

    def get(self, request, body=b"", fds=()):
        """The payload of the reply to a request that has one."""
        try:
            self.send(request, body, fds, VERSION)
        except (BrokenPipeError, ConnectionResetError):
            return "closed"
        return self.reply(request)

    def number(self, request):
        got = self.get(request)
        return struct.unpack("=Q", got)[0] if isinstance(got, bytes) and len(got) == 8 else got

    def call(self, request, body=b"", fds=()):
        """What a request is acknowledged with, in words."""
        try:
            self.send(request, body, fds)
        except (BrokenPipeError, ConnectionResetError):
            return "closed"
        got = self.reply(request)
        return in_words(struct.unpack("=Q", got)[0]) if isinstance(got, bytes) and len(got) == 8 else got

    def barrier(self):
        """The features, which shows that all before was handled; or "closed"."""
        return self.number(GET_FEATURES)

    # The sequence of QEMU 11.1.

    def negotiate(self, protocol=PROTOCOL, back=True):
        self.number(GET_FEATURES)
        self.offered = self.number(GET_PROTOCOL_FEATURES)
        self.send(SET_PROTOCOL_FEATURES, u64(protocol), flags=VERSION)
        self.gpa = bool(protocol & P_GPA_ADDRESSES)
        answers = []
        if back:
            answers.append(self.call(SET_BACKEND_REQ_FD, b"", [self.back_given.fileno()]))
            self.back_given.close()
        self.send(SET_OWNER, flags=VERSION)
        answers += [self.call(SET_VRING_CALL, u64(0), [self.call_fd]), self.call(SET_VRING_ERR, u64(0), [self.err])]
        return answers

    def entry(self, gpa=0, size=RAM_SIZE, offset=0):
        return gpa, size, gpa if self.gpa else USER_BASE + gpa, offset

    def ring_addr(self, index=0, flags=0, desc=DESC, used=USED, avail=AVAIL):
        base = 0 if self.gpa else USER_BASE
        return struct.pack("=IIQQQQ", index, flags, base + desc, base + used, base + avail, 0)

    def held_entries(self):
        """What QEMU adds to its table: the mappings that it holds, at addresses of its own."""
        return [((1 << 40) + offset, length, (1 << 40) + offset if self.gpa else USER_BASE + (1 << 40) + offset, 0)
                for (_, offset), (length, _) in sorted(self.mapped.items())]

    def set_table(self, extra=(), extra_fds=()):
        """QEMU's table: its memory, what it holds, and more."""
        held = [fd for _, (_, fd) in sorted(self.mapped.items())]
        return self.call(SET_MEM_TABLE, table(self.entry(), *self.held_entries(), *extra), [self.ram_fd, *held, *extra_fds])

    def start(self, base=None, extra=(), extra_fds=()):
        """A start: the answer of its last request."""
        self.send(SET_FEATURES, u64(self.features), flags=VERSION)
        answer = self.set_table(extra, extra_fds)
        if answer != "0":
            return f"SET_MEM_TABLE: {answer}"
        if base is not None:
            self.avail = self.used = self.base = base
            struct.pack_into("<HH", self.ram, AVAIL, 0, base)
            struct.pack_into("<HH", self.ram, USED, 0, base)
        self.send(SET_VRING_NUM, state(0, NUM), flags=VERSION)
        self.send(SET_VRING_BASE, state(0, self.base), flags=VERSION)
        self.send(SET_VRING_ADDR, self.ring_addr(), flags=VERSION)
        answers = [self.call(SET_VRING_KICK, u64(0), [self.kick]), self.call(SET_VRING_CALL, u64(0), [self.call_fd])]
        self.started = True
        answers.append(self.call(SET_VRING_ENABLE, state(0, 1)))
        return next((answer for answer in answers if answer != "0"), "0")

    def stop(self):
        """A stop: where the queue goes on."""
        enable = self.call(SET_VRING_ENABLE, state(0, 0))
        got = self.get(GET_VRING_BASE, state(0, 0))
        self.started = False
        if enable != "0" or not isinstance(got, bytes):
            return f"{enable}, {got}"
        self.base = struct.unpack("=II", got)[1]
        return self.base

    def reset(self):
        """The guest reboots: QEMU forgets what was mapped, and tells nobody."""
        for _, fd in self.mapped.values():
            os.close(fd)
        self.mapped = {}

    # The back-end request channel.

    def pending(self, seconds=0):
        return bool(select.select([self.back], [], [], seconds)[0])

    def take(self):
        """The next request of the daemon: (name, shmid, offset, length, flags, fd)."""
        header, fds, _, _ = socket.recv_fds(self.back, HEADER_SIZE, 8)
        if len(header) < HEADER_SIZE:
            return "closed"
        request, flags, size = struct.unpack("=III", header)
        body = self.read(size, self.back)
        shmid, fd_offset, shm_offset, length, access = struct.unpack("=B7xQQQQ", body)
        name = {MAP: "map", UNMAP: "unmap"}.get(request, request)
        if flags != VERSION | NEED_REPLY or size != 40 or access != 1 or len(fds) != (request == MAP):
            name = f"strange {name}: flags {flags:#x} size {size} access {access} {len(fds)} fds"
        return name, shmid, shm_offset, length, fds[0] if fds else None

    def answer(self, name, value):
        request = {"map": MAP, "unmap": UNMAP}.get(name, name)
        self.back.sendall(struct.pack("=IIIQ", request, VERSION | REPLY, 8, value))

    def decide(self, name, shmid, offset, length, fd):
        """What QEMU answers; it keeps what it accepts."""
        if name == "map":
            if any(a == shmid and offset < at + size and at < offset + length for (a, at), (size, _) in self.mapped.items()):
                os.close(fd)
                return 1
            self.mapped[shmid, offset] = (length, fd)
            return 0
        if self.mapped.get((shmid, offset), (None,))[0] != length:
            return 1
        os.close(self.mapped.pop((shmid, offset))[1])
        return 0

    def serve_one(self):
        name, shmid, offset, length, fd = self.take()
        if not self.started:
            name = f"{name} outside of a start, which QEMU does not survive"
        value = self.decide(name, shmid, offset, length, fd)
        self.requests.append((name, shmid, offset, length, value))
        self.answer(name, value)
        return self.requests[-1]

    def serve(self, quiet=0.15):
        """Answers what comes until nothing came for a while; returns what came."""
        before = len(self.requests)
        while self.pending(quiet):
            self.serve_one()
        return self.requests[before:]

    # The queue.

    def put_desc(self, i, addr, length, flags=0, following=0, at=DESC):
        struct.pack_into("<QIHH", self.ram, at + 16 * i, addr, length, flags, following)

    def offer(self, head=0):
        struct.pack_into("<H", self.ram, AVAIL + 4 + 2 * (self.avail % NUM), head)
        self.avail = (self.avail + 1) & 0xFFFF
        struct.pack_into("<H", self.ram, AVAIL + 2, self.avail)
        # The event index: a call for each answer.
        struct.pack_into("<H", self.ram, AVAIL + 4 + 2 * NUM, self.used)

    def post_flush(self, slot=0, type=0, length=4, answer_length=4):
        """A flush request in descriptors and a buffer of its own."""
        at = BUFFERS + 64 * slot
        struct.pack_into("<I", self.ram, at, type)
        struct.pack_into("<I", self.ram, at + 32, 0xAAAAAAAA)
        self.put_desc(2 * slot, at, length, NEXT, 2 * slot + 1)
        self.put_desc(2 * slot + 1, at + 32, answer_length, WRITE)
        self.offer(2 * slot)

    def ring(self):
        os.eventfd_write(self.kick, 1)

    def used_index(self):
        return struct.unpack_from("<H", self.ram, USED + 2)[0]

    def called(self, seconds=PATIENCE):
        """Waits for a call."""
        if not select.select([self.call_fd], [], [], seconds)[0]:
            return False
        os.eventfd_read(self.call_fd)
        return True

    def answers(self, count, seconds=PATIENCE):
        """The answers of that many requests: (slot, value). Fewer where they do not come."""
        found, end = [], time.monotonic() + seconds
        while len(found) < count:
            if self.used == self.used_index():
                if time.monotonic() > end or not self.called(max(0, end - time.monotonic())):
                    break
                continue
            head, written = struct.unpack_from("<II", self.ram, USED + 4 + 8 * (self.used % NUM))
            slot = head // 2
            found.append((slot, struct.unpack_from("<I", self.ram, BUFFERS + 64 * slot + 32)[0] if written else None))
            self.used = (self.used + 1) & 0xFFFF
        return found

    def flush(self, seconds=PATIENCE, **fields):
        """What a flush is answered with, or None."""
        self.post_flush(**fields)
        self.ring()
        return next((value for _, value in self.answers(1, seconds)), None)


class FrontEndCase(Case):
    """A test with front-ends beside providers."""

    REGION = "0:64M"

    def setUp(self):
        super().setUp()
        self.front_ends = []
        self.front_path = os.path.join(self.directory, "front-end")

    def tearDown(self):
        for each in self.front_ends:
            each.close()
        super().tearDown()

    def clean_up(self):
        for each in self.front_ends:
            each.close()
        super().clean_up()

    def serve(self, *options, regions=(REGION,), **more):
        return self.start("--socket-path", self.front_path, *options, regions=regions, **more)

    def connect(self, path=None):
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(path or self.front_path)
        self.front_ends.append(FrontEnd(connected))
        return self.front_ends[-1]

    def negotiated(self, protocol=PROTOCOL, path=None):
        front_end = self.connect(path)
        self.want(["0"] * 3, front_end.negotiate(protocol), "acknowledgements of a front-end that connects")
        return front_end

    def running(self, protocol=PROTOCOL, path=None):
        front_end = self.negotiated(protocol, path)
        self.want("0", front_end.start(base=0), "a start")
        return front_end

    def want_alive(self, front_end, what="a front-end"):
        self.want(FEATURES, front_end.barrier(), f"{what}: GET_FEATURES")

    def want_closed(self, front_end, what):
        self.want("closed", front_end.barrier(), what)

    def mapped_file(self, provider, shm_offset=0, size=PAGE, **fields):
        fd = self.memfd(size)
        self.want("0", provider.map(fd, shm_offset=shm_offset, len=size, **fields), "a provider's map")
        return fd

    def shared(self, *options):
        """A daemon, a provider with a mapping, and a front-end that runs and has it."""
        served = self.serve(*options)
        provider = self.provider(served)
        self.mapped_file(provider)
        front_end = self.running()
        front_end.serve()
        return served, provider, front_end
