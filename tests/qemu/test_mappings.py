# test_mappings.py: mappings that come and go under a running guest, each kind of memory, and a mounted file system.
# SPDX-License-Identifier: BSD-2-Clause
import os
import subprocess

from guests import GuestCase, Memory
from wire import M

SIZE = 64 * M


class Mappings(GuestCase):
    def test_added_and_removed(self):
        """The guest sees what is added and no longer what is removed; what stays is not touched."""
        served = self.serve()
        stays, provider = self.provider(served), self.provider(served)
        base = self.share(stays, "base")
        guest = self.guest().ready()
        self.want_read(guest, "base", 0, "what was there before")
        for number in range(20 if self.long else 4):
            name, offset = f"late{number}", (2 + 2 * (number % 3)) * M
            late = self.share(provider, name, shm_offset=offset)
            self.want_soon(guest, name, offset, "what was added")
            guest.write(offset + 4096, "for you")
            self.want("for you", late.get(4096), f"what the guest wrote to {name}")
            self.want("0", provider.unmap(shm_offset=offset, len=late.size), f"unmap of {name}")
            self.want_read(guest, "", offset, "what was removed")
            self.want_gone(guest, name)
            self.want_written(guest, base, 4096, f"round {number}")

    def test_many_at_once(self):
        """Mappings added and removed without a pause, while the guest reads and writes what stays."""
        served = self.serve()
        base = self.share(self.provider(served), "base")
        provider = self.provider(served)
        guest = self.guest().ready()
        guest.ask("(while :; do dd if=/dev/pmem0 of=/dev/null bs=64k count=16; done) >/dev/null 2>&1 & echo $! >/tmp/reader")
        file = Memory(self, "short", 2 * M, "short")
        for number in range(500 if self.long else 50):
            offset = 2 * M * (1 + number % 5)
            self.want("0", provider.map(file.fd, shm_offset=offset, len=file.size), f"map {number}")
            self.want("0", provider.unmap(shm_offset=offset, len=file.size), f"unmap {number}")
        guest.ask("kill $(cat /tmp/reader)")
        self.want_gone(guest, "short")
        self.want_written(guest, base, 4096, "still here")
        self.share(provider, "last", shm_offset=2 * M)
        self.want_soon(guest, "last", 2 * M, "what was mapped last")

    def test_killed_provider(self):
        """Its memory leaves the guest, which lives on with what others share."""
        served = self.serve()
        base = self.share(self.provider(served), "base")
        victim = Memory(self, "victim", 2 * M, "victim")
        pid = self.child(lambda: self.mapped_by_child(served, victim))
        guest = self.guest().ready()
        self.want_read(guest, "victim", 2 * M, "the victim's memory")
        self.kill_child(pid)
        self.want_soon(guest, "", 2 * M, "the memory of a provider that was killed")
        self.want_gone(guest, "victim")
        self.want_written(guest, base, 4096, "still here")

    def mapped_by_child(self, served, memory):
        provider = self.provider(served)
        self.want("0", provider.map(memory.fd, shm_offset=2 * M, len=memory.size), "map")
        return provider

    def test_file_system(self):
        """The guest mounts ext4 with DAX; what it wrote there is in the host's bytes, and they are in order."""
        served = self.serve()
        provider = self.provider(served)
        memory = Memory(self, "disk", SIZE)
        file = f"/proc/{os.getpid()}/fd/{memory.fd}"
        subprocess.run(["/sbin/mke2fs", "-q", "-t", "ext4", "-b", "4096", "-F", file], check=True)
        self.want("0", provider.map(memory.fd, len=SIZE), "map")
        guest = self.guest().ready()
        guest.ask("load ext4 && mount -t ext4 -o dax /dev/pmem0 /mnt")
        self.want_in("dax=always", guest.ask("grep /mnt /proc/mounts"), "how it is mounted")
        guest.ask("dd if=/dev/urandom of=/mnt/data bs=64k count=40 conv=fsync 2>&1")
        sum_of_all = guest.ask("sha256sum </mnt/data")
        # The daemon announces at this start what QEMU holds already: a mounted file system lives on it.
        guest.command("stop")
        guest.command("cont")
        self.want(sum_of_all, guest.ask("sha256sum </mnt/data"), "sum of the file after stop and cont")
        guest.ask("echo made here >/mnt/line && sync && umount /mnt")
        checked = subprocess.run(["/sbin/e2fsck", "-fn", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.want((0, ""), (checked.returncode, checked.stdout if checked.returncode else ""), "e2fsck")
        line = subprocess.run(["/sbin/debugfs", "-R", "cat line", file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.want(b"made here\n", line.stdout, "the file's content in the host's bytes")

    def test_static_and_disk(self):
        """A static mapping of a file on disk: seen by the guest, and its flush syncs the file."""
        fd = self.file(2 * M, name="static")
        os.pwrite(fd, b"on disk\0", 0)
        path = os.path.join(self.logs, "static")
        served = self.serve("--map", f"shmid=0,path={path}")
        self.share(self.provider(served), "other", shm_offset=4 * M)
        guest = self.guest().ready()
        self.want_read(guest, "on disk", 0, "the file's line")
        self.want_read(guest, "other", 4 * M, "the provider's line")
        for again in (lambda _: None, self.reset):
            again(guest)
            guest.write(8192, "flushed")
            self.want(b"flushed\0", os.pread(fd, 8, 8192), "what the guest wrote")

    def test_read_only(self):
        """A read-only mapping is for peers alone: QEMU would let the guest write to it."""
        served = self.serve()
        provider = self.provider(served)
        hidden = self.share(provider, "hidden", flags=0)
        self.share(provider, "shown", shm_offset=2 * M)
        guest = self.guest().ready()
        self.want_read(guest, "shown", 2 * M, "the writable mapping")
        self.want_read(guest, "", 0, "the read-only mapping")
        guest.write(0, "scribble")
        self.want("hidden", hidden.get(0), "the read-only mapping after the guest wrote there")
        self.want(0, guest.maps("memfd:hidden "), "places where QEMU maps it")
        self.want("0", provider.unmap(len=hidden.size), "unmap of what was never announced")
