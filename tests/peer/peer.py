# peer.py: a peer of mrshared that shares no code with it, written from mrshare-protocol(7).
# SPDX-License-Identifier: BSD-2-Clause
"""
peer.py HOST SOURCE [write] [versions LOWEST HIGHEST]; then a command a line on standard input:
    list | read SHMID OFFSET SIZE | sum SHMID OFFSET SIZE | write SHMID OFFSET TEXT | add SHMID OFFSET N
"""
import hashlib
import os
import select
import sys
import time

import frames
import verbs

PORT, RECEIVES, OPERATION, ACK = 7471, 4, 100, 101  # the last two: numbers of work requests
CATALOG = -1  # in the place of a mapping's id
ACK_AT = RECEIVES * frames.FRAME_MAX
DATA_AT, PIECE = ACK_AT + frames.FRAME_MAX, 1 << 20
MIN_RNR_TIMER = 12


class Refused(Exception):
    """What was asked for cannot be, and the connection goes on."""


def say(*words):
    print(*words, flush=True)


class Peer:
    def __init__(self, host, source):
        self.wire = verbs.Connection(host, PORT, source, DATA_AT + PIECE)
        self.welcome = None
        self.entries, self.read_at = [], 0  # the views and their generation
        self.sequence, self.newest = 0, 0  # of the last notice
        self.owed = None  # the notice whose ack waits for an operation
        self.operation = None  # the mapping that is being accessed, or CATALOG
        self.heard = time.monotonic()

    def connect(self, private_data):
        for number in range(RECEIVES):
            self.wire.post_receive(number, number * frames.FRAME_MAX, frames.FRAME_MAX)
        self.wire.connect(private_data)
        event, name, status, data = self.wire.next_event()
        if event == verbs.REJECTED:
            raise Refused("rejected %s: %s" % (frames.reject(data) or ("by another", f"reason {status}")))
        if event != verbs.ESTABLISHED:
            raise Refused(f"{name}, status {status}")
        self.interval = frames.accept(data).interval
        self.wire.set_min_rnr_timer(MIN_RNR_TIMER)
        self.heard = time.monotonic()
        while not self.welcome:
            self.turn()
        self.refresh()

    # ---- what comes in

    def turn(self, also=()):
        """Handles what has come, or waits for it; returns those of `also` that are readable."""
        completion = self.wire.poll()
        if completion:
            self.complete(completion)
            return ()
        patience = self.heard + 3 * self.interval - time.monotonic()
        if patience <= 0:
            raise frames.Broken("nothing was heard for three intervals")
        ready, _, _ = select.select([self.wire.completion_fd, self.wire.channel[0], *also], [], [], patience)
        if self.wire.channel[0] in ready:
            raise frames.Broken(self.wire.next_event()[1])
        if self.wire.completion_fd in ready:
            self.wire.take_completion_event()
        return [one for one in also if one in ready]

    def complete(self, completion):
        number = completion.wr_id
        if completion.status:
            raise frames.Broken(verbs.ibverbs.ibv_wc_status_str(completion.status).decode())
        if number < RECEIVES:
            at = number * frames.FRAME_MAX
            data = self.wire.memory[at : at + completion.byte_len]
            self.wire.post_receive(number, at, frames.FRAME_MAX)
            self.heard = time.monotonic()
            self.take_frame(frames.frame(data))
        elif number == OPERATION:
            self.operation = None
            self.acknowledge()

    def take_frame(self, frame):
        if isinstance(frame, frames.Welcome) == bool(self.welcome):
            raise frames.Broken("a frame that is not due")
        if not self.welcome:
            self.welcome, self.newest = frame, frame.generation
            say("welcome", frame.rights, "generation", frame.generation, "interval", self.interval)
        elif frame.sequence != self.sequence:
            self.take_notice(frame)

    def take_notice(self, notice):
        if notice.sequence != (self.sequence + 1) % (1 << 32) or notice.generation < self.newest or self.owed:
            raise frames.Broken(f"notice {notice.sequence} is not due")
        gone = notice.withdrawn
        say("notice", notice.sequence, "generation", notice.generation, "withdrawn",
            "all" if gone is None else " ".join(map(str, gone)) or "-")
        self.sequence, self.newest = notice.sequence, notice.generation
        if notice.generation > self.read_at:
            self.entries = [e for e in self.entries if gone is not None and e.mapping not in gone]
        self.owed = notice
        self.acknowledge()

    def is_withdrawn(self, mapping):
        return mapping not in (None, CATALOG) and all(entry.mapping != mapping for entry in self.entries)

    def acknowledge(self):
        """The promise, unless an operation on what has gone is still on the wire."""
        if not self.owed or self.is_withdrawn(self.operation):
            return
        frame = frames.ack(self.owed.sequence, self.owed.generation)
        self.wire.memory[ACK_AT : ACK_AT + len(frame)] = frame
        self.wire.post(ACK, verbs.SEND, ACK_AT, len(frame))
        say("ack", self.owed.sequence)
        self.owed = None

    # ---- what goes out

    def rdma(self, mapping, opcode, size, **remote):
        atomic = opcode in (verbs.FETCH_AND_ADD, verbs.COMPARE_AND_SWAP)
        wr = verbs.Remote(atomic=verbs.Atomic(**remote)) if atomic else verbs.Remote(rdma=verbs.Rdma(**remote))
        if self.is_withdrawn(mapping):
            raise Refused("removed meanwhile")
        self.wire.post(OPERATION, opcode, DATA_AT, size, wr)
        self.operation = mapping
        while self.operation is not None:
            self.turn()

    def read_view(self, mapping, view, offset, size):
        data = b""
        while len(data) < size:
            piece = min(size - len(data), PIECE)
            self.rdma(mapping, verbs.RDMA_READ, piece, remote_addr=view.addr + offset + len(data), rkey=view.rkey)
            data += self.wire.memory[DATA_AT : DATA_AT + piece]
        return data

    def refresh(self):
        """Reads the catalog; after 8 torn reads the next notice makes another attempt."""
        for _ in range(8):
            try:
                catalog = self.welcome.catalog
                root = frames.root(self.read_view(CATALOG, catalog, 0, frames.ROOT_SIZE), catalog.size)
                if root.generation < self.newest:
                    continue
                entries = frames.slot(self.read_view(CATALOG, catalog, root.slot, root.used), root)
            except frames.Torn:
                continue
            if self.newest <= root.generation:
                self.entries, self.read_at = entries, root.generation
                return

    def parts(self, shmid, offset, size, right):
        """The extents of a range: (entry, offset in its view, size)."""
        while size:
            for entry in self.entries:
                inside = offset - entry.shm_offset
                if entry.shmid == shmid and 0 <= inside < entry.view.size:
                    break
            else:
                raise Refused(f"nothing is mapped at {offset:#x}")
            if not entry.rights & self.welcome.rights & right:
                raise Refused("not granted")
            part = min(size, entry.view.size - inside)
            yield entry, inside, part
            offset, size = offset + part, size - part

    def read(self, shmid, offset, size):
        return b"".join(self.read_view(entry.mapping, entry.view, inside, part)
                        for entry, inside, part in self.parts(shmid, offset, size, frames.READ))

    def write(self, shmid, offset, data):
        done = 0
        for entry, inside, part in self.parts(shmid, offset, len(data), frames.WRITE):
            for at in range(0, part, PIECE):
                piece = data[done : done + min(PIECE, part - at)]
                self.wire.memory[DATA_AT : DATA_AT + len(piece)] = piece
                self.rdma(entry.mapping, verbs.RDMA_WRITE, len(piece), remote_addr=entry.view.addr + inside + at, rkey=entry.view.rkey)
                done += len(piece)

    def add(self, shmid, offset, number):
        ((entry, inside, _),) = self.parts(shmid, offset, 8, frames.ATOMIC)
        self.rdma(entry.mapping, verbs.FETCH_AND_ADD, 8, remote_addr=entry.view.addr + inside, rkey=entry.view.rkey,
                  compare_add=number)
        return int.from_bytes(self.wire.memory[DATA_AT : DATA_AT + 8], sys.byteorder)

    def execute(self, word, shmid="0", offset="0", last="0"):
        shmid, offset = int(shmid), int(offset, 0)
        if word == "list":
            views = [f"{e.shmid}:{e.shm_offset:#x}+{e.view.size} rights {e.rights} mapping {e.mapping} {e.view.device}" for e in self.entries]
            say(f"views {len(views)} generation {self.read_at}:", "; ".join(views))
        elif word == "read":
            say("read", self.read(shmid, offset, int(last, 0)).split(b"\0")[0].decode(errors="replace"))
        elif word == "sum":
            say("sum", hashlib.sha256(self.read(shmid, offset, int(last, 0))).hexdigest())
        elif word == "write":
            self.write(shmid, offset, last.encode() + b"\0")
            say("written")
        elif word == "add":
            say("was", self.add(shmid, offset, int(last, 0)))

    def serve(self):
        """Until standard input ends."""
        text = b""
        while True:
            if self.newest > self.read_at:
                self.refresh()
            if not self.turn([0]):
                continue
            more = os.read(0, 4096)
            if not more:
                return
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                try:
                    self.execute(*line.decode().split(maxsplit=3))
                except Refused as refused:
                    say("refused:", refused)


def main(host, source, *flags):
    peer = Peer(host, source)
    versions = map(int, flags[flags.index("versions") + 1 :][:2]) if "versions" in flags else ()
    try:
        peer.connect(frames.request(*versions, wants_write="write" in flags))
        peer.serve()
    except Refused as refused:
        say(refused)
    except frames.Broken as broken:
        say("disconnected:", broken)
    finally:
        peer.wire.close()


main(*sys.argv[1:])
