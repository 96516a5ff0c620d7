# guests.py: what every test with a guest builds on: guests, memory that providers share with them, and a tidy end.
# SPDX-License-Identifier: BSD-2-Clause
import mmap
import os
import time

import machine
from case import Case
from daemon import Wrong
from wire import M

MORE = 30  # seconds in which the daemon and QEMU agree on a change, however busy the machine is


class Memory:
    """A memfd that is shared, looked at from the host."""

    def __init__(self, test, name, size, text=""):
        self.name, self.size = name, size
        self.fd = test.memfd(size, name)
        self.view = mmap.mmap(self.fd, size)
        test.addCleanup(self.view.close)
        self.put(0, text)

    def put(self, offset, text):
        self.view[offset:offset + len(text) + 1] = text.encode() + b"\0"

    def get(self, offset, size=32):
        return self.view[offset:offset + size].split(b"\0")[0].decode(errors="backslashreplace")


class GuestCase(Case):
    image = None

    def setUp(self):
        super().setUp()
        self.guests = []
        self.vhost = os.path.join(self.directory, "vhost")

    def tearDown(self):
        """QEMU survives what was done to it; the daemon is as it was when all are gone."""
        if not self.result.is_bad(self):
            for guest in self.guests:
                if not guest.awaited:
                    guest.want_alive()
                    guest.quit()
        super().tearDown()

    def clean_up(self):
        for guest in self.guests:
            guest.close()
        super().clean_up()

    def serve(self, *options, sockets=None, **more):
        """A daemon with a socket for front-ends."""
        for path in sockets or [self.vhost]:
            options = ("--socket-path", path, *options)
        return self.start(*options, **more)

    def guest(self, *sockets, name=None, **more):
        """Has been started; it boots meanwhile."""
        name = name or f"guest{len(self.guests)}"
        started = machine.Guest(self.image, name, self.logs, [] if "fds" in more else sockets or [self.vhost], **more)
        self.guests.append(started)
        return started

    def share(self, provider, name, size=2 * M, text=None, **fields):
        """New memory, mapped by that provider."""
        memory = Memory(self, name, size, name if text is None else text)
        self.want("0", provider.map(memory.fd, len=size, **fields), f"map of {name}")
        return memory

    # What a guest should see.

    def want_read(self, guest, wanted, offset, what):
        self.want(wanted, guest.read(offset), f"{what}, read by {guest.name}")

    def want_soon(self, guest, wanted, offset, what, seconds=MORE):
        """The guest reads it, now or in a while."""
        end = time.monotonic() + seconds
        while (got := guest.read(offset)) != wanted:
            if time.monotonic() > end:
                raise Wrong(f"{what}, read by {guest.name}", repr(wanted), repr(got))

    def want_gone(self, guest, name):
        """QEMU lets go of a file's memory a moment after it has answered that it is gone for the guest."""
        self.wait_until(lambda: not guest.maps(f"memfd:{name} "), f"places where {guest.name}'s QEMU maps {name}", 0,
                        lambda: guest.maps(f"memfd:{name} "), MORE)

    def want_written(self, guest, memory, offset, text, base=0):
        """What the guest writes and flushes is the host's; the memory is mapped at `base`."""
        guest.write(base + offset, text)
        self.want(text, memory.get(offset), f"what {guest.name} wrote to {memory.name}")

    def reboot(self, guest):
        """As the guest does it; QEMU goes on."""
        guest.agent.socket.sendall(b"reboot -f\n")
        guest.ready()

    def pause(self, guest):
        guest.command("stop")
        guest.command("cont")

    def reset(self, guest):
        """As a person does it at QEMU's monitor."""
        guest.command("system_reset")
        guest.ready()
