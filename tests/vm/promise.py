# Maps, unmaps, and looks whether anything lands in the memory afterwards: promise.py SOCKET.
# SPDX-License-Identifier: BSD-2-Clause
# A line of input is "map", "look" or "unmap".
import array
import mmap
import os
import socket
import struct
import sys
import time

MAP, UNMAP, SIZE = 9, 10, 1 << 20
daemon = socket.socket(socket.AF_UNIX)
daemon.connect(sys.argv[1])
fd = os.memfd_create("promise", os.MFD_ALLOW_SEALING)
os.ftruncate(fd, SIZE)
memory = mmap.mmap(fd, SIZE)


def request(number, fds):
    message = struct.pack("=IIIB7xQQQQ", number, 1 | 8, 40, 0, 0, 0, SIZE, 1)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    daemon.sendmsg([message], rights)
    return struct.unpack("=IIIq", daemon.recv(20, socket.MSG_WAITALL))[3]


def state():
    return "dirty" if any(memory[:4096]) else "clean"


for line in sys.stdin:
    word = line.strip()
    if word == "map":
        print("map", request(MAP, [fd]), flush=True)
    elif word == "look":
        print("look", state(), flush=True)
    elif word == "unmap":
        result = request(UNMAP, [])
        memory[:] = bytes(SIZE)  # ours alone from here on
        time.sleep(2)
        print("unmap", result, state(), flush=True)
