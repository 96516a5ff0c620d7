# test_page.py: the examples of mrshare-protocol(7), read by codecs that were written from that page alone.
# SPDX-License-Identifier: BSD-2-Clause
import os
import re
import sys

from case import Case

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "peer"))

import frames  # noqa: E402

VIEW = frames.View(0x01020304, 0x1122334455667788, 0x4000, "mlx5_0")
GENERATION, SLOT, USED, CRC = 0x0102030405060708, 64, 0x8B, 0x11223344


class Page(Case):
    def setUp(self):
        """The blocks of EXAMPLES, in their order."""
        super().setUp()
        with open(os.path.join(TOP, "man", "mrshare-protocol.7"), encoding="utf-8") as page:
            examples = page.read().split(".Sh EXAMPLES")[1].split(".Sh SEE ALSO")[0]
        blocks = [bytes.fromhex(block) for block in re.findall(r"^\.Bd [^\n]*\n(.*?)^\.Ed", examples, re.M | re.S)]
        names = "request accept reject view welcome root entry notice notice_of_all ack"
        self.examples = dict(zip(names.split(), blocks, strict=True))

    def broken(self, function, *arguments):
        try:
            return repr(function(*arguments))
        except frames.Broken:
            return "broken"

    def test_examples(self):
        """What the page says its bytes mean."""
        is_ = self.examples
        nonce, daemon = bytes(range(16)), bytes(range(16, 32))
        self.want(is_["request"], frames.request(1, 0x0302, True, nonce), "the request")
        self.want("broken", self.broken(frames.accept, is_["accept"]), "an accept that asks for authentication")
        without = is_["accept"][:6] + bytes(2) + is_["accept"][8:]
        self.want((1, 5, daemon, nonce), frames.accept(without + bytes(152)), "the same without")
        self.want(("FULL", "full"), frames.reject(is_["reject"] + bytes(100)), "the reject")
        self.want((VIEW, len(is_["view"])), frames.view(is_["view"]), "the view")
        self.want((3, GENERATION, VIEW._replace(addr=0, size=1 << 20)), frames.frame(is_["welcome"]), "the welcome")
        self.want((GENERATION, SLOT, USED, 2, CRC), frames.root(is_["root"], 1 << 20), "the root")
        self.want(((1, 3, 0x402000, 0x1112131415161718, VIEW), 0x3A), frames.entry(is_["entry"], 0), "the entry")
        self.want((7, GENERATION, SLOT, USED, CRC, (0x11, 0x8000000000002212)), frames.frame(is_["notice"]), "the notice")
        self.want((7, GENERATION, SLOT, USED, CRC, None), frames.frame(is_["notice_of_all"]), "the notice that withdraws all")
        self.want(is_["ack"], frames.ack(7, GENERATION), "the ack")

    def test_crc(self):
        """The values that the page gives."""
        self.want(0xE3069283, frames.crc32c(b"123456789"), "the CRC of nine bytes")
        self.want(0, frames.crc32c(b""), "the CRC of none")

    def test_cut_short(self):
        """No frame of the page is one when its last byte is missing."""
        for name in ("accept", "welcome", "notice", "notice_of_all"):
            decode = frames.accept if name == "accept" else frames.frame
            self.want("broken", self.broken(decode, self.examples[name][:-1]), f"the {name} without its last byte")
