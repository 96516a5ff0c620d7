# test_ranges.py: regions and the ranges in them: bounds, overlaps, exact matches, owners.
# SPDX-License-Identifier: BSD-2-Clause
import os

from case import SIZE, Case
from wire import G, K, M, PAGE, T, UNMAP, payload


class Ranges(Case):
    def test_region_bounds_case_7(self):
        """Case 7: the last page fits, two pages there do not."""
        served = self.start()
        me = self.provider(served)
        one = self.memfd(2 * PAGE)
        self.want("-ERANGE", me.map(one, shm_offset=SIZE - PAGE, len=2 * PAGE), "two pages at the last page")
        self.want("-ERANGE", me.map(one, shm_offset=SIZE), "a page at the end")
        self.want("-ERANGE", me.map(one, shm_offset=SIZE + PAGE), "a page beyond the end")
        self.want("-ERANGE", me.map(one, shm_offset=2**64 - 2 * PAGE), "a page at the end of all addresses")
        self.want("-ERANGE", me.map(one, len=SIZE + PAGE), "a page more than the region")
        self.want("-ERANGE", me.unmap(shm_offset=SIZE), "unmap at the end")
        self.want("-ERANGE", me.unmap(shm_offset=SIZE - PAGE, len=2 * PAGE), "unmap over the end")
        self.want("0", me.map(one, shm_offset=SIZE - PAGE), "the last page")
        self.want("0", me.unmap(shm_offset=SIZE - PAGE), "unmap of the last page")
        whole = self.memfd(SIZE)
        self.want("0", me.map(whole, len=SIZE), "the whole region")
        self.want("-EEXIST", me.map(one, shm_offset=SIZE - PAGE), "a page in a full region")
        self.want("0", me.unmap(len=SIZE), "unmap of the whole region")

    def test_each_shmid(self):
        served = self.start(regions=("0:64M", "7:2M", "255:4K"))
        me = self.provider(served)
        one = self.memfd()
        for shmid in range(256):
            self.want("0" if shmid in (0, 7, 255) else "-ENXIO", me.map(one, shmid=shmid), f"map at shmid {shmid}")
            self.want("0" if shmid in (0, 7, 255) else "-ENXIO", me.unmap(shmid=shmid), f"unmap at shmid {shmid}")
        self.want("-ERANGE", me.map(one, shmid=255, shm_offset=PAGE), "beyond a region of one page")

    def test_sizes_as_people_write_them(self):
        for text, size in (("4096", 4096), ("4K", 4 * K), ("0x1000", 4096), ("1M", M), ("1024K", M), ("0x100000", M), ("3G", 3 * G),
                           ("1T", T), ("0x10K", 16 * K)):
            served = self.start("--shmem", f"3:{text}", regions=(), path=self.path + text)
            me = self.provider(served)
            one = self.memfd()
            self.want("-ERANGE", me.map(one, shmid=3, shm_offset=size), f"{text}: a page at its end")
            self.want("0", me.map(one, shmid=3, shm_offset=size - PAGE), f"{text}: its last page")
            me.close()

    def test_exact_match_case_10(self):
        """Case 10: half of a mapping, two neighbours as one, overlap by a page, the same twice: refused, nothing changed."""
        served = self.start()
        me = self.provider(served)
        file = self.memfd(16 * PAGE)
        for page in (8, 12):
            self.want("0", me.map(file, shm_offset=page * PAGE, len=4 * PAGE), f"map at page {page}")
        for start, length, what in ((8, 2, "the first half"), (10, 2, "the second half"), (8, 8, "two neighbours as one"),
                                    (9, 2, "the middle"), (7, 4, "one page early"), (9, 4, "one page late"),
                                    (7, 5, "one page more before"), (8, 5, "one page more behind"), (0, 4, "nothing there"), (16, 4, "behind both"), (0, 1024, "everything")):
            self.want("-ENOENT", me.unmap(shm_offset=start * PAGE, len=length * PAGE), f"unmap: {what}")
        for start, length, what in ((8, 4, "the same twice"), (5, 4, "the first page"), (15, 4, "the last page"),
                                    (11, 2, "over the border"), (7, 10, "around both"), (9, 1, "inside"), (8, 8, "both")):
            self.want("-EEXIST", me.map(file, shm_offset=start * PAGE, len=length * PAGE), f"map: {what}")
        self.want(["rw-s", "rw-s"], [entry.access for entry in served.maps_of(file)], "the mappings afterwards")
        self.want("0", me.map(file, shm_offset=4 * PAGE, len=4 * PAGE), "map right before")
        self.want("0", me.map(file, shm_offset=16 * PAGE, len=4 * PAGE), "map right behind")
        for page in (8, 4, 16, 12):
            self.want("0", me.unmap(shm_offset=page * PAGE, len=4 * PAGE), f"unmap at page {page}")
            self.want("-ENOENT", me.unmap(shm_offset=page * PAGE, len=4 * PAGE), f"unmap at page {page} again")

    def test_regions_do_not_share_offsets(self):
        served = self.start(regions=("0:1M", "1:1M"))
        me = self.provider(served)
        one = self.memfd()
        self.want("0", me.map(one, shmid=0), "map in region 0")
        self.want("0", me.map(one, shmid=1), "map at the same offset in region 1")
        self.want("0", me.unmap(shmid=0), "unmap in region 0")
        self.want("-ENOENT", me.unmap(shmid=0), "unmap in region 0 again")
        self.want("0", me.unmap(shmid=1), "unmap in region 1")

    def test_owner(self):
        """Only who mapped it may unmap it; an exact match comes before the owner."""
        served = self.start()
        one, two = self.provider(served), self.provider(served)
        file = self.memfd(4 * PAGE)
        self.want("0", one.map(file, len=2 * PAGE), "the first provider's map")
        self.want("-EPERM", two.unmap(len=2 * PAGE), "the other's unmap")
        self.want("-ENOENT", two.unmap(), "the other's unmap of its half")
        self.want("-EEXIST", two.map(file, shm_offset=PAGE), "the other's map over it")
        self.want("nothing", two.quietly(UNMAP, payload(len=2 * PAGE)), "the other's unmap, no reply asked")
        self.want("0", two.map(file, shm_offset=2 * PAGE), "the other's map beside it")
        self.want("-EPERM", one.unmap(shm_offset=2 * PAGE), "the first one's unmap of it")
        two.close()
        self.wait_until(lambda: one.map(file, shm_offset=2 * PAGE) == "0", "the range of a provider that left", "free")
        self.want("0", one.unmap(len=2 * PAGE), "the owner's unmap")

    def test_mapped_where_it_belongs(self):
        """Regions are aligned to 1 GiB; the file lies at base + shm_offset; the reservation is whole again after the unmap."""
        served = self.start(regions=("0:64M", "1:3M", "2:1G"))
        me = self.provider(served)
        for shmid, size in ((0, 64 * M), (1, 3 * M), (2, G)):
            file = self.memfd(8 * PAGE, name=f"region{shmid}")
            for shm_offset, fd_offset, length, access in ((0, 0, PAGE, 1), (M, 4 * PAGE, 2 * PAGE, 1),
                                                          (size - 3 * PAGE, PAGE, 3 * PAGE, 0)):
                fields = {"shmid": shmid, "shm_offset": shm_offset, "fd_offset": fd_offset, "len": length, "flags": access}
                self.want("0", me.map(file, **fields), f"map {fields}")
                base = self.base_of(served, file, shm_offset)
                entry = served.maps_of(file)[0]
                self.want(0, base % G, f"base of region {shmid}, modulo 1 GiB")
                self.want((base + shm_offset + length, "rw-s" if access else "r--s", fd_offset), (entry.end, entry.access, entry.offset),
                          f"end, access and file offset in {fields}")
                self.want(True, served.is_reserved(base, shm_offset), f"reserved before the mapping: {fields}")
                self.want(True, served.is_reserved(entry.end, size - shm_offset - length), f"reserved behind the mapping: {fields}")
                self.want("0", me.unmap(**fields), f"unmap {fields}")
                self.want(True, served.is_reserved(base, size), f"the whole region reserved after the unmap: {fields}")

    def test_shared_with_the_provider(self):
        """What the provider writes shows in the region, and the other way round."""
        served = self.start()
        me = self.provider(served)
        file = self.memfd(4 * PAGE)
        self.want("0", me.map(file, shm_offset=2 * M, fd_offset=PAGE, len=2 * PAGE), "map")
        base = self.base_of(served, file, 2 * M)
        os.pwrite(file, b"written by the provider", PAGE + 100)
        self.want(b"written by the provider", served.read_memory(base + 2 * M + 100, 23), "what the region shows")
        served.write_memory(base + 2 * M + PAGE, b"written in the region")
        self.want(b"written in the region", os.pread(file, 21, 2 * PAGE), "what the provider's memory shows")
        self.want("0", me.unmap(shm_offset=2 * M, len=2 * PAGE), "unmap")
        self.want("0", me.map(file, shm_offset=2 * M, len=2 * PAGE, fd_offset=2 * PAGE), "map of other pages there")
        self.want(b"written in the region", served.read_memory(base + 2 * M, 21), "what the region shows of them")

    def test_one_file_many_times(self):
        served = self.start()
        me = self.provider(served)
        file = self.memfd(PAGE)
        for page in range(0, 200, 2):
            self.want("0", me.map(file, shm_offset=page * PAGE), f"map at page {page}")
        self.want(100, len(served.maps_of(file)), "mappings")
        for page in range(0, 200, 2):
            self.want("0", me.unmap(shm_offset=page * PAGE), f"unmap at page {page}")
        self.want(0, len(served.maps_of(file)), "mappings afterwards")
