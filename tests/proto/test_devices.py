# test_devices.py: a start without any RDMA device: the log says what is missing, and what to do.
# SPDX-License-Identifier: BSD-2-Clause
import os
import subprocess

import daemon
from case import Case

FOREIGN = "203.0.113.7"  # of a network that RFC 5737 gives to nobody


class Missing(Case):
    def setUp(self):
        super().setUp()
        self.need(not os.path.exists("/dev/infiniband/rdma_cm"), "this machine has RDMA")

    def said(self, *addresses):
        """The warnings of a daemon that listens there, when it is ready and has looked once more."""
        listen = [word for address in addresses for word in ("--rdma-listen", address)]
        with subprocess.Popen([self.binary, "--shmem", "0:64M", "--provider-socket", self.path, *listen], stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, env=daemon.ENVIRONMENT) as process:
            self.addCleanup(process.kill)
            lines = []
            for line in process.stderr:
                lines.append(line)
                if line.startswith("info: ready"):
                    break
            try:
                process.wait(1.5)
            except subprocess.TimeoutExpired:
                process.terminate()
            lines += process.stderr
            self.want(0, process.wait(10), f"exit code ({lines})")
        return [line for line in lines if not line.startswith("info: ")]

    def test_rdma_cm_cannot_be_used(self):
        """The module is the reason, whatever the address; it is said once."""
        line, = self.said("127.0.0.1", "127.0.0.2:9", "0.0.0.0:7472")
        for word in ("warning: cannot use rdma_cm", "modprobe rdma_ucm", "looked for"):
            self.want_in(word, line, "the warning")

    def test_an_address_that_is_none(self):
        """A typing error does not look like a missing device."""
        lines = self.said(FOREIGN, "[2001:db8::7]:7472", "127.0.0.1")
        self.want(3, len(lines), f"warnings: {lines}")
        self.want_in("cannot use rdma_cm", lines[0], "the first")
        for line, address in zip(lines[1:], (f"{FOREIGN}:7471", "[2001:db8::7]:7472")):
            self.want_in(f"warning: {address} is no address of this host: `ip address show`", line, "a warning")
