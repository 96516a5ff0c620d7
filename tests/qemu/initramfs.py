# initramfs.py: makes the initramfs of a guest from the files of a Debian root: busybox, a few modules, an agent.
# SPDX-License-Identifier: BSD-2-Clause
#
# The guest shows its persistent memory as /dev/pmem0, then does as it is told on its second serial port: a
# line is a command of the shell; its output comes back, and after it, on a line of its own, "@end STATUS".
#
# As a program: initramfs.py ROOT FILE
import lzma
import os
import sys

MODULES = ("virtio_pmem", "nd_pmem", "ext4")

INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /dev /mnt /proc /sys /tmp
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
$b --install -s /bin
export PATH=/bin
for module in /modules/*; do insmod $module; done
exec 3>&1 </dev/ttyS1 >/dev/ttyS1 2>&1
stty raw -echo
echo @ready
while IFS= read -r line; do
    eval "$line"
    printf '\\n@end %s\\n' $?
done
"""


def module_files(folder):
    """The modules' paths below their folder, in the order of loading."""
    needs, found = {}, []
    with open(os.path.join(folder, "modules.dep")) as lines:
        for line in lines:
            path, _, needed = line.rstrip("\n").partition(":")
            needs[path] = needed.split()
    for module in MODULES:
        path = next((path for path in needs if os.path.basename(path).split(".ko")[0] == module), None)
        if path is None:
            sys.exit(f"initramfs.py: this kernel has no module {module}")
        # What a module needs is listed with the first to be loaded at the end.
        for each in [*reversed(needs[path]), path]:
            if each not in found:
                found.append(each)
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


def build(root):
    """The initramfs, as bytes."""
    folder = os.path.join(root, "usr/lib/modules")
    folder = os.path.join(folder, os.listdir(folder)[0])
    files = [("bin", 0o040755, b""), ("modules", 0o040755, b""), ("init", 0o100755, INIT.encode()),
             ("bin/busybox", 0o100755, content(os.path.join(root, "usr/bin/busybox")))]
    for number, path in enumerate(module_files(folder)):
        name = os.path.basename(path).split(".ko")[0]
        files.append((f"modules/{number:02}-{name}.ko", 0o100644, content(os.path.join(folder, path))))
    entries = [entry(number, *file) for number, file in enumerate(files, 1)]
    return b"".join(entries) + entry(0, "TRAILER!!!", 0)


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as out:
        out.write(build(sys.argv[1]))
