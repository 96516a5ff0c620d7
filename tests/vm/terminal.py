# terminal.py: runs a command with its standard error on a terminal: terminal.py COLUMNS SECONDS COMMAND...
# SPDX-License-Identifier: BSD-2-Clause
# Its standard output is read after SECONDS. Prints what came to the terminal, a carriage return as the end of a line,
# escapes as in Python.
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time

columns, seconds, *command = sys.argv[1:]
control, terminal = pty.openpty()
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, int(columns), 0, 0))
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal)
os.close(terminal)
written = b""


def watch():
    global written
    try:
        while more := os.read(control, 4096):
            written += more
    except OSError:  # the other end is closed
        pass


watcher = threading.Thread(target=watch)
watcher.start()
time.sleep(float(seconds))
size = len(process.stdout.read())
status = process.wait()
watcher.join()
for line in written.decode().split("\r"):
    print(repr(line)[1:-1])
print(f"status {status}, {size} bytes")
