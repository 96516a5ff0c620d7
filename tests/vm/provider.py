# A program that shares the memory in $MRSHARE_FD and does as it is told, a line at a time.
# SPDX-License-Identifier: BSD-2-Clause
import hashlib
import mmap
import os
import random
import sys

read_only = "--read-only" in sys.argv
memory = mmap.mmap(int(os.environ["MRSHARE_FD"]), int(os.environ["MRSHARE_LEN"]),
                   prot=mmap.PROT_READ | (0 if read_only else mmap.PROT_WRITE))
print("ready", flush=True)
for line in sys.stdin:
    word, *args = line.split(maxsplit=2)
    if word == "fill":
        block = random.Random(int(args[0])).randbytes(1 << 20)
        for at in range(0, len(memory), len(block)):
            piece = block[: len(memory) - at]
            memory[at : at + len(piece)] = at.to_bytes(8, "little") + piece[8:]
        print("filled", flush=True)
    elif word == "put":
        text = args[1].rstrip("\n").encode() + b"\0"
        memory[int(args[0]) : int(args[0]) + len(text)] = text
        print("put", flush=True)
    elif word == "get":
        print("got", memory[int(args[0]) : int(args[0]) + 200].split(b"\0")[0].decode(errors="replace"), flush=True)
    elif word == "sum":
        print("sum", hashlib.sha256(memory).hexdigest(), flush=True)
