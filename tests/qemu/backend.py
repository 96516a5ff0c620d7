# backend.py: a back-end of a few lines that knows one device, one mapping and no bad day; it shows that tests can fail.
# SPDX-License-Identifier: BSD-2-Clause
import mmap
import os
import select
import socket
import struct
import threading

VERSION, REPLY, NEED_REPLY = 1, 4, 8

GET_FEATURES, SET_FEATURES, SET_MEM_TABLE, SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE = 1, 2, 5, 8, 9, 10
GET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL, GET_PROTOCOL_FEATURES, GET_QUEUE_NUM = 11, 12, 13, 15, 17
SET_VRING_ENABLE, SET_BACKEND_REQ_FD, GET_CONFIG, GET_SHMEM_CONFIG, SHMEM_MAP = 18, 21, 24, 44, 9

# VIRTIO_PMEM_F_SHMEM_REGION, VHOST_USER_F_PROTOCOL_FEATURES, VIRTIO_F_VERSION_1
FEATURES = 1 << 0 | 1 << 30 | 1 << 32
# MQ, REPLY_ACK, BACKEND_REQ, CONFIG, BACKEND_SEND_FD, SHMEM
PROTOCOL_FEATURES = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 10 | 1 << 22


class Backend(threading.Thread):
    """Serves one front-end. Maps all of the file at its first start, and at each one if it is to do so `again`."""

    def __init__(self, path, fd, size, again):
        super().__init__(daemon=True)
        self.fd, self.size, self.again = fd, size, again
        self.announced = 0
        self.memory, self.ring, self.kick, self.call, self.channel = [], {}, None, None, None
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen()
        self.start()

    def run(self):
        with self.listener:
            self.front_end = self.listener.accept()[0]
        with self.front_end:
            while self.turn():
                pass

    def turn(self):
        sources = [source for source in (self.front_end, self.channel, self.kick) if source is not None]
        ready = select.select(sources, [], [])[0]
        if self.kick in ready:
            os.read(self.kick, 8)
            self.flushes()
        if self.channel in ready:
            self.channel.recv(64)  # the answer to a map
        if self.front_end not in ready:
            return True
        header, fds, _, _ = socket.recv_fds(self.front_end, 12, 8)
        if not header:
            return False
        request, flags, size = struct.unpack("=III", header)
        body = self.front_end.recv(size, socket.MSG_WAITALL) if size else b""
        answer = self.handle(request, body, fds)
        if answer is None and flags & NEED_REPLY:
            answer = bytes(8)
        if answer is not None:
            self.front_end.sendall(struct.pack("=III", request, VERSION | REPLY, len(answer)) + answer)
        if request == SET_VRING_ENABLE and body[4] and (self.again or not self.announced):
            self.announced += 1
            message = struct.pack("=IIIB7xQQQQ", SHMEM_MAP, VERSION | NEED_REPLY, 40, 0, 0, 0, self.size, 1)
            socket.send_fds(self.channel, [message], [self.fd])
        return True

    def handle(self, request, body, fds):
        """Its answer, where the request has one of its own."""
        if request == GET_FEATURES:
            return struct.pack("=Q", FEATURES)
        if request == GET_PROTOCOL_FEATURES:
            return struct.pack("=Q", PROTOCOL_FEATURES)
        if request == GET_QUEUE_NUM:
            return struct.pack("=Q", 1)
        if request == GET_CONFIG:
            offset, size, _ = struct.unpack_from("=III", body)
            return body[:12] + struct.pack("<QQ", 0, self.size).ljust(256, b"\0")[offset:offset + size]
        if request == GET_SHMEM_CONFIG:
            return struct.pack("=II256Q", 1, 0, self.size, *[0] * 255)
        if request == GET_VRING_BASE:
            self.kick = None
            return struct.pack("=II", 0, self.ring["next"])
        if request == SET_BACKEND_REQ_FD:
            self.channel = socket.socket(fileno=fds[0])
        elif request == SET_MEM_TABLE:
            entries = struct.iter_unpack("=QQQQ", body[8:])
            self.memory = [(entry, mmap.mmap(fd, entry[1], offset=entry[3])) for entry, fd in zip(entries, fds)]
            for fd in fds:
                os.close(fd)
        elif request == SET_VRING_NUM:
            self.ring["size"] = struct.unpack("=II", body)[1]
        elif request == SET_VRING_ADDR:
            self.ring["addresses"] = struct.unpack_from("=QQQ", body, 8)
        elif request == SET_VRING_BASE:
            self.ring["next"] = struct.unpack("=II", body)[1]
        elif request == SET_VRING_KICK:
            self.kick = fds[0]
        elif request == SET_VRING_CALL:
            self.call = fds[0] if fds else None
        return None

    def at(self, address, which):
        """Memory and offset of a guest physical address (0) or an address of the front-end (2)."""
        for entry, memory in self.memory:
            if entry[which] <= address < entry[which] + entry[1]:
                return memory, address - entry[which]
        raise ValueError(f"no memory at {address:#x}")

    def flushes(self):
        """Answers each by 0: two descriptors, of which the second takes the answer."""
        size = self.ring["size"]
        (table, table_at), (used, used_at), (avail, avail_at) = (self.at(address, 2) for address in self.ring["addresses"])
        while self.ring["next"] != struct.unpack_from("<H", avail, avail_at + 2)[0]:
            head = struct.unpack_from("<H", avail, avail_at + 4 + 2 * (self.ring["next"] % size))[0]
            second = struct.unpack_from("<QIHH", table, table_at + 16 * head)[3]
            memory, offset = self.at(struct.unpack_from("<Q", table, table_at + 16 * second)[0], 0)
            struct.pack_into("<I", memory, offset, 0)
            index = struct.unpack_from("<H", used, used_at + 2)[0]
            struct.pack_into("<II", used, used_at + 4 + 8 * (index % size), head, 4)
            struct.pack_into("<H", used, used_at + 2, (index + 1) & 0xffff)
            self.ring["next"] = (self.ring["next"] + 1) & 0xffff
        if self.call is not None:
            os.write(self.call, struct.pack("=Q", 1))
