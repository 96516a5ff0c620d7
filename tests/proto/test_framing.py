# test_framing.py: headers, payloads and fds as bytes of a stream: cut, slow, glued together, too long, too many.
# SPDX-License-Identifier: BSD-2-Clause
import random
import resource
import struct

from case import Case
from wire import (BARRIER, MAP, MAX_FDS, MESSAGE_SIZE, NEED_REPLY, PAGE, REPLY, UNMAP, VERSION, map_message,
                  message, payload, unmap_message)

UNKNOWN = 0x55


class Framing(Case):
    def setUp(self):
        super().setUp()
        self.served = self.start()
        self.one = self.memfd(name="one")

    def want_closed(self, data, what, fds=()):
        provider = self.provider(self.served)
        provider.send(data, fds)
        self.want("closed", provider.ending(), what)
        provider.close()

    def test_reply_layout(self):
        """A reply is request, version | REPLY and nothing else, size 8, 0 or a negative errno in 64 bits."""
        provider = self.provider(self.served)
        provider.send(map_message(), [self.one])
        self.want(struct.pack("=IIIQ", MAP, VERSION | REPLY, 8, 0), provider.read(20), "reply to a map")
        provider.send(unmap_message(len=2 * PAGE))
        self.want(struct.pack("=IIIq", UNMAP, VERSION | REPLY, 8, -2), provider.read(20), "reply to a wrong unmap")
        provider.send(unmap_message(flags=0xFFFFFFF0 | NEED_REPLY | VERSION))
        self.want(struct.pack("=IIIQ", UNMAP, VERSION | REPLY, 8, 0), provider.read(20), "reply to an unmap, high bits set")
        provider.send(message(0xFFFFFFFF))
        self.want(struct.pack("=IIIq", 0xFFFFFFFF, VERSION | REPLY, 8, -95), provider.read(20), "reply to an unknown request")

    def test_higher_flag_bits_are_ignored(self):
        provider = self.provider(self.served)
        for bit in range(4, 32):
            self.want("-ENOENT", provider.call(UNMAP, payload(), flags=VERSION | NEED_REPLY | 1 << bit), f"flag bit {bit}")
        self.want("nothing", provider.quietly(UNMAP, payload()), "an answer without NEED_REPLY")
        provider.send(unmap_message(flags=0xFFFFFFF0 | VERSION))
        self.want("-EOPNOTSUPP", provider.barrier(), "higher bits without NEED_REPLY: only the next question's answer")

    def test_wrong_version_closes(self):
        for version in (0, 2, 3):
            for extra in (0, NEED_REPLY):
                data = message(UNMAP, payload(), version | extra)
                self.want_closed(data, f"version {version}")
                self.want_closed(data, f"version {version} with an fd", [self.one])

    def test_reply_flag_closes(self):
        for extra in (0, NEED_REPLY, 0xFFFFFFF0):
            data = message(MAP, payload(), VERSION | REPLY | extra)
            self.want_closed(data, "REPLY set")
            self.want_closed(data, "REPLY set, with an fd", [self.one])

    def test_wrong_header_closes_before_its_payload(self):
        for header, what in ((message(MAP, flags=2, size=40), "version 2"), (message(MAP, flags=VERSION | REPLY, size=40), "REPLY"),
                             (message(MAP, size=4097), "size 4097"), (message(UNKNOWN, size=0xFFFFFFFF), "size 0xffffffff")):
            self.want_closed(header, f"{what}, header alone", [self.one])

    def test_oversized_case_2(self):
        """Case 2: a size of 4096 is read, 4097 and 0xffffffff close; nothing is allocated by it, fds are closed."""
        before = self.served.status("VmSize")
        for size in (4097, 4098, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            for request in (MAP, UNMAP, UNKNOWN):
                for flags in (VERSION, VERSION | NEED_REPLY):
                    self.want_closed(message(request, flags=flags, size=size) + bytes(100), f"size {size:#x}", [self.one] * 3)
        grown = self.served.status("VmSize") - before
        self.want(True, grown < 64 << 20, f"address space flat (it grew by {grown})")

        provider = self.provider(self.served)
        for request, wanted in ((UNKNOWN, "-EOPNOTSUPP"), (MAP, "-EINVAL"), (UNMAP, "-EINVAL")):
            self.want(wanted, provider.call(request, bytes(4096), [self.one]), f"request {request}, size 4096 with an fd")
        self.want("0", provider.map(self.one), "a map afterwards")

    def test_cut_and_closed_at_each_byte_case_3(self):
        """Case 3: cut at every byte, then closed: nothing happens, the fd is closed."""
        for cut in range(MESSAGE_SIZE):
            provider = self.provider(self.served)
            if cut:
                provider.send(map_message()[:cut], [self.one])
            provider.close()
        self.served.settled()
        self.want([], self.served.maps_of(self.one), "what is mapped")

    def test_cut_and_half_closed_at_each_byte(self):
        for cut in range(1, MESSAGE_SIZE, 3):
            provider = self.provider(self.served)
            provider.send(map_message()[:cut], [self.one])
            provider.socket.shutdown(1)
            self.want("closed", provider.ending(), f"{cut} bytes, then end of file")

    def test_cut_and_resumed_at_each_byte_case_3(self):
        """Case 3: cut at every byte, a pause, the rest: slow is not wrong."""
        provider = self.provider(self.served)
        data = map_message()
        for cut in range(1, MESSAGE_SIZE):
            provider.send(data[:cut], [self.one])
            self.want(True, provider.drained(), f"the first {cut} bytes were read")
            provider.send(data[cut:])
            self.want("0", provider.answer(MAP), f"cut after {cut} bytes")
            self.want("0", provider.unmap(), "unmap")

    def test_byte_by_byte_case_3(self):
        """Case 3: one byte a write, each read before the next is sent; then each as fast as it goes."""
        provider = self.provider(self.served)
        for slow in (True, False):
            for data, request, fds in ((map_message(), MAP, [self.one]), (unmap_message(), UNMAP, [])):
                for index in range(len(data)):
                    provider.send(data[index:index + 1], fds if index == 0 else ())
                    if slow:
                        self.want(True, provider.drained(), f"byte {index} was read")
                self.want("0", provider.answer(request), f"request {request} byte by byte")

    def test_fd_with_each_byte(self):
        """An fd belongs to the message whose bytes it came with: any byte of header or payload."""
        provider = self.provider(self.served)
        data = map_message()
        for paused in (True, False):
            for at in range(MESSAGE_SIZE):
                if at:
                    provider.send(data[:at])
                    if paused:
                        provider.drained()
                provider.send(data[at:at + 1], [self.one])
                if paused:
                    provider.drained()
                if data[at + 1:]:
                    provider.send(data[at + 1:])
                self.want("0", provider.answer(MAP), f"fd with byte {at}")
                self.want("0", provider.unmap(), "unmap")

    def test_two_fds_with_different_bytes(self):
        provider = self.provider(self.served)
        data = map_message()
        for first, second in ((0, 11), (0, 12), (0, 51), (11, 12), (12, 51), (50, 51)):
            for part, fds in ((data[:first], ()), (data[first:first + 1], [self.one]), (data[first + 1:second], ()),
                              (data[second:second + 1], [self.one]), (data[second + 1:], ())):
                if part:
                    provider.send(part, fds)
            self.want("-EBADF", provider.answer(MAP), f"fds with bytes {first} and {second}")
        self.want("0", provider.map(self.one), "a map afterwards")

    def test_fd_belongs_to_its_own_message(self):
        """Messages that are read in one go: bytes without an fd before bytes with one do not take it."""
        provider = self.provider(self.served)
        for parts, wanted in (
                ([(map_message(), []), (map_message(), [self.one])], ["-EBADF", "0"]),
                ([(map_message(), [self.one]), (map_message(shm_offset=PAGE), [])], ["0", "-EBADF"]),
                ([(map_message()[:51], []), (map_message()[51:], [self.one]), (map_message(shm_offset=PAGE), [])], ["0", "-EBADF"]),
                ([(map_message()[:12], []), (map_message()[12:], []), (map_message()[:51], []), (map_message()[51:], [self.one])],
                 ["-EBADF", "0"]),
                # One write over the end of a message: its fd comes with the first byte.
                ([(map_message()[:51], []), (map_message()[51:] + map_message(shm_offset=PAGE), [self.one])], ["0", "-EBADF"]),
                ([(map_message() + map_message(shm_offset=PAGE), [self.one])], ["0", "-EBADF"]),
                ([(map_message() + map_message(shm_offset=PAGE), [self.one, self.one])], ["-EBADF", "-EBADF"])):
            self.served.stop()
            for data, fds in parts:
                provider.send(data, fds)
            self.served.go_on()
            self.want(wanted, [provider.answer(MAP) for _ in wanted], "answers")
            if "0" in wanted:
                self.want("0", provider.unmap(), "unmap")

    def test_order_of_execution_case_38(self):
        """Case 38: MAP A, UNMAP A, MAP A without a pause: 0, 0, 0."""
        provider = self.provider(self.served)
        for _ in range(20):
            self.served.stop()
            provider.send(map_message(), [self.one])
            provider.send(unmap_message())
            provider.send(map_message(), [self.one])
            self.served.go_on()
            got = [provider.answer(request) for request in (MAP, UNMAP, MAP)]
            self.want(["0", "0", "0"], got, "MAP A, UNMAP A, MAP A")
            self.want("0", provider.unmap(), "unmap")

    def test_order_of_execution_in_one_write_case_38(self):
        """Case 38 to the letter: one write for all but the byte that brings the second fd."""
        provider = self.provider(self.served)
        data = map_message() + unmap_message() + map_message()
        self.served.stop()
        provider.send(data[:-1], [self.one])
        provider.send(data[-1:], [self.one])
        self.served.go_on()
        got = [provider.answer(request) for request in (MAP, UNMAP, MAP)]
        self.want(["0", "0", "0"], got, "MAP A, UNMAP A, MAP A")

    def test_order_of_execution_without_need_reply(self):
        """The next is executed when the one before is finished, answered or not."""
        provider = self.provider(self.served)
        self.served.stop()
        for _ in range(5):
            provider.send(map_message(VERSION), [self.one])
            provider.send(unmap_message(VERSION))
        provider.send(map_message(), [self.one])
        self.served.go_on()
        self.want("0", provider.answer(MAP), "the last map, the only one that asked for an answer")
        self.want(1, len(self.served.maps_of(self.one)), "mappings of the file")

    def test_read_ahead(self):
        """Far more messages than are read ahead: all are executed, in order."""
        provider = self.provider(self.served)
        requests = []
        self.served.stop()
        for index in range(60):
            if index == 15:
                self.served.go_on()
            for data, fds, request, wanted in (
                    (map_message(shm_offset=index * PAGE), [self.one], MAP, "0"), (unmap_message(len=2 * PAGE), [], UNMAP, "-ENOENT"),
                    (message(BARRIER + index), [], BARRIER + index, "-EOPNOTSUPP"), (map_message(VERSION), [], None, None)):
                provider.send(data, fds)
                if request:
                    requests.append((request, wanted))
        for index, (request, wanted) in enumerate(requests):
            self.want(wanted, provider.answer(request), f"answer {index}")
        self.want(60, self.served.fds()["/memfd:one (deleted)"], "open fds of the file")

    def test_many_messages_in_one_write(self):
        provider = self.provider(self.served)
        for count in (2, 31, 32, 33, 64, 65, 1000):
            provider.send(b"".join(message(BARRIER + index, bytes(index % 50)) for index in range(count)))
            for index in range(count):
                self.want("-EOPNOTSUPP", provider.answer(BARRIER + index), f"answer {index} of {count}")

    def test_close_with_messages_read_ahead(self):
        """End of file: what was read ahead is dropped, what was mapped is removed, every fd is closed."""
        for close in (lambda provider: provider.close(), lambda provider: provider.socket.shutdown(1)):
            for _ in range(10):
                provider = self.provider(self.served)
                self.served.stop()
                for index in range(20):
                    provider.send(map_message(shm_offset=index * PAGE), [self.one])
                provider.send(map_message(shm_offset=21 * PAGE)[:30], [self.one])
                close(provider)
                self.served.go_on()
                self.wait_until(lambda: not self.served.fds()["/memfd:one (deleted)"], "fds of a closed connection", "none",
                                lambda: self.served.fds()["/memfd:one (deleted)"])
                provider.close()
        other = self.provider(self.served)
        self.want("0", other.map(self.memfd(20 * PAGE), len=20 * PAGE), "the range is free again")

    def test_wrong_message_among_good_ones_closes(self):
        """Framing lost after good messages: what was mapped before goes with the connection."""
        provider = self.provider(self.served)
        self.want("0", provider.map(self.one), "map")
        self.served.stop()
        provider.send(map_message(shm_offset=PAGE), [self.one])
        provider.send(message(MAP, payload(), 2), [self.one])
        provider.send(map_message(shm_offset=2 * PAGE), [self.one])
        self.served.go_on()
        provider.read(1000)
        self.want("closed", provider.ending(), "after the wrong message")
        self.wait_until(lambda: not self.served.maps_of(self.one), "mappings of a closed connection", "none")

    def test_253_fds(self):
        """As many fds as the kernel lets through: refused by the table, all closed."""
        provider = self.provider(self.served)
        many = [self.one] * MAX_FDS
        self.want("-EBADF", provider.call(MAP, payload(), many), "map with 253 fds")
        self.want("-EINVAL", provider.call(UNMAP, payload(), many), "unmap with 253 fds")
        self.want("-EOPNOTSUPP", provider.call(UNKNOWN, b"", many), "unknown request with 253 fds")
        self.want("nothing", provider.quietly(MAP, payload(), many), "map with 253 fds, no reply asked")
        self.want("0", provider.map(self.one), "a map afterwards")

    def test_two_sets_of_fds_in_one_message(self):
        provider = self.provider(self.served)
        provider.send_control(map_message(), [self.one], [self.one])
        self.want("-EBADF", provider.answer(MAP), "two sets of one fd in one sendmsg")
        provider.send_control(unmap_message(), [self.one], [self.one])
        self.want("-EINVAL", provider.answer(UNMAP), "unmap with two sets")

    def test_more_fds_than_fit(self):
        """253 fds with each of several bytes of one message: refused or closed, every fd closed, nobody harmed."""
        other = self.provider(self.served)
        for request in (MAP, UNKNOWN):
            provider = self.provider(self.served)
            data = message(request, payload())
            try:
                for index in range(8):
                    provider.send(data[index:index + 1], [self.one] * MAX_FDS)
                provider.send(data[8:])
            except (BrokenPipeError, ConnectionResetError):
                pass  # closed already: right too
            got = provider.answer(request)
            self.want(True, got in ("closed", "-EBADF" if request == MAP else "-EOPNOTSUPP"), f"8 × 253 fds on one message: {got}")
            provider.close()
            self.want_served(other, self.one)

    def test_truncated_control_data_closes(self):
        """MSG_CTRUNC (here: the daemon runs out of fds in the middle of a set): closed, every fd closed."""
        for request in (MAP, UNKNOWN):
            provider = self.provider(self.served)
            self.want("-EOPNOTSUPP", provider.barrier(), "a question")
            soft, hard = resource.prlimit(self.served.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self.served.pid, resource.RLIMIT_NOFILE, (self.served.free_fd() + 2, hard))
            provider.send(message(request, payload()), [self.one] * 5)
            got = provider.ending()
            resource.prlimit(self.served.pid, resource.RLIMIT_NOFILE, (soft, hard))
            self.want("closed", got, "a message whose fds were cut off")
            provider.close()
            self.served.settled()

    def test_fds_on_unknown_requests(self):
        provider = self.provider(self.served)
        for count in (1, 2, 8, 32):
            for size in (0, 1, 40, 4096):
                for request in (0, 1, 2, 3, 4, 6, 8, 11, 12, 0xFFFFFFFF):
                    self.want("-EOPNOTSUPP", provider.call(request, bytes(size), [self.one] * count),
                              f"request {request}, size {size}, {count} fds")
        self.wait_until(lambda: not self.served.fds()["/memfd:one (deleted)"], "fds of refused messages", "none left")

    def test_fds_where_none_belong_case_1(self):
        """Case 1: 0, 2, 8, 32 fds with a map, 1 with an unmap, any with what takes none; 10,000 messages."""
        provider = self.provider(self.served)
        kinds = [(MAP, 0, "-EBADF"), (MAP, 2, "-EBADF"), (MAP, 8, "-EBADF"), (MAP, 32, "-EBADF"), (UNMAP, 1, "-EINVAL"),
                 (UNMAP, 4, "-EINVAL"), (UNKNOWN, 1, "-EOPNOTSUPP"), (2, 3, "-EOPNOTSUPP")]
        for turn in range(10000 // len(kinds) // 4):
            for request, count, _ in kinds * 4:
                provider.send(message(request, payload()), [self.one] * count)
            for request, count, wanted in kinds * 4:
                self.want(wanted, provider.answer(request), f"request {request} with {count} fds, turn {turn}")
        self.wait_until(lambda: not self.served.fds()["/memfd:one (deleted)"], "fds of refused messages", "none left")
        self.want("0", provider.map(self.one), "a map afterwards")

    def test_unknown_requests_case_15(self):
        """Case 15: ids nobody knows, ids that we do not serve: an error reply, nothing done."""
        provider = self.provider(self.served)
        for request in [*range(0, 9), *range(11, 80), 255, 256, 0x7FFFFFFF, 0x80000000, 0x80000009, 0x10009, 0xFFFFFFFF]:
            for size in (0, 8, 40):
                self.want("-EOPNOTSUPP", provider.call(request, bytes(size)), f"request {request:#x}, size {size}")
            self.want("nothing", provider.quietly(request, bytes(40)), f"request {request:#x} without NEED_REPLY")
            self.want("-EOPNOTSUPP", provider.call(request, payload(), [self.one]), f"request {request:#x} with an fd")
        self.want([], self.served.maps_of(self.one), "what is mapped")
        self.want("0", provider.map(self.one), "a map afterwards")

    def test_payload_of_unknown_request_is_skipped_at_each_size(self):
        provider = self.provider(self.served)
        for size in [*range(0, 64), 127, 128, 1023, 2048, 4095, 4096]:
            provider.send(message(UNKNOWN, map_message()[:size].ljust(size, b"\xff")) + unmap_message())
            self.want("-EOPNOTSUPP", provider.answer(UNKNOWN), f"unknown request of size {size}")
            self.want("-ENOENT", provider.answer(UNMAP), f"what follows an unknown request of size {size}")

    def test_big_payload_in_pieces(self):
        provider = self.provider(self.served)
        data = message(UNKNOWN, bytes(4096))
        for start in range(0, len(data), 500):
            provider.send(data[start:start + 500], [self.one])
            provider.drained()
        self.want("-EOPNOTSUPP", provider.answer(UNKNOWN), "4096 bytes in pieces, an fd with each")

    def test_noise(self):
        """Random bytes: the connection ends or answers, the daemon lives."""
        other = self.provider(self.served)
        for seed in range(60):
            noise = random.Random(seed)
            provider = self.provider(self.served)
            try:
                for _ in range(5):
                    data = bytearray(map_message())
                    for _ in range(noise.randrange(4)):
                        data[noise.randrange(len(data))] = noise.randrange(256)
                    provider.send(bytes(data)[:noise.randrange(1, 53)], [self.one] * noise.randrange(3))
            except (BrokenPipeError, ConnectionResetError):
                pass
            provider.close()
        self.want_served(other, self.one, shm_offset=PAGE)
