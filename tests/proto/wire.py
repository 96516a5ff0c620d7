# wire.py: the frames of the provider channel, and a provider that sends them byte by byte.
# SPDX-License-Identifier: BSD-2-Clause
import array
import errno
import fcntl
import socket
import struct
import termios
import time

PAGE, K, M, G, T = 4096, 1 << 10, 1 << 20, 1 << 30, 1 << 40

MAP, UNMAP = 9, 10
BARRIER = 0x7F000001  # no request that anybody knows: its answer shows that all before it was finished
VERSION, REPLY, NEED_REPLY = 1, 4, 8
WRITABLE = 1
HEADER_SIZE, PAYLOAD_SIZE = 12, 40
MESSAGE_SIZE = HEADER_SIZE + PAYLOAD_SIZE
MAX_FDS = 253  # the kernel's SCM_MAX_FD

PATIENCE = 10  # seconds until an answer that does not come counts as silence


def payload(shmid=0, fd_offset=0, shm_offset=0, len=PAGE, flags=WRITABLE, padding=bytes(7)):
    return struct.pack("=B7sQQQQ", shmid, padding, fd_offset, shm_offset, len, flags)


def message(request, body=b"", flags=VERSION | NEED_REPLY, size=None):
    return struct.pack("=III", request, flags, len(body) if size is None else size) + body


def map_message(flags=VERSION | NEED_REPLY, **fields):
    """`flags` are the header's; the payload's are given as `access`."""
    fields["flags"] = fields.pop("access", WRITABLE)
    return message(MAP, payload(**fields), flags)


def unmap_message(flags=VERSION | NEED_REPLY, **fields):
    fields["flags"] = fields.pop("access", 0)
    return message(UNMAP, payload(**fields), flags)


def in_words(value):
    """A reply's u64: "0", "-EINVAL", or the number where it is neither."""
    number = value - (1 << 64) if value >> 63 else value
    if number < 0 and -number in errno.errorcode:
        # One number has two names on Linux; the design uses this one.
        return "-" + {"ENOTSUP": "EOPNOTSUPP"}.get(errno.errorcode[-number], errno.errorcode[-number])
    return str(number)


class Provider:
    """A connection to the provider socket. Answers are words: "0", "-EINVAL", "closed", "silence"."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The kernel's limits rather than Python's, which would poll first and so send less than fits.
        self.wait_at_most(PATIENCE, socket.SO_SNDTIMEO)
        self.wait_at_most(PATIENCE)
        try:
            self.socket.connect(path)
        except BaseException:
            self.socket.close()
            raise

    def close(self):
        self.socket.close()

    def wait_at_most(self, seconds, which=socket.SO_RCVTIMEO):
        self.socket.setsockopt(socket.SOL_SOCKET, which, struct.pack("ll", int(seconds), int(seconds % 1 * 1000000)))

    def send(self, data, fds=()):
        """One sendmsg: all fds come with the first byte."""
        sent = socket.send_fds(self.socket, [data], fds) if fds else self.socket.send(data)
        if sent < len(data):
            self.socket.sendall(data[sent:])

    def send_control(self, data, *sets):
        """One sendmsg with one SCM_RIGHTS message for each set of fds."""
        self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds)) for fds in sets])

    def unread(self):
        """How much of what was sent the daemon has not read (kernel memory, not bytes; 0: all was read)."""
        return struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))[0]

    def drained(self, seconds=PATIENCE):
        """Whether the daemon has read everything by then."""
        end = time.monotonic() + seconds
        while self.unread():
            if time.monotonic() > end:
                return False
            time.sleep(0.0005)
        return True

    def read(self, size):
        """That many bytes; fewer where the connection was closed."""
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                break
            data += part
        return data

    def answer(self, request, seconds=PATIENCE):
        """The next reply, which must be exactly one to `request`."""
        self.wait_at_most(seconds)
        try:
            reply = self.read(HEADER_SIZE + 8)
        except BlockingIOError:
            return "silence"
        finally:
            self.wait_at_most(PATIENCE)
        if not reply:
            return "closed"
        if len(reply) < HEADER_SIZE + 8:
            return f"closed after {len(reply)} bytes of a reply"
        got_request, flags, size, value = struct.unpack("=IIIQ", reply)
        if (got_request, flags, size) != (request, VERSION | REPLY, 8):
            return f"request {got_request:#x} flags {flags:#x} size {size} value {in_words(value)}"
        return in_words(value)

    def call(self, request, body=b"", fds=(), flags=VERSION | NEED_REPLY):
        try:
            self.send(message(request, body, flags), fds)
        except (BrokenPipeError, ConnectionResetError):
            return "closed"
        return self.answer(request)

    def quietly(self, request, body=b"", fds=()):
        """Sent without NEED_REPLY: "nothing" where nothing was answered to it."""
        self.send(message(request, body, VERSION), fds)
        got = self.barrier()
        return "nothing" if got == "-EOPNOTSUPP" else got

    def barrier(self):
        return self.call(BARRIER)

    def map(self, fd, **fields):
        return self.call(MAP, payload(**fields), [fd])

    def unmap(self, **fields):
        fields.setdefault("flags", 0)
        return self.call(UNMAP, payload(**fields))

    def ending(self, seconds=PATIENCE):
        """What comes next where the connection should end: "closed", "silence" or what was read."""
        self.wait_at_most(seconds)
        try:
            data = self.read(1)
        except BlockingIOError:
            return "silence"
        finally:
            self.wait_at_most(PATIENCE)
        return f"byte {data.hex()}" if data else "closed"
