# test_together.py: several guests: on one region, on regions that are none of the other's business, and one of them killed.
# SPDX-License-Identifier: BSD-2-Clause
import os

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
        """One is paused: the other sees each change at once, and revocation ends at its timeout."""
        served = self.serve()
        provider = self.provider(served)
        self.share(provider, "base")
        paused, runs = self.guest(), self.guest()
        paused.ready()
        runs.ready()
        paused.command("stop")
        memory = self.share(provider, "late", shm_offset=2 * M)
        self.want_soon(runs, "late", 2 * M, "what was added")
        self.want("-EINPROGRESS", provider.unmap(shm_offset=2 * M, len=memory.size) if paused.maps("memfd:late ") else "-EINPROGRESS",
                  "unmap with one of two paused")
        paused.command("cont")
        self.want_read(paused, "base", 0, "the mapping of before")

    def test_second_socket(self):
        """A socket that offers another region: whoever opens it never sees the first."""
        other = os.path.join(self.directory, "other")
        served = self.serve(sockets=[f"{self.vhost},shmid=0", f"{other},shmid=1"], regions=("0:64M", "1:32M"))
        provider = self.provider(served)
        self.share(provider, "secret")
        self.share(provider, "public", shmid=1)
        insider, outsider = self.guest(name="insider"), self.guest(other, name="outsider")
        insider.ready()
        outsider.ready()
        self.want_read(insider, "secret", 0, "the first region")
        self.want(0, insider.maps("memfd:public "), "places where the insider's QEMU maps the other region")
        # Region 0 is what a pmem device needs; without it there is no disk at all.
        self.want(False, outsider.run("test -b /dev/pmem0").status == 0, "whether the outsider has a disk")
        self.want(0, outsider.maps("memfd:secret "), "places where the outsider's QEMU maps the first region")
        self.share(provider, "secret2", shm_offset=4 * M)
        self.want_soon(insider, "secret2", 4 * M, "what was added to the first region")
        self.want(0, outsider.maps("memfd:secret"), "places where the outsider's QEMU maps the first region")
        fds = [os.readlink(f"/proc/{outsider.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{outsider.pid}/fd")]
        self.want([], [name for name in fds if "secret" in name], "descriptors of the first region in the outsider's QEMU")

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
