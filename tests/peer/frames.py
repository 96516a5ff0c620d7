# frames.py: the bytes of the peer protocol, as mrshare-protocol(7) has them.
# SPDX-License-Identifier: BSD-2-Clause
# Written from that page alone. What breaks its bounds raises Broken: the peer disconnects.
import os
import struct
from collections import namedtuple

MAGIC, CATALOG_MAGIC, VERSION = b"MRS1", b"MRSC", 1
READ, WRITE, ATOMIC = 1, 2, 4  # rights
WANTS_WRITE, AUTHENTICATION = 1, 1
WELCOME, NOTICE, ACK = 0x7B5BB1BF5F2022F8, 0x1991E0DAFA93E02A, 0x80B31A1A8BB3E8B0
FRAME_MAX, ROOT_SIZE, ENTRY_MIN, WITHDRAWN_MAX, ALL = 256, 64, 52, 16, 0xFFFFFFFF
REJECTIONS = {1: "MALFORMED", 2: "VERSION", 3: "DENIED", 4: "FULL", 5: "RESOURCES", 6: "REGISTERING"}

Accept = namedtuple("Accept", "version interval daemon nonce")
View = namedtuple("View", "rkey addr size device")
Welcome = namedtuple("Welcome", "rights generation catalog")
Notice = namedtuple("Notice", "sequence generation slot used crc withdrawn")  # withdrawn: ids, or None: everything
Root = namedtuple("Root", "generation slot used views crc")
Entry = namedtuple("Entry", "shmid rights shm_offset mapping view")


class Broken(Exception):
    pass


class Torn(Exception):
    """The daemon wrote while we read: start anew."""


def take(layout, data, at=0):
    if len(data) < at + struct.calcsize("<" + layout):
        raise Broken(f"{len(data)} bytes are too short")
    return struct.unpack_from("<" + layout, data, at)


def crc_table():
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        yield byte


CRC_TABLE = tuple(crc_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def request(lowest=VERSION, highest=VERSION, wants_write=False, nonce=None):
    return struct.pack("<4sHHI16s28x", MAGIC, lowest, highest, WANTS_WRITE if wants_write else 0, nonce or os.urandom(16))


def accept(data):
    magic, version, flags, interval, _, daemon, nonce = take("4sHHHH16s16s", data)
    if magic != MAGIC or version != VERSION or flags & AUTHENTICATION or interval == 0:
        raise Broken(f"no accept for us: {data[:44].hex()}")
    return Accept(version, interval, daemon, nonce)


def reject(data):
    """(name of the code, text); None where it is another's rejection."""
    if len(data) < 8 or data[:4] != MAGIC:
        return None
    code, size = take("HH", data, 4)
    text = data[8 : 8 + min(size, 140)].decode(errors="replace")
    return REJECTIONS.get(code, str(code)), "".join(c if c.isprintable() else "?" for c in text)


def view(data, at=0):
    """(view, where it ends)"""
    rkey, addr, size, length = take("IQQQ", data, at)
    end = at + 28 + length
    if length > 63 or end > len(data) or addr + size >= 1 << 64:
        raise Broken("no view")
    try:
        device = data[at + 28 : end].decode()
    except UnicodeDecodeError:
        raise Broken("a device name that is no UTF-8") from None
    if "\0" in device:
        raise Broken("a device name with a NUL")
    return View(rkey, addr, size, device), end


def frame(data):
    (kind,) = take("Q", data)
    if kind == WELCOME:
        rights, generation = take("IQ", data, 8)
        catalog, _ = view(data, 20)
        if catalog.size < ROOT_SIZE:
            raise Broken("a catalog too small for its root")
        return Welcome(rights, generation, catalog)
    if kind == NOTICE:
        sequence, count, generation, slot, used, crc = take("IIQQII", data, 8)
        if slot < ROOT_SIZE or WITHDRAWN_MAX < count < ALL:
            raise Broken("a notice with a field out of bounds")
        return Notice(sequence, generation, slot, used, crc, None if count == ALL else take(f"{count}Q", data, 40))
    raise Broken(f"a frame of type {kind:#x} is not for us")


def ack(sequence, generation):
    return struct.pack("<QIIQ", ACK, sequence, 0, generation)


def root(data, catalog_size):
    magic, version, size, generation, slot, used, views, crc, own_crc = take("4sHHQQIIII", data)
    if magic != CATALOG_MAGIC:
        raise Broken("no catalog there")
    if own_crc != crc32c(data[:36] + bytes(4) + data[40:64]):
        raise Torn
    if version != VERSION or size < ROOT_SIZE or slot < size or slot + used > catalog_size or views > used // ENTRY_MIN:
        raise Broken("no catalog of ours")
    return Root(generation, slot, used, views, crc)


def entry(data, at):
    """(entry, where it ends)"""
    size, shmid, rights, _, shm_offset, mapping = take("IBBHQQ", data, at)
    extent, end = view(data, at + 24)
    if size < ENTRY_MIN or end > at + size or at + size > len(data) or shm_offset + extent.size >= 1 << 64:
        raise Broken("an entry that is none")
    return Entry(shmid, rights, shm_offset, mapping, extent), at + size


def slot(data, top):
    if crc32c(data) != top.crc:
        raise Torn
    entries, at = [], 0
    for _ in range(top.views):
        found, at = entry(data, at)
        entries.append(found)
    if at != len(data):
        raise Broken("bytes behind the last entry")
    return sorted(entries)
