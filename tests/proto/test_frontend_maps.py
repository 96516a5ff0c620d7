# test_frontend_maps.py: what is announced to front-ends, when, and how it is taken back.
# SPDX-License-Identifier: BSD-2-Clause
import os
import signal
import struct
import time

import frontend as fe
from frontend import FrontEndCase, state, u64
from wire import M, PAGE, VERSION

PATIENT = ("--revoke-timeout", "20")
HASTY = ("--revoke-timeout", "0.3")


class Maps(FrontEndCase):
    def maps(self, *offsets, length=PAGE):
        return [("map", 0, offset * length, length, 0) for offset in offsets]

    def test_order_and_kinds(self):
        """Static ones first, then by age; read-only ones never; none of a region that is not offered."""
        path = os.path.join(self.logs, "static")
        with open(path, "wb") as file:
            file.truncate(PAGE)
        served = self.serve("--map", f"shmid=0,path={path},shm-offset={9 * PAGE}", "--socket-path",
                            f"{self.front_path}2,shmid=0", regions=("0:64M", "1:64M"))
        provider = self.provider(served)
        for offset in (2, 0, 1):
            self.mapped_file(provider, offset * PAGE)
        self.mapped_file(provider, 3 * PAGE, flags=0)
        self.mapped_file(provider, shmid=1)
        self.want(self.maps(9, 2, 0, 1), self.running(path=self.front_path + "2").serve(), "what one region's front-end got")
        self.want(self.maps(9, 2, 0, 1) + [("map", 1, 0, PAGE, 0)], self.running().serve(), "what all regions' front-end got")

    def test_one_at_a_time_and_only_in_a_start(self):
        """The next request comes after the answer to the one before; none after the stop."""
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        for offset in range(3):
            self.mapped_file(provider, offset * PAGE)
        front_end = self.negotiated()
        self.want(False, front_end.pending(0.2), "a request before the start")
        self.want("0", front_end.start(base=0), "a start")
        first = front_end.take()
        self.want(False, front_end.pending(0.3), "a second request before the answer to the first")
        front_end.answer("map", front_end.decide(*first))
        second = front_end.take()
        self.want(0, front_end.stop(), "the base at the stop")
        front_end.answer("map", front_end.decide(*second))
        self.want(False, front_end.pending(0.3), "a request after the stop")
        self.want("0", front_end.start(), "a second start")
        self.want([("map", 0, 0, PAGE, 1), ("map", 0, PAGE, PAGE, 1), ("map", 0, 2 * PAGE, PAGE, 0)], front_end.serve(),
                  "what the second start brought")

    def test_stop_does_not_wait_case_12(self):
        """Case 12: a map is outstanding while the front-end stops the queue and waits."""
        served = self.serve()
        provider = self.provider(served)
        self.mapped_file(provider)
        front_end = self.running()
        request = front_end.take()
        begin = time.monotonic()
        self.want(0, front_end.stop(), "the base at the stop")
        self.want("0", front_end.start(), "a start with the answer still outstanding")
        self.want(True, time.monotonic() - begin < 2, "answered at once")
        self.want(False, front_end.pending(0.3), "a request before the answer")
        front_end.answer("map", front_end.decide(*request))
        self.want([("map", 0, 0, PAGE, 1)], front_end.serve(), "then it makes sure")

    def test_what_stops_announcing(self):
        """Each of the five ends a start by itself: nothing is asked and no flush is answered until the next one."""
        stops = (("SET_VRING_ENABLE 0", lambda front_end: front_end.call(fe.SET_VRING_ENABLE, state(0, 0)), "0"),
                 ("GET_VRING_BASE", lambda front_end: front_end.get(fe.GET_VRING_BASE, state(0, 0)), state(0, 0)),
                 ("RESET_OWNER", lambda front_end: front_end.call(fe.RESET_OWNER), "0"),
                 ("RESET_DEVICE", lambda front_end: front_end.call(fe.RESET_DEVICE), "0"),
                 ("SET_STATUS 0", lambda front_end: front_end.call(fe.SET_STATUS, u64(0)), "0"))
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        self.mapped_file(provider)
        for name, stop, answer in stops:
            front_end = self.running()
            self.want(self.maps(0), front_end.serve(), f"the start before {name}")
            mark = served.mark()
            self.want(answer, stop(front_end), f"the answer to {name}")
            front_end.started = False
            served.wait_log(rf"stopped \({name}\)", mark)
            self.mapped_file(provider, PAGE)
            self.want(False, front_end.pending(0.3), f"a request after {name}")
            self.want(None, front_end.flush(0.3), f"the answer to a flush after {name}")
            self.want("0", front_end.call(fe.SET_OWNER), "SET_OWNER")
            self.want("0", front_end.start(base=0), f"a start after {name}")
            self.want([("map", 0, 0, PAGE, 1), ("map", 0, PAGE, PAGE, 0)], front_end.serve(), f"the start after {name}")
            self.want(0, front_end.flush(), f"a flush of the start after {name}")
            front_end.close()
            self.want("0", provider.unmap(shm_offset=PAGE), "unmap when it has gone")

    def test_reboot(self):
        """After a reset of which nobody tells, all is announced again."""
        served = self.serve()
        provider = self.provider(served)
        self.mapped_file(provider, 0)
        self.mapped_file(provider, PAGE)
        front_end = self.running()
        self.want(self.maps(0, 1), front_end.serve(), "the first start")
        for _ in range(3):
            front_end.stop()
            front_end.reset()
            self.want("0", front_end.start(base=0), "a start")
            self.want(self.maps(0, 1), front_end.serve(), "the start after a reset")
        for _ in range(3):
            front_end.stop()
            self.want("0", front_end.start(), "a start")
            self.want([("map", 0, 0, PAGE, 1), ("map", 0, PAGE, PAGE, 1)], front_end.serve(), "the start after a pause")

    def test_changes_while_it_runs(self):
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        front_end = self.running()
        self.want([], front_end.serve(), "at a start without mappings")
        for _ in range(5):
            self.mapped_file(provider)
            self.want(self.maps(0), front_end.serve(), "a map while it runs")
            self.unmap_later(provider)
            self.want([("unmap", 0, 0, PAGE, 0)], front_end.serve(), "an unmap while it runs")
            self.want("0", provider.answer(10), "the provider's answer")

    def unmap_later(self, provider, offset=0, length=PAGE):
        provider.send(fe.message(10, struct.pack("=B7xQQQQ", 0, 0, offset, length, 0)))

    def test_removal_waits_for_the_answer(self):
        """The provider is answered when the front-end has answered, and not before."""
        _, provider, front_end = self.shared(*PATIENT)
        self.unmap_later(provider)
        request = front_end.take()
        self.want("silence", provider.answer(10, 0.3), "the provider's answer meanwhile")
        front_end.answer("unmap", front_end.decide(*request))
        self.want("0", provider.answer(10), "the provider's answer")
        self.mapped_file(provider)

    def test_removal_that_is_refused_counts_as_done(self):
        """0 and 1 both mean that it is gone."""
        served, provider, front_end = self.shared(*PATIENT)
        front_end.reset()
        self.unmap_later(provider)
        self.want([("unmap", 0, 0, PAGE, 1)], front_end.serve(), "the unmap of what a reset took")
        self.want("0", provider.answer(10), "the provider's answer")

    def want_held(self, provider, served, why):
        """An unmap that ends in -EINPROGRESS, and what follows from it."""
        begin = time.monotonic()
        self.want("-EINPROGRESS", provider.unmap(), f"unmap, {why}")
        self.want(True, time.monotonic() - begin < 3, "answered after the time that front-ends have")
        self.want("-EINPROGRESS", provider.unmap(), f"unmap again, {why}")
        self.want("-EEXIST", provider.map(self.memfd()), f"map into its range, {why}")
        served.wait_log(f"front-end .* {why}, has it still")

    def want_free(self, provider):
        self.wait_until(lambda: provider.map(self.memfd()) == "0", "map into the range", "0 in the end")

    def test_removal_while_stopped(self):
        """A front-end that is stopped: -EINPROGRESS; the range is free when its next start has confirmed."""
        served, provider, front_end = self.shared(*HASTY)
        front_end.stop()
        self.want_held(provider, served, "which is stopped")
        self.want(False, front_end.pending(), "a request while it is stopped")
        self.want("0", front_end.start(), "a start")
        self.want([("unmap", 0, 0, PAGE, 0)], front_end.serve(), "what the start brought")
        served.wait_log("its range is free")
        self.want_free(provider)
        self.want([("map", 0, 0, PAGE, 0)], front_end.serve(), "the next mapping there")

    def test_removal_while_stopped_found_reset(self):
        served, provider, front_end = self.shared(*HASTY)
        front_end.stop()
        front_end.reset()
        self.want_held(provider, served, "which is stopped")
        self.want("0", front_end.start(base=0), "a start")
        self.want([("unmap", 0, 0, PAGE, 1)], front_end.serve(), "what the start brought")
        self.want_free(provider)

    def test_removal_without_an_answer(self):
        """A front-end that never answers: -EINPROGRESS; the range is free when it hangs up."""
        served, provider, front_end = self.shared(*HASTY)
        self.want_held(provider, served, "which has not answered")
        self.want("unmap", front_end.take()[0], "what it was asked")
        front_end.close()
        self.want_free(provider)

    def test_removal_while_the_map_is_unanswered(self):
        served = self.serve(*HASTY)
        provider = self.provider(served)
        self.mapped_file(provider)
        front_end = self.running()
        request = front_end.take()
        self.want_held(provider, served, "which has not answered")
        front_end.answer("map", front_end.decide(*request))
        self.want([("unmap", 0, 0, PAGE, 0)], front_end.serve(), "what follows the late answer")
        self.want_free(provider)

    def test_provider_dies_while_stopped(self):
        """The mapping of a provider that is gone stays reserved as well."""
        served = self.serve(*HASTY)
        provider, other = self.provider(served), self.provider(served)
        self.mapped_file(provider)
        front_end = self.running()
        front_end.serve()
        front_end.stop()
        provider.close()
        served.wait_log("has it still")
        self.want("-EEXIST", other.map(self.memfd()), "another provider's map there")
        self.want("0", front_end.start(), "a start")
        self.want([("unmap", 0, 0, PAGE, 0)], front_end.serve(), "what the start brought")
        self.want_free(other)

    def test_two_front_ends(self):
        """Each has what it should, at its own time; a removal waits for both."""
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        one, two = self.running(), self.negotiated()
        self.mapped_file(provider)
        self.want(self.maps(0), one.serve(), "the one that runs")
        self.want(False, two.pending(0.1), "a request to the one that does not")
        self.want("0", two.start(base=0), "its start")
        self.want(self.maps(0), two.serve(), "then")
        self.unmap_later(provider)
        self.want([("unmap", 0, 0, PAGE, 0)], one.serve(), "the one")
        self.want("silence", provider.answer(10, 0.2), "the provider's answer before the other's")
        self.want([("unmap", 0, 0, PAGE, 0)], two.serve(), "the other")
        self.want("0", provider.answer(10), "the provider's answer")

    def test_hang_up_case_17(self):
        """Case 17: it hangs up at any moment, a new one comes: served, nothing of the old one is left."""
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        self.mapped_file(provider)
        settled = served.fds()
        for moment in range(6):
            front_end = self.connect()
            if moment > 0:
                front_end.negotiate()
            if moment > 1:
                self.want("0", front_end.start(base=0), "a start")
            if moment > 2:
                request = front_end.take()
            if moment > 3:
                front_end.answer("map", front_end.decide(*request))
            if moment > 4:
                front_end.post_flush()
                front_end.ring()
            front_end.close()
        self.wait_until(lambda: served.fds() == settled, "open fds", "those before", served.fds)
        front_end = self.running()
        self.want(self.maps(0), front_end.serve(), "what a new one got")
        front_end.close()
        self.want("0", provider.unmap(), "unmap")

    def test_nine_and_more_case_20(self):
        """Case 20: what does not fit into the table is not announced, and said; its turn comes."""
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        for offset in range(11):
            self.mapped_file(provider, offset * PAGE)
        front_end = self.running()
        self.want(self.maps(*range(7)), front_end.serve(), "with one entry of its own")
        served.wait_log("4 mappings are not announced")
        self.unmap_later(provider, 0)
        self.want([("unmap", 0, 0, PAGE, 0), *self.maps(7)], front_end.serve(), "when one has gone")
        self.want("0", provider.answer(10), "the provider's answer")
        self.want("0", front_end.set_table(), "the table with what it holds")
        front_end.stop()
        self.want("0", front_end.start(), "a start after a pause")
        self.want([("map", 0, offset * PAGE, PAGE, 1) for offset in range(1, 8)], front_end.serve(), "after a pause")
        front_end.stop()
        front_end.reset()
        extra = [(1 << 30, fe.RAM_SIZE, 1 << 43, 0), (1 << 31, fe.RAM_SIZE, 1 << 44, 0)]
        self.want("0", front_end.start(base=0, extra=extra, extra_fds=[front_end.ram_fd] * 2), "a start with more of its own")
        got = front_end.serve()
        self.want({("unmap", offset) for offset in (6, 7)} | {("map", offset) for offset in range(1, 6)},
                  {(name, at // PAGE) for name, _, at, _, _ in got}, "with three entries of its own")
        self.want(5, len(front_end.mapped), "mappings that it has")

    def test_own_files_in_the_table(self):
        """A file of a mapping in the table is known as ours and not mapped."""
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        fd = self.mapped_file(provider, size=M)
        front_end = self.running()
        front_end.serve()
        self.want("0", front_end.set_table(), "a table with our file")
        self.want(1, len(served.maps_of(fd)), "places where the file is mapped")
        self.want(0, front_end.flush(), "a flush")

    def test_shmem_without_its_needs_case_14(self):
        """Case 14: SHMEM without REPLY_ACK, BACKEND_REQ or BACKEND_SEND_FD: nothing is announced, and the log says so."""
        served = self.serve(*HASTY)
        provider = self.provider(served)
        self.mapped_file(provider)
        for missing in (fe.P_REPLY_ACK, fe.P_BACKEND_REQ, fe.P_SEND_FD, fe.P_SHMEM):
            mark = served.mark()
            front_end = self.connect()
            front_end.send(fe.SET_PROTOCOL_FEATURES, u64(fe.PROTOCOL & ~missing), flags=VERSION)
            front_end.send(fe.SET_OWNER, flags=VERSION)
            if missing != fe.P_BACKEND_REQ:
                front_end.send(fe.SET_BACKEND_REQ_FD, b"", [front_end.back_given.fileno()], VERSION)
            front_end.send(fe.SET_FEATURES, u64(fe.FEATURES), flags=VERSION)
            front_end.send(fe.SET_MEM_TABLE, fe.table(front_end.entry()), [front_end.ram_fd], VERSION)
            front_end.send(fe.SET_VRING_ENABLE, state(0, 1), flags=VERSION)
            self.want_alive(front_end)
            self.want(False, front_end.pending(0.2), f"a request without {missing:#x}")
            served.wait_log("nothing is announced|gets no memory", mark)
            front_end.close()
        self.want("0", provider.unmap(), "unmap")

    def test_wrong_answers(self):
        """What is no answer to the request ends the front-end; a lost channel ends the announcing."""
        served = self.serve(*HASTY)
        provider = self.provider(served)
        self.mapped_file(provider)
        wrong = (struct.pack("=IIIQ", 10, 5, 8, 0), struct.pack("=IIIQ", 9, 1, 8, 0), struct.pack("=IIIQ", 9, 6, 8, 0),
                 struct.pack("=III", 9, 5, 0), struct.pack("=IIIQQ", 9, 5, 16, 0, 0), struct.pack("=III", 9, 5, 1 << 20))
        for data in wrong:
            front_end = self.running()
            os.close(front_end.take()[4])
            front_end.back.sendall(data)
            self.wait_until(lambda: front_end.barrier() == "closed" or served.log_since(0).count("channel has ended"),
                            f"the end upon {data.hex()}", "one")
            front_end.close()
        front_end = self.running()
        front_end.serve()
        front_end.answer("map", 0)
        self.wait_until(lambda: front_end.barrier() == "closed", "the end upon an answer to nothing", "one")
        front_end = self.running()
        os.close(front_end.take()[4])
        for byte in struct.pack("=IIIQ", 9, 5, 8, 0):
            front_end.back.sendall(bytes([byte]))
        self.want_alive(front_end, "one that answers byte by byte")
        served.wait_log("announced .answer 0")
        front_end.back.close()
        served.wait_log("info: .*back-end request channel has ended")
        self.want_alive(front_end, "one whose back-end channel is closed")
        front_end.stop()
        self.want("0", front_end.start(), "a start without a channel")
        served.wait_log("nothing is announced to it")
        front_end.close()
        self.want("0", provider.unmap(), "unmap")

    def test_fds_on_the_back_end_channel(self):
        """Fds that come with answers are closed."""
        served = self.serve()
        provider = self.provider(served)
        self.mapped_file(provider)
        front_end = self.running()
        os.close(front_end.take()[4])
        before = served.fd_count()
        fe.socket.send_fds(front_end.back, [struct.pack("=IIIQ", 9, 5, 8, 0)], [front_end.kick] * 200)
        served.wait_log("announced .answer 0")
        self.wait_until(lambda: served.fd_count() <= before, "open fds", before, served.fd_count)
        self.want(0, front_end.flush(), "a flush")

    def test_fds_with_what_is_no_answer(self):
        """Fds that come with bytes that end the back-end channel are closed, as often as that is done."""
        served = self.serve()
        front_end = self.negotiated()
        before = served.fd_count()
        for header in (struct.pack("=III", 9, 0, 8), struct.pack("=III", 9, 5, 1 << 31)) * 5:
            fe.socket.send_fds(front_end.back, [header], [front_end.kick] * 250)
            front_end.back.close()
            front_end.back, given = fe.socket.socketpair()
            with given:
                self.wait_until(lambda: front_end.call(fe.SET_BACKEND_REQ_FD, b"", [given.fileno()]) == "0",
                                "another back-end channel", "0")
            self.wait_until(lambda: served.fd_count() <= before, "open fds", before, served.fd_count)
        served.wait_log("channel has ended: its message is no vhost-user reply")
        self.want_alive(front_end)

    def test_fds_on_the_last_byte_of_an_answer(self):
        """An answer that came byte by byte, each with fds, counts when its last byte is there."""
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        for offset in range(3):
            self.mapped_file(provider, offset * PAGE)
        front_end = self.running()
        before = served.fd_count()
        for offset in range(3):
            os.close(front_end.take()[4])
            answer = struct.pack("=IIIQ", 9, 5, 8, 0)
            for i in range(len(answer)):
                if offset == 0 or (offset == 1 and i % 7 == 0) or i == len(answer) - 1:
                    fe.socket.send_fds(front_end.back, [answer[i:i + 1]], [front_end.kick] * (1 + i * 10))
                else:
                    front_end.back.sendall(answer[i:i + 1])
            served.wait_log(rf"\[{offset * PAGE:#x}, .*announced" if offset else r"\[0, .*announced")
        self.wait_until(lambda: served.fd_count() <= before, "open fds", before, served.fd_count)

    def test_nothing_is_asked_while_a_request_is_on_its_way(self):
        """QEMU does not survive a MAP or UNMAP that meets its stop: none goes out while some of a request has arrived."""
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        front_end = self.running()
        stop = fe.message(fe.SET_VRING_ENABLE, state(0, 0), VERSION | fe.NEED_REPLY)
        for cut in (1, 12, len(stop) - 1):
            front_end.socket.sendall(stop[:cut])
            self.mapped_file(provider)
            self.want(False, front_end.pending(0.3), f"a map with {cut} bytes of a stop sent")
            front_end.socket.sendall(stop[cut:])
            self.want(bytes(8), front_end.reply(fe.SET_VRING_ENABLE), "the stop's acknowledgement")
            self.want(False, front_end.pending(0.3), "a map after the stop")
            self.want("0", provider.unmap(), "unmap of what was not announced")
            self.want("0", front_end.call(fe.SET_VRING_ENABLE, state(0, 1)), "a start")
        front_end.socket.sendall(fe.message(fe.GET_FEATURES, b"", VERSION)[:5])
        self.mapped_file(provider)
        self.want(False, front_end.pending(0.3), "a map with a part of another request sent")
        front_end.socket.sendall(fe.message(fe.GET_FEATURES, b"", VERSION)[5:])
        self.want(u64(fe.FEATURES), front_end.reply(fe.GET_FEATURES), "its reply")
        self.want(self.maps(0), front_end.serve(), "what is announced then")

    def test_a_refused_map(self):
        served = self.serve(*PATIENT)
        provider = self.provider(served)
        self.mapped_file(provider)
        front_end = self.running()
        os.close(front_end.take()[4])
        front_end.answer("map", 1)
        served.wait_log("warning: front-end .*refused by it")
        self.want(False, front_end.pending(0.2), "a second try in the same start")
        self.want("0", provider.unmap(), "unmap of what no front-end has")

    def test_holes_are_said(self):
        served = self.serve()
        front_end = self.running()
        served.wait_log("of the 64 MiB of region 0 it has 0 bytes")
        provider = self.provider(served)
        self.mapped_file(provider, size=64 * M)
        front_end.serve()
        mark = served.mark()
        front_end.stop()
        self.want("0", front_end.start(), "a start")
        served.wait_log("started", mark)
        self.want(False, ": the rest reads as zeros" in served.log_since(mark), "a hole where there is none")
        # One whose table has no room for the mapping has a hole all the same.
        mark = served.mark()
        full = self.negotiated()
        extra = [((i + 1) << 41, PAGE, (i + 1) << 42, 0) for i in range(7)]
        self.want("0", full.start(base=0, extra=extra, extra_fds=[self.memfd()] * 7), "a start with a full table")
        self.want([], full.serve(), "what is announced")
        served.wait_log("front-end 2 .*of the 64 MiB of region 0 it has 0 bytes", mark)

    def test_static_ones_that_a_reload_changes(self):
        """What a reload adds is announced, what it removes is taken back; a front-end that is stopped keeps its range."""
        def line(name, at):
            path = os.path.join(self.logs, name)
            with open(path, "ab") as file:
                file.truncate(PAGE)
            return f"shmid=0,path={path},shm-offset={at * PAGE}\n"

        def reload(*lines):
            with open(map_file, "w") as file:
                file.write("".join(lines))
            mark = served.mark()
            served.send_signal(signal.SIGHUP)
            return mark
        map_file = os.path.join(self.logs, "maps")
        with open(map_file, "w") as file:
            file.write(line("a", 0))
        served = self.serve(*HASTY, "--map-file", map_file)
        front_end = self.running()
        self.want(self.maps(0), front_end.serve(), "what the first start brought")
        mark = reload(line("a", 0), line("b", 1))
        served.wait_log("1 added, 0 removed", mark)
        self.want(self.maps(1), front_end.serve(), "what a reload brought")
        mark = reload(line("b", 1))
        self.want([("unmap", 0, 0, PAGE, 0)], front_end.serve(1), "what the next one took back")
        served.wait_log("0 added, 1 removed", mark)

        self.want(0, front_end.stop(), "the base at the stop")
        mark = reload(line("a", 1))
        served.wait_log("which is stopped, has it still", mark)
        served.wait_log("overlaps a mapping in region 0 .*, which is static; it is removed, but front-end 1 .* has it still", mark)
        served.wait_log("0 added, 0 removed, 1 failed, 0 in all, 1 no longer, but held by a guest", mark)
        self.want("0", front_end.start(), "a second start")
        self.want([("unmap", 0, PAGE, PAGE, 0)], front_end.serve(), "what the second start brought")
        served.wait_log("no front-end has mapping 2 any more: its range is free")
        mark = reload(line("a", 1))
        served.wait_log("1 added, 0 removed, 0 failed", mark)
        self.want(self.maps(1), front_end.serve(), "what is there when the range is free")
        reload(line("a", 0))
        self.want([("unmap", 0, PAGE, PAGE, 0)] + self.maps(0), front_end.serve(1), "what the last one changed")
