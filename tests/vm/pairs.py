# Maps and unmaps 64 KiB again and again: pairs.py SOCKET COUNT. The wire format: mrshare-protocol(7).
# SPDX-License-Identifier: BSD-2-Clause
import array
import os
import socket
import struct
import sys

MAP, UNMAP, SIZE = 9, 10, 65536
daemon = socket.socket(socket.AF_UNIX)
daemon.connect(sys.argv[1])
fd = os.memfd_create("pairs", os.MFD_ALLOW_SEALING)
os.ftruncate(fd, SIZE)


def request(number, fds):
    message = struct.pack("=IIIB7xQQQQ", number, 1 | 8, 40, 0, 0, 0, SIZE, 1)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    daemon.sendmsg([message], rights)
    result = struct.unpack("=IIIq", daemon.recv(20, socket.MSG_WAITALL))[3]
    if result:
        sys.exit(f"request {number}: wanted 0, got {result}")


for _ in range(int(sys.argv[2])):
    request(MAP, [fd])
    request(UNMAP, [])
