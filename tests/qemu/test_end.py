# test_end.py: the daemon ends or is killed under a running guest, whose memory lives on.
# SPDX-License-Identifier: BSD-2-Clause
#
# QEMU 11.1 keeps a device whose back-end has gone as it is, and answers nothing in its place: a flush waits for ever,
# until the guest lets its driver go, and a guest that is paused or boots anew ends in an assertion of QEMU.
import signal
import time

from daemon import Wrong
from guests import MORE, GuestCase
from wire import M

FLUSH = "(printf '{}\\0' | dd of=/dev/pmem0 bs=512 seek={} conv=notrunc,fsync >/tmp/said 2>&1; echo status $? >>/tmp/said) &"


class End(GuestCase):
    def flush(self, guest, memory, offset, text):
        """A write that arrives, and a flush whose end nobody waits for."""
        guest.ask("rm -f /tmp/said")
        guest.ask(FLUSH.format(text, offset // 512))
        self.wait_until(lambda: memory.get(offset) == text, "what the guest writes", text, lambda: memory.get(offset), MORE)

    def want_flush_failed(self, guest, seconds):
        end = time.monotonic() + seconds
        while "status" not in (said := guest.run("cat /tmp/said").text):
            if time.monotonic() > end:
                raise Wrong("a flush that cannot be done", f"an error within {seconds} s", f"nothing ({said})")
        self.want_in("Input/output error", said, "what the flush came to")

    def check_life_after(self, end_daemon):
        served = self.serve()
        provider = self.provider(served)
        memory = self.share(provider, "memory")
        guest = self.guest().ready()
        self.want_written(guest, memory, 4096, "with the daemon")
        end_daemon(served)
        self.want_read(guest, "memory", 0, "the memory without the daemon")
        memory.put(8192, "from the host")
        self.want_read(guest, "from the host", 8192, "what the host wrote without the daemon")
        self.flush(guest, memory, 16384, "without it")
        guest.want_alive()
        device = guest.ask("basename $(ls -d /sys/bus/virtio/drivers/virtio_pmem/virtio*)")
        guest.ask(f"(echo {device} >/sys/bus/virtio/drivers/virtio_pmem/unbind) >/dev/null 2>&1 &")
        self.want_flush_failed(guest, MORE)
        guest.want_alive()
        guest.quit()
        # What the guest wrote is there for the next daemon and the next guest.
        served = self.serve()
        self.want("0", self.provider(served).map(memory.fd, len=memory.size), "map with the next daemon")
        guest = self.guest().ready()
        self.want_read(guest, "without it", 16384, "what the guest before wrote")
        self.want_written(guest, memory, 4096, "with the next daemon")

    def test_terminated(self):
        """SIGTERM with a guest: exit 0, and the guest goes on with its memory."""
        self.check_life_after(lambda served: served.end())

    def test_killed(self):
        """SIGKILL: the guest goes on with its memory, too."""
        self.check_life_after(lambda served: served.kill())

    def test_flush_that_hangs(self):
        """A flush of a file whose server sleeps: the guest goes on, and at SIGTERM it is answered: it failed."""
        with self.fuse(flush=False) as files:
            served = self.serve("--any-filesystem", "--map", f"shmid=0,path={files.mount_point}/file,shm-offset=2M")
            provider = self.provider(served)
            memory = self.share(provider, "memory")
            guest = self.guest().ready()
            self.want_read(guest, "memory", 0, "the memory")
            files.pause()
            self.flush(guest, memory, 4096, "hangs")
            self.want_read(guest, "memory", 0, "the memory while the flush hangs")
            if self.long:
                self.want_flush_failed(guest, 60 + MORE)
                self.flush(guest, memory, 8192, "hangs again")
                self.want_read(guest, "memory", 0, "the memory while the next flush hangs")
            served.send_signal(signal.SIGTERM)
            self.want_flush_failed(guest, MORE)
            self.want(0, served.wait(30), "exit code")
            self.want_read(guest, "memory", 0, "the memory without the daemon")
            files.go_on()
            guest.kill()
