# A front-end that does over a socket what QEMU does up to a running guest, and says what it was given, a line each.
# SPDX-License-Identifier: BSD-2-Clause
import os
import select
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "proto"))
import wire  # noqa: E402
wire.PATIENCE = 60  # seconds: the first request is answered when the service has started
from frontend import FrontEnd  # noqa: E402

connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
connection.connect(sys.argv[1])
front_end = FrontEnd(connection)
answers = front_end.negotiate()
print("started", *answers, front_end.start(), flush=True)
while not select.select([sys.stdin], [], [], 0.1)[0]:
    if front_end.pending():
        name, shmid, offset, length, answer = front_end.serve_one()
        print(name, shmid, offset, length, answer, flush=True)
