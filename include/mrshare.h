/* mrshare.h: reach memory that an mrshared daemon shares, and share memory through one. */
/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MRSHARE_H
#define MRSHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Errors. Unless a function says otherwise it returns 0, and a negative errno when it failed; what it returns through a
 * `ret_` pointer is written only when it succeeded. mrshare_error() has the failure in words.
 */

/* The last failure in the calling thread: one line without a newline, empty before the first. Valid until the thread's
 * next call into this library. */
const char *mrshare_error(void);

/* The version of the library that runs, such as "0.1.0". */
const char *mrshare_version(void);

/*
 * The map request: vhost-user's VhostUserMMap (SHMEM_MAP and SHMEM_UNMAP of the back-end's request channel).
 */

enum {
	MRSHARE_MMAP_SIZE = 40,         /* bytes on the wire */
	MRSHARE_MMAP_WRITABLE = 1 << 0, /* flags: map read-write; without it read-only */
};

/* Byte for byte what is on the wire, in native byte order. All zero is a valid object. */
struct mrshare_mmap {
	uint8_t shmid;       /* VIRTIO shared memory region */
	uint8_t padding[7];  /* ignored by the receiver */
	uint64_t fd_offset;  /* bytes into the file */
	uint64_t shm_offset; /* bytes into the region */
	uint64_t len;        /* bytes */
	uint64_t flags;      /* MRSHARE_MMAP_* */
};

/* The zero value. */
struct mrshare_mmap mrshare_mmap_zero(void);
/* Reads from exactly MRSHARE_MMAP_SIZE bytes; any other size is -EMSGSIZE. */
int mrshare_mmap_read(const void *buf, size_t size, struct mrshare_mmap *ret_mmap);
/* Reads from the first bytes of a longer buffer and says how many are left behind them; a shorter one is -EMSGSIZE. */
int mrshare_mmap_read_prefix(const void *buf, size_t size, struct mrshare_mmap *ret_mmap, size_t *ret_left);
/* Reads from the last bytes of a longer buffer and says how many stand before them; a shorter one is -EMSGSIZE. */
int mrshare_mmap_read_suffix(const void *buf, size_t size, struct mrshare_mmap *ret_mmap, size_t *ret_left);
/* Write to exactly, to the first, to the last MRSHARE_MMAP_SIZE bytes of a buffer; -EMSGSIZE where it does not fit. */
int mrshare_mmap_write(const struct mrshare_mmap *mmap, void *buf, size_t size);
int mrshare_mmap_write_prefix(const struct mrshare_mmap *mmap, void *buf, size_t size);
int mrshare_mmap_write_suffix(const struct mrshare_mmap *mmap, void *buf, size_t size);
/* Message syntax only: len is not 0, neither fd_offset + len nor shm_offset + len overflows, no unknown flag. A daemon
 * checks much more. */
bool mrshare_mmap_is_valid(const struct mrshare_mmap *mmap);

/*
 * The view: what a peer needs to address a piece of registered memory. A view is a value: copy it by assignment.
 */

enum {
	MRSHARE_DEVICE_NAME_MAX = 63,                         /* bytes, without the final NUL */
	MRSHARE_VIEW_SIZE_MAX = 28 + MRSHARE_DEVICE_NAME_MAX, /* bytes of the longest wire form */
};

struct mrshare_view {
	uint32_t rkey;
	uint64_t addr;                                 /* RDMA address; a daemon's views: the offset in the region */
	uint64_t size;                                 /* bytes */
	char device_name[MRSHARE_DEVICE_NAME_MAX + 1]; /* UTF-8, ends with NUL */
};

struct ibv_mr;

/* The view of a registered MR; `iova` is what it was registered at (mr->addr unless ibv_reg_mr_iova was used).
 * -EINVAL where the device's name is no UTF-8 or longer than MRSHARE_DEVICE_NAME_MAX. */
int mrshare_view_from_mr(const struct ibv_mr *mr, uint64_t iova, struct mrshare_view *ret_view);
/* The part [offset, offset + size) of a view, with the same key and device. It may be empty. -ERANGE where it is not
 * inside the view. `ret_slice` may be `view`. */
int mrshare_view_slice(const struct mrshare_view *view, uint64_t offset, uint64_t size, struct mrshare_view *ret_slice);
bool mrshare_view_equal(const struct mrshare_view *a, const struct mrshare_view *b);
/* One line for people, as snprintf: returns the length it has or would have; control characters of the name as '?'. */
int mrshare_view_format(const struct mrshare_view *view, char *buf, size_t size);
/* The wire form, little-endian: u32 rkey, u64 addr, u64 size, u64 name length, name. Returns the bytes written; -ENOSPC
 * where `size` is too small, -EINVAL where the name is no UTF-8 or has no end. */
ssize_t mrshare_view_encode(const struct mrshare_view *view, void *buf, size_t size);
/* Returns the bytes read, which may be fewer than `size`; -EMSGSIZE where more bytes are needed, -EBADMSG where the bytes
 * are no view (name too long, no UTF-8, or with a NUL inside). */
ssize_t mrshare_view_decode(const void *buf, size_t size, struct mrshare_view *ret_view);
/* JSON: an object with the keys rkey, addr, size, device_name. The caller frees the text with free(). -EINVAL as
 * mrshare_view_encode(). */
int mrshare_view_to_json(const struct mrshare_view *view, char **ret_json);
/* -EBADMSG where the text is no such object (a key missing, twice, out of range, of another type). Other keys are
 * ignored. */
int mrshare_view_from_json(const char *json, struct mrshare_view *ret_view);

/*
 * The peer's side: a connection to a daemon. Calls on one connection may come from any thread; they wait for each other.
 * A thread of the library answers the daemon's notices meanwhile. A connection is not usable in a forked child.
 */

struct mrshare;
struct mrshare_buffer;

enum {
	MRSHARE_DEFAULT_PORT = 7471,
	MRSHARE_DEFAULT_TIMEOUT_MS = 10000,
};

enum mrshare_access {
	MRSHARE_READ = 1,
	MRSHARE_WRITE = 2,
	MRSHARE_ATOMIC = 4,
};

/* One extent of a mapping, as the daemon's catalog lists it. */
struct mrshare_entry {
	uint64_t mapping_id; /* never reused while the daemon runs */
	uint64_t shm_offset; /* of the extent's first byte in the region */
	uint8_t shmid;
	uint8_t access; /* MRSHARE_READ and so on: what the mapping allows, whatever this peer was granted */
	struct mrshare_view view;
};

/* An unconnected handle; mrshare_close() frees it. */
int mrshare_new(struct mrshare **ret_conn);
/* The local address to connect from: an IPv4 or IPv6 address or a name. Default: what the route says. */
int mrshare_set_source(struct mrshare *conn, const char *address);
/* The time limit in ms of a connect, and of each later call whose answer does not come. 0: MRSHARE_DEFAULT_TIMEOUT_MS. */
int mrshare_set_timeout(struct mrshare *conn, unsigned int timeout_ms);
/* Ask for the right to write (and to use atomics). Default: read only. */
int mrshare_set_write(struct mrshare *conn, bool write);
/* Connects to HOST[:PORT]; HOST is an IPv4 address, an [IPv6 address] or a name. Returns after the daemon's welcome, with
 * the views read. -ECONNREFUSED: the daemon rejected, mrshare_error() has its text, or no daemon listens there; -ETIMEDOUT;
 * -EISCONN: a handle connects once, a failure not counted. */
int mrshare_connect(struct mrshare *conn, const char *address);
/* What the daemon granted: MRSHARE_READ and so on; 0 before mrshare_connect(). */
unsigned int mrshare_granted(struct mrshare *conn);
/* Disconnects and frees; NULL inside is fine. No other call on the connection may be running. */
void mrshare_close(struct mrshare **conn);

/* Reads the catalog anew now. The library also does so when the daemon announces a new generation. */
int mrshare_refresh(struct mrshare *conn);
/* A copy of the views as last read, in the order of (shmid, shm_offset); the caller frees the array with free(). */
int mrshare_views(struct mrshare *conn, struct mrshare_entry **ret_entries, size_t *ret_count);
/* The generation of the catalog that mrshare_views() shows; 0 before mrshare_connect(). */
uint64_t mrshare_generation(struct mrshare *conn);

/* Registers caller's memory with the device, so that reads and writes that lie inside it need no copy. It stays the
 * caller's, must be writable and outlive the buffer, which must not be unregistered while a call uses it. It may be
 * unregistered after mrshare_close(). */
int mrshare_buffer_register(struct mrshare *conn, void *addr, size_t size, struct mrshare_buffer **ret_buffer);
void mrshare_buffer_unregister(struct mrshare_buffer **buffer);

/* Read and write [shm_offset, shm_offset + size) of region `shmid`, blocking until all is done. `buf` may be any memory.
 * When they fail, nothing is known of how much was transferred.
 * -ENXIO: a part is not mapped, the error names it; -EACCES: not granted, or the mapping is read-only; -ESTALE: the mapping
 * was removed meanwhile; -ECONNRESET, -ENOTCONN: disconnected; -ETIMEDOUT; -EOVERFLOW. A range of size 0 is checked no
 * further and succeeds. */
int mrshare_read(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, void *buf, size_t size);
int mrshare_write(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, const void *buf, size_t size);

/*
 * The provider's side: a connection to the daemon's provider socket. What it maps lives as long as the connection. Calls
 * on one connection must not overlap.
 */

struct mrshare_provider;

/* Connects to the Unix socket at `path`. */
int mrshare_provider_open(const char *path, struct mrshare_provider **ret_provider);
/* Maps and returns when peers can see it. `fd` stays the caller's. Errors as in mrshare-protocol(7). */
int mrshare_provider_map(struct mrshare_provider *provider, const struct mrshare_mmap *mmap, int fd);
/* Unmaps what has exactly this shmid, shm_offset and len; when it returns 0 no peer reaches the memory any more.
 * -EINPROGRESS: neither does any peer, but a guest of this host still may. */
int mrshare_provider_unmap(struct mrshare_provider *provider, const struct mrshare_mmap *mmap);
/* The socket, for poll(): it becomes readable when the daemon has gone. It stays the provider's. */
int mrshare_provider_fd(const struct mrshare_provider *provider);
/* Closes the connection, upon which the daemon removes its mappings; NULL inside is fine. */
void mrshare_provider_close(struct mrshare_provider **provider);

#ifdef __cplusplus
}
#endif

#endif
