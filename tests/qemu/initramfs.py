# initramfs.py: what a guest boots from, made from the files of a Debian root: its kernel, and an initramfs.
# SPDX-License-Identifier: BSD-2-Clause
#
# The guest shows its persistent memory as /dev/pmem0, then does as it is told on its second serial port: a
# line is a command of the shell; its output comes back, and after it, on a line of its own, "@end STATUS".
# Beside busybox it knows `load NAME`, for modules that not each test needs, and `await_pmem`.
#
# The kernel is Debian's own, but unpacked: where processors are emulated that is a quarter of a boot.
#
# As a program: initramfs.py ROOT VMLINUZ DIR, which makes DIR/initrd and DIR/vmlinux
import ctypes
import lzma
import os
import struct
import sys

# What `load` takes, and the modules that it loads.
MODULES = {"pmem": ("virtio_pmem", "nd_pmem"), "ext4": ("ext4",)}

INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /dev /mnt /proc /sys /tmp
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
$b --install -s /bin
export PATH=/bin
load() { for module in /modules/$1/*; do insmod $module; done; }
await_pmem() { n=0; until test -b /dev/pmem0; do n=$((n + 1)); test $n -lt 600 || return; sleep 0.1; done; }
load pmem
await_pmem || echo no /dev/pmem0 after 60 s
exec 3>&1 </dev/ttyS1 >/dev/ttyS1 2>&1
stty raw -echo
echo @ready
while IFS= read -r line; do
    eval "$line"
    printf '\\n@end %s\\n' $?
done
"""


def module_files(folder):
    """For each name that `load` takes the modules' paths below their folder, in the order of loading."""
    needs, found = {}, {}
    with open(os.path.join(folder, "modules.dep")) as lines:
        for line in lines:
            path, _, needed = line.rstrip("\n").partition(":")
            needs[path] = needed.split()
    for name, module in ((name, module) for name in MODULES for module in MODULES[name]):
        path = next((path for path in needs if os.path.basename(path).split(".ko")[0] == module), None)
        if path is None:
            sys.exit(f"initramfs.py: this kernel has no module {module}")
        # What a module needs is listed with the first to be loaded at the end.
        found.setdefault(name, []).extend(each for each in [*reversed(needs[path]), path]
                                          if not any(each in paths for paths in found.values()))
    return found


def content(path):
    with (lzma.open if path.endswith(".xz") else open)(path, "rb") as file:
        return file.read()


def entry(number, name, mode, data=b""):
    """A file in cpio's format "newc"."""
    name = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def initrd(root):
    """The initramfs, as bytes."""
    folder = os.path.join(root, "usr/lib/modules")
    folder = os.path.join(folder, os.listdir(folder)[0])
    files = [("bin", 0o040755, b""), ("modules", 0o040755, b""), ("init", 0o100755, INIT.encode()),
             ("bin/busybox", 0o100755, content(os.path.join(root, "usr/bin/busybox")))]
    for name, paths in module_files(folder).items():
        files.append((f"modules/{name}", 0o040755, b""))
        for number, path in enumerate(paths):
            module = os.path.basename(path).split(".ko")[0]
            files.append((f"modules/{name}/{number:02}-{module}.ko", 0o100644, content(os.path.join(folder, path))))
    entries = [entry(number, *file) for number, file in enumerate(files, 1)]
    return b"".join(entries) + entry(0, "TRAILER!!!", 0)


def vmlinux(path):
    """The kernel in a bzImage, which is zstd's: see the boot protocol in Linux' Documentation/arch/x86/boot.rst."""
    with open(path, "rb") as file:
        image = file.read()
    offset, size = struct.unpack_from("<II", image, 0x248)
    offset += (image[0x1f1] + 1) * 512
    packed, unpacked_size = image[offset:offset + size - 4], struct.unpack_from("<I", image, offset + size - 4)[0]
    out = ctypes.create_string_buffer(unpacked_size)
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    got = zstd.ZSTD_decompress(out, ctypes.c_size_t(len(out)), packed, ctypes.c_size_t(len(packed)))
    if got != unpacked_size or out[:4] != b"\x7fELF":
        sys.exit(f"initramfs.py: {path} holds no kernel that zstd unpacks")
    return out


def make(root, kernel, folder):
    """Makes both files."""
    with open(os.path.join(folder, "initrd"), "wb") as out:
        out.write(initrd(root))
    with open(os.path.join(folder, "vmlinux"), "wb") as out:
        out.write(vmlinux(kernel))


if __name__ == "__main__":
    make(*sys.argv[1:])
