# test_together.py: who is connected to what: guests on one region, each on its own, one of them killed; sockets that were passed.
# SPDX-License-Identifier: BSD-2-Clause
import os
import socket

from guests import GuestCase
from wire import M


class Together(GuestCase):
    def test_two_on_one_region(self):
        """What one writes the other reads; one is killed, and nothing changes for the rest."""
        served = self.serve()
        provider = self.provider(served)
        shared = self.share(provider, "shared", size=8 * M)
        first, second = self.guest(), self.guest()
        first.ready()
        second.ready()
        for number, (writer, reader) in enumerate([(first, second), (second, first)] * 2):
            offset = 4096 * (1 + number)
            self.want_written(writer, shared, offset, f"from {writer.name}")
            self.want_read(reader, f"from {writer.name}", offset, f"what {writer.name} wrote")
        late = self.share(provider, "late", shm_offset=8 * M)
        for guest in (first, second):
            self.want_soon(guest, "late", 8 * M, "what was added under both")
        # One of them boots anew: nothing changes for the other.
        self.reset(first)
        self.want_read(first, "shared", 0, "the mapping after the reset")
        self.want_read(second, "from guest0", 4096, "what guest0 wrote before its reset")
        first.kill()
        self.want_read(second, "from guest0", 4096, "what guest0 wrote before it was killed")
        self.want_written(second, shared, 65536, "alone now")
        self.want("0", provider.unmap(shm_offset=8 * M, len=late.size), "unmap, with one guest gone")
        self.want_read(second, "", 8 * M, "what was removed")
        third = self.guest().ready()
        self.want_read(third, "alone now", 65536, "what was written before it came")

    def test_paused_guest_harms_nobody(self):
        """One is paused: the other sees each change at once, and a removal is answered at its timeout."""
        served = self.serve()
        provider = self.provider(served)
        base = self.share(provider, "base")
        both = self.share(provider, "both", shm_offset=2 * M)
        paused, runs = self.guest(name="paused"), self.guest(name="runs")
        for guest in (paused, runs):
            guest.ready()
            self.want_read(guest, "both", 2 * M, "what both have")
        paused.command("stop")
        late = self.share(provider, "late", shm_offset=4 * M)
        self.want_soon(runs, "late", 4 * M, "what was added")
        self.want("0", provider.unmap(shm_offset=4 * M, len=late.size), "unmap of what only the running one has")
        self.want_soon(runs, "", 4 * M, "what was removed again")
        self.want("-EINPROGRESS", provider.unmap(shm_offset=2 * M, len=both.size), "unmap of what both have")
        self.want_read(runs, "", 2 * M, "what was removed from both")
        paused.command("cont")
        self.want_soon(paused, "", 2 * M, "what was removed from both")
        for guest in (paused, runs):
            self.want_written(guest, base, 4096, f"by {guest.name}")

    def test_second_socket(self):
        """A socket that offers one region of two: whoever opens it never gets the other."""
        all_regions = os.path.join(self.directory, "all")
        served = self.serve(sockets=[all_regions, f"{self.vhost},shmid=0"], regions=("0:64M", "1:64M"))
        provider = self.provider(served)
        self.share(provider, "secret", shmid=1)
        self.share(provider, "public")
        insider, outsider = self.guest(all_regions, name="insider"), self.guest(name="outsider")
        insider.ready()
        outsider.ready()
        self.share(provider, "secret2", shmid=1, shm_offset=4 * M)
        self.share(provider, "public2", shm_offset=4 * M)
        for guest in (insider, outsider):
            self.want_read(guest, "public", 0, "region 0")
            self.want_soon(guest, "public2", 4 * M, "what was added to region 0")
        for name, count in (("secret ", 1), ("secret2 ", 1)):
            self.wait_until(lambda: insider.maps(f"memfd:{name}") == count, f"places where the insider's QEMU maps {name}", count)
        self.want(0, outsider.maps("memfd:secret"), "places where the outsider's QEMU maps the other region")
        fds = [os.readlink(f"/proc/{outsider.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{outsider.pid}/fd")]
        self.want([], [name for name in fds if "secret" in name], "descriptors of the other region in the outsider's QEMU")

    def test_guest_addresses(self):
        """With --gpa-addresses: the same bytes, over reboots and pauses, and mappings that come and go."""
        served = self.serve("--gpa-addresses")
        provider = self.provider(served)
        base = self.share(provider, "base")
        guest = self.guest().ready()
        for number, again in enumerate([lambda _: None, self.reset, self.pause]):
            again(guest)
            self.want_read(guest, "base", 0, f"the mapping in start {number}")
            self.want_written(guest, base, 4096, f"flushed in start {number}")
            late = self.share(provider, f"late{number}", shm_offset=2 * M)
            self.want_soon(guest, f"late{number}", 2 * M, "what was added")
            self.want("0", provider.unmap(shm_offset=2 * M, len=late.size), "unmap")

    def test_connected_fd(self):
        """A guest with a daemon of its own: each was given one end of a connection, and the daemon ends with the guest."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            served = self.start("--fd", str(ours.fileno()), fds=[ours.fileno()])
            guest = self.guest(fds=[theirs.fileno()])
        memory = self.share(self.provider(served), "memory")
        guest.ready()
        for number, again in enumerate([lambda _: None, self.pause, self.reset]):
            again(guest)
            self.want_read(guest, "memory", 0, f"the mapping in start {number}")
            self.want_written(guest, memory, 4096, f"flushed in start {number}")
        guest.quit()
        self.want(0, served.wait(), "exit code of a daemon whose only front-end has left")

    def test_listening_fd(self):
        """A socket that somebody else listens at and passes on, with its file: guests come and go."""
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.vhost)
            listening.listen()
            served = self.start("--fd", str(listening.fileno()), fds=[listening.fileno()])
        provider = self.provider(served)
        memory = self.share(provider, "memory")
        guests = [self.guest(), self.guest()]
        for guest in guests:
            guest.ready()
            self.want_read(guest, "memory", 0, "the mapping")
            self.want_written(guest, memory, 4096, f"flushed by {guest.name}")
            guest.quit()
        provider.close()
        served.settled()
        served.end()
        self.want(True, os.path.exists(self.vhost), "the socket file that is not the daemon's")
