/* test_region.c: the table of mappings: what is taken, refused, found, freed. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "region/region.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stages.h"

enum { PAGE = 4096, MIB = 1 << 20, PROVIDER = 5, OTHER = 6 };

static struct regions *regions;
static struct err err;

static void make(const struct regions_limits *limits)
{
	ck_assert_int_eq(regions_new(limits, &regions), 0);
	ck_assert_int_eq(regions_add(regions, 0, 64 * MIB, &err), 0);
	ck_assert_int_eq(regions_add(regions, 255, PAGE, &err), 0);
}

static const struct regions_limits no_limits = { SIZE_MAX, SIZE_MAX, UINT64_MAX, UINT64_MAX };

static int claim(uint64_t shm_offset, uint64_t len, uint64_t owner, struct mapping *mapping)
{
	struct mrshare_mmap mmap = { .shmid = 0, .shm_offset = shm_offset, .len = len, .flags = MRSHARE_MMAP_WRITABLE };
	return regions_claim(regions, &mmap, owner, mapping, &err);
}

static int find(uint64_t shm_offset, uint64_t len, uint64_t owner, struct mapping **ret)
{
	struct mrshare_mmap mmap = { .shmid = 0, .shm_offset = shm_offset, .len = len };
	return regions_find(regions, &mmap, owner, ret, &err);
}

START_TEST(claims_up_to_the_last_byte)
{
	struct mapping m[3];
	make(&no_limits);
	ck_assert_int_eq(claim(64 * MIB - PAGE, 2 * PAGE, PROVIDER, &m[0]), -ERANGE);
	ck_assert_int_eq(claim(64 * MIB, PAGE, PROVIDER, &m[0]), -ERANGE);
	ck_assert_int_eq(claim(0, UINT64_C(1) << 63, PROVIDER, &m[0]), -ERANGE);
	ck_assert_int_eq(claim(64 * MIB - PAGE, PAGE, PROVIDER, &m[0]), 0);
	ck_assert_int_eq(claim(0, 64 * MIB - PAGE, PROVIDER, &m[1]), 0);
	ck_assert_int_eq(claim(0, PAGE, PROVIDER, &m[2]), -EEXIST);
	ck_assert_uint_eq(regions_count(regions), 2);
	ck_assert_uint_ne(m[0].id, m[1].id);

	struct mrshare_mmap elsewhere = { .shmid = 1, .len = PAGE };
	ck_assert_int_eq(regions_claim(regions, &elsewhere, PROVIDER, &m[2], &err), -ENXIO);
	elsewhere.shmid = 255;
	ck_assert_int_eq(regions_claim(regions, &elsewhere, PROVIDER, &m[2], &err), 0);
	regions_free(&regions);
}
END_TEST

START_TEST(refuses_every_overlap)
{
	struct mapping taken, mapping;
	make(&no_limits);
	ck_assert_int_eq(claim(4 * PAGE, 4 * PAGE, PROVIDER, &taken), 0);
	for (uint64_t from = 0; from < 12; from++) {
		for (uint64_t pages = 1; pages < 12; pages++) {
			bool overlaps = from < 8 && from + pages > 4;
			int r = claim(from * PAGE, pages * PAGE, OTHER, &mapping);
			if (r != (overlaps ? -EEXIST : 0))
				ck_abort_msg("pages %d + %d: wanted %d, got %d", (int)from, (int)pages,
					overlaps ? -EEXIST : 0, r);
			if (r == 0)
				regions_release(regions, &mapping);
		}
	}
	ck_assert_uint_eq(regions_count(regions), 1);
	regions_free(&regions);
}
END_TEST

START_TEST(finds_exact_matches_of_the_owner_only)
{
	struct mapping mine, others, fixed, *found;
	make(&no_limits);
	ck_assert_int_eq(claim(0, 2 * PAGE, PROVIDER, &mine), 0);
	ck_assert_int_eq(claim(2 * PAGE, 2 * PAGE, OTHER, &others), 0);
	ck_assert_int_eq(claim(4 * PAGE, 2 * PAGE, 0, &fixed), 0);

	ck_assert_int_eq(find(0, PAGE, PROVIDER, &found), -ENOENT);
	ck_assert_int_eq(find(PAGE, PAGE, PROVIDER, &found), -ENOENT);
	ck_assert_int_eq(find(0, 4 * PAGE, PROVIDER, &found), -ENOENT);
	ck_assert_int_eq(find(6 * PAGE, PAGE, PROVIDER, &found), -ENOENT);
	ck_assert_int_eq(find(0, 65 * MIB, PROVIDER, &found), -ERANGE);
	ck_assert_int_eq(find(2 * PAGE, 2 * PAGE, PROVIDER, &found), -EPERM);
	ck_assert_int_eq(find(4 * PAGE, 2 * PAGE, PROVIDER, &found), -EPERM);
	ck_assert_int_eq(find(0, 2 * PAGE, PROVIDER, &found), 0);
	ck_assert_ptr_eq(found, &mine);

	regions_release(regions, &mine);
	ck_assert_int_eq(find(0, 2 * PAGE, PROVIDER, &found), -ENOENT);
	regions_free(&regions);
}
END_TEST

START_TEST(keeps_limits_in_total_and_each)
{
	struct mapping m[4];
	make(&(struct regions_limits){ 3, 2, 10 * PAGE, 6 * PAGE });
	ck_assert_int_eq(claim(0, 7 * PAGE, PROVIDER, &m[0]), -EDQUOT);
	ck_assert_int_eq(claim(0, 6 * PAGE, PROVIDER, &m[0]), 0);
	ck_assert_int_eq(claim(MIB, PAGE, PROVIDER, &m[1]), -EDQUOT);
	ck_assert_int_eq(claim(MIB, 5 * PAGE, OTHER, &m[1]), -EDQUOT);
	ck_assert_int_eq(claim(MIB, PAGE, OTHER, &m[1]), 0);
	ck_assert_int_eq(claim(2 * MIB, PAGE, OTHER, &m[2]), 0);
	ck_assert_int_eq(claim(3 * MIB, PAGE, OTHER, &m[3]), -EDQUOT);

	regions_release(regions, &m[0]);
	ck_assert_int_eq(claim(3 * MIB, PAGE, OTHER, &m[3]), -EDQUOT);
	ck_assert_int_eq(claim(3 * MIB, PAGE, PROVIDER, &m[3]), 0);
	regions_free(&regions);
}
END_TEST

START_TEST(places_at_the_offset_and_clears)
{
	struct mapping mapping;
	make(&no_limits);
	ck_assert_int_eq(claim(8 * PAGE, 2 * PAGE, PROVIDER, &mapping), 0);
	ck_assert_uint_eq((uintptr_t)mapping.addr % (UINT64_C(1) << 30), 8 * PAGE);

	int fd = memfd_create("unit", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd, 2 * PAGE), 0);
	ck_assert_int_eq(pwrite(fd, "text", 5, PAGE), 5);
	ck_assert_int_eq(mapping_place(&mapping, fd, PROT_READ | PROT_WRITE), 0);
	ck_assert_str_eq((char *)mapping.addr + PAGE, "text");

	ck_assert_int_eq(mapping_clear(&mapping), 0);
	unsigned char resident;
	ck_assert_int_eq(mincore(mapping.addr, PAGE, &resident), 0); /* still reserved */
	ck_assert_int_eq(write(fd, mapping.addr, 1), -1);            /* but inaccessible */
	ck_assert_int_eq(errno, EFAULT);
	close(fd);
	regions_free(&regions);
}
END_TEST

START_TEST(refuses_regions_that_cannot_be)
{
	ck_assert_int_eq(regions_new(&no_limits, &regions), 0);
	ck_assert_int_eq(regions_add(regions, 3, UINT64_C(1) << 62, &err), -ENOMEM);
	ck_assert_int_eq(regions_add(regions, 3, UINT64_MAX - PAGE + 1, &err), -ENOMEM);
	ck_assert_int_eq(regions_add(regions, 3, PAGE, &err), 0);
	ck_assert_int_eq(regions_add(regions, 3, PAGE, &err), -EEXIST);
	regions_free(&regions);
}
END_TEST

void add_region_tests(Suite *suite)
{
	TCase *tcase = tcase_create("region");
	tcase_add_test(tcase, claims_up_to_the_last_byte);
	tcase_add_test(tcase, refuses_every_overlap);
	tcase_add_test(tcase, finds_exact_matches_of_the_owner_only);
	tcase_add_test(tcase, keeps_limits_in_total_and_each);
	tcase_add_test(tcase, places_at_the_offset_and_clears);
	tcase_add_test(tcase, refuses_regions_that_cannot_be);
	suite_add_tcase(suite, tcase);
}
