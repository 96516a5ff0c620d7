# fuse.py: a FUSE file system of one file, whose server can be stopped: then whoever asks it waits.
# SPDX-License-Identifier: BSD-2-Clause
#
# The server is this file run as a program. It speaks to /dev/fuse directly (linux/fuse.h). Stopped by SIGSTOP it leaves
# requests unread, killed it ends them all with an error.
import ctypes
import errno
import os
import signal
import struct
import subprocess
import sys
import time
import unittest

SIZE = 1 << 20
TEXT = b"served by another process\n"
MNT_DETACH = 2

ROOT, FILE = 1, 2
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 17, 18, 25, 26
OPENDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 27, 29, 36, 38, 42

libc = ctypes.CDLL(None, use_errno=True)


def obstacle():
    """Why there can be no FUSE mount here, or nothing."""
    if os.geteuid() != 0:
        return "mounting FUSE needs root"
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    return ""


class Server:
    """With `flush=False` closing a file asks the server nothing, so that a process that holds one can end."""

    def __init__(self, mount_point, flush=True):
        self.mount_point = mount_point
        self.flush = flush

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, __file__, self.mount_point, "flush" if self.flush else "no-flush"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline().strip()
        if said != "mounted":
            self.__exit__()
            raise unittest.SkipTest(f"no FUSE mount here: {said}")
        if not self.flush:
            os.close(self.open())  # the first flush is answered with ENOSYS, and the kernel asks no more
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        libc.umount2(os.fsencode(self.mount_point), MNT_DETACH)

    def open(self):
        return os.open(os.path.join(self.mount_point, "file"), os.O_RDWR | os.O_CLOEXEC)

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        while True:
            with open(f"/proc/{self.process.pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "T":
                    return
            time.sleep(0.001)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


def attributes(node):
    mode, size = (0o40755, 4096) if node == ROOT else (0o100666, SIZE)
    return struct.pack("=6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node, body, flush):
    """The answer to a request: bytes or an errno. Nothing may be cached, so every stat asks again."""
    if opcode == INIT:
        major, minor, readahead = struct.unpack_from("=III", body)
        return struct.pack("=IIIIHHIIHHI28x", 7, min(minor, 31), readahead, 0, 16, 12, 1 << 16, 1, 0, 0, 0)
    if opcode == LOOKUP:
        if body != b"file\0":
            return errno.ENOENT
        return struct.pack("=QQQQII", FILE, 0, 0, 0, 0, 0) + attributes(FILE)
    if opcode == GETATTR:
        return struct.pack("=QII", 0, 0, 0) + attributes(node)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("=QII", 0, 0, 0)
    if opcode == READ:
        _, offset, size = struct.unpack_from("=QQI", body)
        return (TEXT * (SIZE // len(TEXT) + 1))[:SIZE][offset:offset + size]
    if opcode == STATFS:
        return struct.pack("=5Q4I24x", 1, 0, 0, 2, 0, 4096, 255, 4096, 0)
    if opcode in (RELEASE, RELEASEDIR, DESTROY) or (opcode == FLUSH and flush):
        return b""
    return errno.ENOSYS


def serve(mount_point, flush):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"mrshare-test", os.fsencode(mount_point), b"fuse", 0, options.encode()) != 0:
        print(os.strerror(ctypes.get_errno()), flush=True)
        return
    print("mounted", flush=True)
    while True:
        try:
            request = os.read(device, (1 << 16) + 4096)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                continue
            return
        _, opcode, unique, node = struct.unpack_from("=IIQQ", request)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        result = answer(opcode, node, request[40:], flush)
        code, data = (-result, b"") if isinstance(result, int) else (0, result)
        try:
            os.write(device, struct.pack("=IiQ", 16 + len(data), code, unique) + data)
        except OSError:
            pass  # the one who asked is gone


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2] == "flush")
