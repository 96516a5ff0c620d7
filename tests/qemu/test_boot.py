# test_boot.py: what the host wrote is there, what the guest writes arrives, and both survive that the guest boots anew.
# SPDX-License-Identifier: BSD-2-Clause
import os
import shutil
import socket
import subprocess

from daemon import Wrong
from guests import GuestCase
from wire import M

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIZE = 64 * M

# The line by which a start makes a front-end's mappings such as are announced again.
AGAIN = "entry->held = SETS_UNCERTAIN;"


class Boot(GuestCase):
    def check_reboots(self):
        """Two reboots, one of the guest's own and one from outside; nothing is lost, nothing goes astray."""
        served = self.serve()
        memory = self.share(self.provider(served), "all", SIZE, "from the host")
        guest = self.guest().ready()
        self.want_read(guest, "from the host", 0, "what was there before the boot")
        self.want_written(guest, memory, 4096, "first life")
        for number, again in enumerate([self.reboot, self.reset], 1):
            again(guest)
            self.want_read(guest, "from the host", 0, f"the host's line after reboot {number}")
            self.want_read(guest, "first life", 4096, f"the first life's line after reboot {number}")
            self.want_written(guest, memory, 4096 + 4096 * number, f"life after reboot {number}")
            memory.put(65536 * number, f"written in life {number}")
            self.want_read(guest, f"written in life {number}", 65536 * number, "what the host wrote meanwhile")

    def test_reboots(self):
        """What the guest wrote before is there after."""
        self.check_reboots()

    def test_reboots_fail_if_announced_once(self):
        """The check finds what it is for: with a daemon that announces at the first start only it fails."""
        self.binary = self.build_without(os.path.join("src", "vhost", "frontend_sets.c"), AGAIN)
        try:
            self.check_reboots()
        except Wrong as wrong:
            self.want("the host's line after reboot 1, read by guest0: wanted from the host, got ", str(wrong),
                      "what the check found")
        else:
            raise Wrong("the check of a daemon that announces once", "a failure", "none")

    def build_without(self, source, line):
        """The daemon of the same build, but for a line that is not in its sources."""
        build = os.path.dirname(os.path.dirname(self.binary))
        self.need(os.path.exists(os.path.join(build, "config.status")), f"{self.binary} is not in a build tree")
        top = os.path.join(self.logs, "top")
        copy = os.path.join(top, os.path.relpath(build, TOP))
        shutil.copytree(TOP, top, symlinks=True, ignore=shutil.ignore_patterns("build", ".git"))
        shutil.copytree(build, copy, symlinks=True, ignore=shutil.ignore_patterns("vm"))
        path = os.path.join(top, source)
        with open(path) as file:
            text = file.read()
        self.want(1, text.count(line), f"how often '{line}' is in {source}")
        with open(path, "w") as file:
            file.write(text.replace(line, ";"))
        made = subprocess.run(["make", "-C", copy, "src/mrshared"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.want(0, made.returncode, f"exit status of make ({made.stdout[-600:]})")
        return os.path.join(copy, "src", "mrshared")
