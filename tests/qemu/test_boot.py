# test_boot.py: what the host wrote is there, what the guest writes arrives, and both survive that the guest boots anew.
# SPDX-License-Identifier: BSD-2-Clause
import backend
from daemon import Wrong
from guests import GuestCase, Memory
from wire import M

SIZE = 64 * M


class Boot(GuestCase):
    def check_reboots(self, guest, memory):
        """Two reboots, one of the guest's own and one from outside; nothing is lost, nothing goes astray."""
        guest.ready()
        self.want_read(guest, "from the host", 0, "what was there before the boot")
        self.want_written(guest, memory, 4096, "first life")
        for number, again in enumerate([self.reboot, self.reset], 1):
            again(guest)
            self.want_read(guest, "from the host", 0, f"the host's line after reboot {number}")
            self.want_read(guest, "first life", 4096, f"the first life's line after reboot {number}")
            self.want_written(guest, memory, 4096 + 4096 * number, f"life after reboot {number}")
            memory.put(65536 * number, f"written in life {number}")
            self.want_read(guest, f"written in life {number}", 65536 * number, "what the host wrote meanwhile")

    def check_backend(self, again):
        memory = Memory(self, "all", SIZE, "from the host")
        backend.Backend(self.vhost, memory.fd, SIZE, again)
        guest = self.guest()
        self.check_reboots(guest, memory)

    def test_reboots_can_pass_without_the_daemon(self):
        """The check itself is sound: the simplest back-end that announces at each start passes."""
        self.check_backend(again=True)

    def test_reboots_fail_if_announced_once(self):
        """The check finds what it is for: a back-end that announces at its first start only."""
        try:
            self.check_backend(again=False)
        except Wrong as wrong:
            self.want("the host's line after reboot 1, read by guest0: wanted from the host, got ", str(wrong),
                      "what the check found")
        else:
            raise Wrong("the check of a back-end that announces once", "a failure", "none")
