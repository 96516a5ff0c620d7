# test_waits.py: who is slow, stuck or hostile delays nobody else.
# SPDX-License-Identifier: BSD-2-Clause
import os
import socket
import struct
import time

from case import Case
from wire import BARRIER, M, MAP, PAGE, UNMAP, map_message, message, payload, unmap_message


class Waits(Case):
    def want_refused_or_parked(self, wanted, provider, request, what):
        """Whose fd takes long to close may wait for its answer. Whether it was answered."""
        got = provider.answer(request, seconds=0.3)
        if got != "silence":
            self.want(wanted, got, f"request {request} with {what}")
        return got != "silence"


class Stalled(Waits):
    """Providers that stop in the middle, or never read."""

    def setUp(self):
        super().setUp()
        self.served = self.start("--max-providers", "60", "--max-mappings", "100")
        self.other = self.provider(self.served)
        self.one = self.memfd(name="one")

    def want_others_served(self):
        self.want_served(self.other, self.one, shm_offset=8 * M)

    def test_in_the_middle_of_a_message_case_3(self):
        """Case 3: stalled after 5 of 12 bytes and at other places: nobody else waits, and it may go on later."""
        stalled = []
        for cut in (1, 5, 11, 12, 13, 30, 51):
            provider = self.provider(self.served)
            provider.send(map_message(shm_offset=cut * PAGE)[:cut], [self.one])
            stalled.append((cut, provider))
        self.want_others_served()
        self.want_idle(self.served)
        for cut, provider in stalled:
            provider.send(map_message(shm_offset=cut * PAGE)[cut:])
            self.want("0", provider.answer(MAP), f"the rest after {cut} bytes")

    def test_many_connections_that_say_nothing(self):
        many = [self.provider(self.served) for _ in range(50)]
        self.want_others_served()
        self.want_idle(self.served)
        for provider in many:
            self.want("-EOPNOTSUPP", provider.barrier(), "a question after a long silence")

    def fill(self, data, fds=()):
        """A provider that sends and never reads, until nobody takes any more. How many messages were sent whole."""
        provider = self.provider(self.served)
        provider.socket.setblocking(False)
        count, quiet_since = 0, time.monotonic()
        while count < 100000 and time.monotonic() - quiet_since < 0.3:
            try:
                if fds:
                    socket.send_fds(provider.socket, [data], fds)
                else:
                    provider.socket.send(data)
                count, quiet_since = count + 1, time.monotonic()
            except (BlockingIOError, OSError):
                time.sleep(0.005)
        provider.socket.setblocking(True)
        return provider, count

    def test_replies_never_read(self):
        """Thousands of questions, no answer read: nothing more is executed for it, memory stays flat, others are served."""
        self.want_others_served()
        before = self.served.status("VmRSS")
        provider, count = self.fill(unmap_message())
        self.want(True, 100 < count < 100000, f"messages until nobody took more: {count}")
        self.want_others_served()
        self.want_idle(self.served)
        grown = self.served.status("VmRSS") - before
        self.want(True, grown < 8 * M, f"memory flat (it grew by {grown})")
        for index in range(count):
            self.want("-ENOENT", provider.answer(UNMAP), f"answer {index} of {count}, read late")
        self.want("-EOPNOTSUPP", provider.barrier(), "a question afterwards")

    def test_replies_never_read_with_fds(self):
        provider, count = self.fill(map_message(shmid=9), [self.one])
        self.want(True, self.served.fds()["/memfd:one (deleted)"] <= 33, "fds read ahead: at most 32 messages' and one in progress")
        self.want_others_served()
        self.want_idle(self.served)
        for index in range(min(count, 100)):
            self.want("-ENXIO", provider.answer(MAP), f"answer {index} of {count}, read late")
        provider.close()
        self.wait_until(lambda: not self.served.fds()["/memfd:one (deleted)"], "fds of a provider that left", "closed")

    def test_nothing_is_executed_while_a_reply_is_unwritten(self):
        """With its socket full of unread replies a provider's map is not carried out."""
        # What fits is about half in replies and half in requests: somewhat more than half of it blocks the replies.
        _, fits = self.fill(message(BARRIER))
        provider = self.provider(self.served)
        count = fits // 2 + 60
        for _ in range(count):
            provider.send(message(BARRIER))
        provider.send(map_message(), [self.one])
        self.want_others_served()
        time.sleep(0.1)
        self.want(0, len(self.served.maps_of(self.one)), "mappings while replies are unread")
        for index in range(count):
            self.want("-EOPNOTSUPP", provider.answer(BARRIER), f"answer {index}, read late")
        self.want("0", provider.answer(MAP), "the map's answer, read late")

    def test_replies_never_read_then_closed(self):
        for _ in range(5):
            provider, _ = self.fill(message(BARRIER))
            provider.close()
        self.want_others_served()

    def test_flood(self):
        """A provider that asks as fast as it can, in big writes, with answers read: others get their turn."""
        flood = self.provider(self.served)
        batch = b"".join([unmap_message()] * 200)
        end = time.monotonic() + 1
        turns = 0
        while time.monotonic() < end:
            flood.send(batch)
            self.want_served(self.other, rounds=1)
            flood.read(20 * 200)
            turns += 1
        self.want(True, turns > 3, f"turns in a second: {turns}")

    def lingering(self, listener):
        """A TCP socket whose last close blocks for 20 s, and the one that it sends to."""
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 20))
        sender.setblocking(False)
        try:
            while True:
                sender.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        sender.setblocking(True)
        return sender, receiver

    def test_unread_messages_hold_a_socket_that_lingers_case_35(self):
        """Case 35: fds of messages that were never read, when their connection is dropped, closed or refused."""
        for ending in ("dropped", "closed"):
            listener = socket.create_server(("127.0.0.1", 0))
            sender, receiver = self.lingering(listener)
            provider = self.provider(self.served)
            self.served.stop()
            if ending == "dropped":
                provider.send(message(MAP, payload(), 2))  # of a version that is none
            else:
                for _ in range(40):
                    provider.send(map_message(), [self.one, self.one])
            provider.send(map_message(), [sender.fileno()])
            os.close(sender.detach())
            if ending == "closed":
                provider.close()
            self.served.go_on()
            self.want_others_served()
            receiver.close()
            listener.close()

    def test_end_is_seen_while_a_refused_fd_lingers_case_35(self):
        """Case 35: a provider ends while its refused fd is being closed: its mappings go at once."""
        listener = socket.create_server(("127.0.0.1", 0))
        sender, receiver = self.lingering(listener)
        provider = self.provider(self.served)
        self.want("0", provider.map(self.one), "the map")
        self.served.stop()
        provider.send(map_message(), [sender.fileno()])
        os.close(sender.detach())
        self.served.go_on()
        self.want("-EEXIST", provider.answer(MAP), "the map of the same range")
        provider.close()
        self.wait_until(lambda: not self.served.maps_of(self.one), "its mapping", "gone within 5 s", seconds=5)
        receiver.close()
        listener.close()

    def test_socket_that_lingers_case_35(self):
        """Case 35: a TCP socket with SO_LINGER, its close blocks for 20 s: refused, nobody waits."""
        for request, copies, wanted in ((MAP, 1, "-ENODEV"), (MAP, 2, "-EBADF"), (UNMAP, 1, "-EINVAL"), (0x55, 1, "-EOPNOTSUPP")):
            listener = socket.create_server(("127.0.0.1", 0))
            sender, receiver = self.lingering(listener)
            provider = self.provider(self.served)
            # Ours is closed first, so the daemon's close is the one that lingers.
            self.served.stop()
            provider.send(message(request, payload()), [sender.fileno()] * copies)
            os.close(sender.detach())
            self.served.go_on()
            answered = self.want_refused_or_parked(wanted, provider, request, "a socket that lingers")
            self.want_others_served()
            receiver.close()
            if not answered:
                self.want(wanted, provider.answer(request), f"request {request}, the answer when the socket lingers no more")
            listener.close()

    def test_lingering_sockets_and_a_dead_provider_case_35(self):
        """Case 35: fds read ahead that linger when their provider is gone."""
        listener = socket.create_server(("127.0.0.1", 0))
        provider = self.provider(self.served)
        receivers = []
        self.served.stop()
        for _ in range(3):
            sender, receiver = self.lingering(listener)
            receivers.append(receiver)
            provider.send(map_message(), [sender.fileno()])
            os.close(sender.detach())
        provider.close()
        self.served.go_on()
        self.want_others_served()
        for each in (*receivers, listener):
            each.close()


class Hung(Waits):
    """A FUSE server that never answers. Its mount ends before the test does: what hangs goes on then."""

    def begin(self, *options, ends=False):
        """`ends`: the daemon has to end while the server hangs, so no end of a process may ask it anything."""
        self.mounted = self.fuse(flush=not ends)
        self.served = self.start(*options, leaks=not ends)
        self.other = self.provider(self.served)
        self.one = self.memfd(name="one")
        return self.mounted

    def open(self):
        return self.keep(self.mounted.open())

    def want_others_served(self):
        self.want_served(self.other, self.one, shm_offset=8 * M)

    def test_map_case_35(self):
        """Case 35: that provider waits, everybody else is served; when the server answers it gets its answer."""
        with self.begin() as mounted:
            me, file = self.provider(self.served), self.open()
            mounted.pause()
            me.send(map_message(access=0), [file])
            self.want("silence", me.answer(MAP, seconds=0.3), "an answer while the server hangs")
            self.want_others_served()
            self.want_served(self.provider(self.served), self.one, shm_offset=9 * M)
            self.want_idle(self.served)
            mounted.go_on()
            self.want("-ENODEV", me.answer(MAP), "the answer when the server goes on")
            self.want("-EOPNOTSUPP", me.barrier(), "a question afterwards")

    def test_map_with_any_filesystem(self):
        with self.begin("--any-filesystem") as mounted:
            me, file = self.provider(self.served), self.open()
            mounted.pause()
            me.send(map_message(access=0), [file])
            self.want("silence", me.answer(MAP, seconds=0.3), "an answer while the server hangs")
            self.want_others_served()
            self.want("-EEXIST", self.other.map(self.one), "a map of the range being registered")
            mounted.go_on()
            self.want("0", me.answer(MAP), "the answer when the server goes on")
            self.want("0", me.unmap(), "unmap")

    def test_provider_leaves_meanwhile(self):
        """Its range stays taken until the job has ended and was undone; then it is free."""
        with self.begin("--any-filesystem") as mounted:
            me, file = self.provider(self.served), self.open()
            mounted.pause()
            me.send(map_message(access=0), [file])
            self.want("silence", me.answer(MAP, seconds=0.2), "an answer while the server hangs")
            me.close()
            time.sleep(0.1)
            self.want("-EEXIST", self.other.map(self.one), "a map of a range whose job hangs")
            self.want_others_served()
            mounted.go_on()
            self.wait_until(lambda: self.other.map(self.one) == "0", "the range when the server goes on", "free")
            self.want(1, len(self.served.maps_of(self.one)), "mappings of the next one")

    def test_read_ahead_is_bounded_and_a_close_is_seen(self):
        """While a job hangs up to 32 messages are read ahead with their fds; a close is seen, their fds are closed."""
        with self.begin("--any-filesystem") as mounted:
            me, file = self.provider(self.served), self.open()
            mounted.pause()
            me.send(map_message(access=0), [file])
            for index in range(60):
                me.send(map_message(shm_offset=(index + 1) * PAGE), [self.one])
            self.wait_until(lambda: self.served.fds()["/memfd:one (deleted)"] >= 32, "fds read ahead", "32",
                            lambda: self.served.fds()["/memfd:one (deleted)"])
            time.sleep(0.2)
            self.want(True, self.served.fds()["/memfd:one (deleted)"] <= 33, "no more than 32 whole messages and one begun")
            self.want(True, me.unread() > 0, "the rest is not read")
            self.want(0, len(self.served.maps_of(self.one)), "what was mapped of what was read ahead")
            self.want_idle(self.served)
            self.want_others_served()
            mounted.go_on()
            self.want(["0"] * 61, [me.answer(MAP) for _ in range(61)], "the answers when the server goes on")
            self.want("-EOPNOTSUPP", me.barrier(), "a question afterwards")

            mounted.pause()
            me.send(map_message(access=0, shm_offset=M), [file])
            for index in range(20):
                me.send(map_message(shm_offset=2 * M + index * PAGE), [self.one])
            self.wait_until(lambda: self.served.fds()["/memfd:one (deleted)"] == 80, "fds read ahead", "20 more than 60",
                            lambda: self.served.fds()["/memfd:one (deleted)"])
            me.close()
            self.wait_until(lambda: self.served.fds()["/memfd:one (deleted)"] == 0, "fds of the one that left, its job still hanging", 0,
                            lambda: self.served.fds()["/memfd:one (deleted)"])
            mounted.go_on()

    def test_refused_fd_whose_close_hangs_case_35(self):
        """Case 35: refused on the loop, before any worker: closing its fd waits for the server, others do not."""
        for request, copies, fields, wanted in ((MAP, 2, {}, "-EBADF"), (UNMAP, 1, {}, "-EINVAL"), (0x55, 1, {}, "-EOPNOTSUPP"),
                                                (MAP, 1, {"shmid": 9}, "-ENXIO"), (MAP, 1, {"flags": 2}, "-EINVAL")):
            with self.begin() as mounted:
                me, file = self.provider(self.served), self.open()
                mounted.pause()
                me.send(message(request, payload(**fields)), [file] * copies)
                answered = self.want_refused_or_parked(wanted, me, request, "a file that hangs")
                self.want_others_served()
                mounted.go_on()
                if not answered:
                    self.want(wanted, me.answer(request), f"request {request}, the answer when the server goes on")
            self.finish()

    def test_close_with_fds_that_hang_case_35(self):
        """Case 35: framing lost, and a message cut off by the end of its connection, each with a file that hangs."""
        with self.begin() as mounted:
            file = self.open()
            mounted.pause()
            for data in (message(MAP, payload(), 2), message(MAP, size=5000), map_message()[:20], map_message()[:5]):
                me = self.provider(self.served)
                me.send(data, [file])
                self.want(True, me.drained(), "the message was read")
                me.close()
                self.want_others_served()

    def finish(self):
        """The next round begins with nothing of this one."""
        for provider in self.providers:
            provider.close()
        self.served.settled()
        self.served.end()
        os.rmdir(self.mounted.mount_point)

    def test_many_refused_fds_whose_close_hangs(self):
        """One provider, many closes that hang: the others have their workers all the same."""
        with self.begin() as mounted:
            me, file = self.provider(self.served), self.open()
            mounted.pause()
            for _ in range(20):
                me.send(map_message(), [file, file])
            time.sleep(0.2)
            self.want_others_served()
            self.want_idle(self.served)
            mounted.go_on()
            self.want(["-EBADF"] * 20, [me.answer(MAP) for _ in range(20)], "the answers when the server goes on")

    def test_many_providers_hang(self):
        """A job that is stuck for 10 s keeps its thread to itself: then the others go on."""
        with self.begin() as mounted:
            stuck = [self.provider(self.served) for _ in range(12)]
            files = [self.open() for _ in stuck]
            mounted.pause()
            for index, (provider, file) in enumerate(zip(stuck, files)):
                provider.send(map_message(access=0, shm_offset=index * PAGE), [file])
            self.other.send(map_message(shm_offset=8 * M), [self.one])
            self.want("0", self.other.answer(MAP, seconds=60), "another's map while twelve hang")
            self.want("0", self.other.unmap(shm_offset=8 * M), "its unmap")
            mounted.go_on()
            for provider in stuck:
                self.want("-ENODEV", provider.answer(MAP), "the answer when the server goes on")

    def test_end_with_a_hung_worker_case_21(self):
        """Case 21: SIGTERM while a worker hangs: it ends all the same, with 0."""
        with self.begin(ends=True) as mounted:
            me, file = self.provider(self.served), self.open()
            mounted.pause()
            me.send(map_message(access=0), [file])
            self.want("silence", me.answer(MAP, seconds=0.2), "an answer while the server hangs")
            self.served.end(seconds=5)

    def test_second_signal_with_a_hung_worker(self):
        with self.begin("--any-filesystem", ends=True) as mounted:
            me, file = self.provider(self.served), self.open()
            mounted.pause()
            me.send(map_message(access=0), [file])
            self.want("silence", me.answer(MAP, seconds=0.2), "an answer while the server hangs")
            self.served.send_signal(2)
            self.served.send_signal(15)
            self.served.wait(2)
