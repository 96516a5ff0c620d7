/* driver.c: the driver's side of a virtqueue, in a memfd that tests do with as they like. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include "driver.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static bool is_third(void *data, dev_t dev, ino_t ino)
{
	unsigned int *asked = data;
	return (*asked)++ == 2;
}

struct memory *driver_table(const struct driver *driver)
{
	const struct memory_entry entries[] = {
		{ DRIVER_GUEST, DRIVER_SIZE, DRIVER_USER, 0 },
		{ DRIVER_SECOND, DRIVER_SIZE, DRIVER_USER + 2 * DRIVER_SIZE, DRIVER_SIZE },
		{ DRIVER_OWN, DRIVER_SIZE, DRIVER_USER + 4 * DRIVER_SIZE, 0 },
	};
	int fds[3];
	for (unsigned int i = 0; i < 3; i++)
		fds[i] = fcntl(driver->fd, F_DUPFD_CLOEXEC, 3);
	struct memory *memory;
	struct err err;
	unsigned int asked = 0;
	ck_assert_int_eq(memory_new(entries, 3, fds, false, &memory, &err), 0);
	ck_assert_int_eq(memory_look(memory, &err), 0);
	memory_mark_own(memory, is_third, &asked);
	ck_assert_int_eq(memory_map(memory, UINT64_MAX, &err), 0);
	return memory;
}

struct vring_addrs driver_addrs(const struct driver *driver, enum memory_kind kind)
{
	uint64_t start = kind == MEMORY_GUEST_ADDR ? DRIVER_GUEST : DRIVER_USER;
	return (struct vring_addrs){
		.desc = start + (uint64_t)((uint8_t *)driver->ring.desc - driver->bytes),
		.avail = start + (uint64_t)((uint8_t *)driver->ring.avail - driver->bytes),
		.used = start + (uint64_t)((uint8_t *)driver->ring.used - driver->bytes),
	};
}

void driver_start(struct driver *driver)
{
	struct err err;
	struct vring_addrs addrs = driver_addrs(driver, MEMORY_GUEST_ADDR);
	ck_assert_int_eq(vring_set_addrs(driver->vq, &addrs, &err), 0);
	ck_assert_int_eq(vring_start(driver->vq, driver->memory, MEMORY_GUEST_ADDR, driver->features, &err), 0);
}

void driver_new(struct driver *driver, unsigned int num, uint64_t features)
{
	struct err err;
	*driver = (struct driver){ .fd = memfd_create("guest", MFD_CLOEXEC), .features = features };
	ck_assert_int_eq(ftruncate(driver->fd, 2 * DRIVER_SIZE), 0);
	driver->bytes = mmap(NULL, 2 * DRIVER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, driver->fd, 0);
	ck_assert_ptr_ne(driver->bytes, MAP_FAILED);
	driver->memory = driver_table(driver);
	vring_init(&driver->ring, num, driver->bytes, 4096);
	ck_assert_int_eq(vring_new(num, &driver->vq), 0);
	ck_assert_int_eq(vring_set_num(driver->vq, num, &err), 0);
	driver_start(driver);
}

void driver_free(struct driver *driver)
{
	vring_free(&driver->vq);
	memory_free(&driver->memory);
	munmap(driver->bytes, 2 * DRIVER_SIZE);
	close(driver->fd);
}

void *driver_at(const struct driver *driver, uint64_t guest_addr)
{
	return driver->bytes + (guest_addr - DRIVER_GUEST);
}

void driver_desc_at(struct driver *driver, uint64_t table, unsigned int index, uint64_t addr, uint32_t len,
	uint16_t flags, uint16_t next)
{
	struct vring_desc *desc = driver_at(driver, table);
	desc[index] = (struct vring_desc){ addr, len, flags, next };
}

void driver_desc(struct driver *driver, unsigned int index, uint64_t addr, uint32_t len, uint16_t flags, uint16_t next)
{
	driver->ring.desc[index] = (struct vring_desc){ addr, len, flags, next };
}

void driver_offer(struct driver *driver, uint16_t head)
{
	struct vring_avail *avail = driver->ring.avail;
	avail->ring[avail->idx % driver->ring.num] = head;
	avail->idx++;
}

unsigned int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int count = 0;
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}
