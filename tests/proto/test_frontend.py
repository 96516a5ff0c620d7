# test_frontend.py: front-ends: what each request takes and answers, in and out of its time.
# SPDX-License-Identifier: BSD-2-Clause
import struct

import frontend as fe
from frontend import FrontEndCase, state, table, u64
from wire import M, NEED_REPLY, PAGE, VERSION


class Requests(FrontEndCase):
    def test_like_qemu(self):
        """The whole sequence: connected, started, a mapping announced, a flush, stopped, gone."""
        served = self.serve()
        provider = self.provider(served)
        fd = self.mapped_file(provider, size=2 * M)
        front_end = self.negotiated()
        self.want(fe.PROTOCOL, front_end.offered, "protocol features offered")
        self.want(1, front_end.number(fe.GET_QUEUE_NUM), "GET_QUEUE_NUM")
        self.want(8, front_end.number(fe.GET_MAX_MEM_SLOTS), "GET_MAX_MEM_SLOTS")
        self.want(False, front_end.pending(0.1), "a request before the start")
        self.want("0", front_end.start(base=0), "a start")
        self.want([("map", 0, 0, 2 * M, 0)], front_end.serve(), "announced at the start")
        self.want(True, fe.os.path.samestat(fe.os.fstat(fd), fe.os.fstat(front_end.mapped[0, 0][1])), "the same file")
        self.want("0", front_end.set_table(), "the table with the mapping")
        self.want(0, front_end.flush(), "a flush")
        self.want(1, front_end.stop(), "the base at the stop")
        for said in (r"front-end 1 \(pid \d+, uid \d+\): connected", "features 0x", "started", "announced", "stopped"):
            served.wait_log(said)
        front_end.close()
        served.wait_log("front-end 1 .*gone")
        self.want("0", provider.unmap(len=2 * M), "unmap afterwards")
