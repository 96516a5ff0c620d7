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
 * `ret_` pointer is written only when it succeeded. What failed last of calls on connections and providers
 * is kept for each thread, in words too; those on map requests and views return the code alone.
 */

/* The last failure in the calling thread: one line without a newline, empty before the first. Valid until the thread's
 * next call into this library. In a callback, and after mrshare_poll(): the failure of that operation. */
const char *mrshare_error(void);
/* Its code, a negative errno, and the call that it came from, such as "mrshare_read"; 0 and "" before the first. */
int mrshare_error_code(void);
const char *mrshare_error_call(void);

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
/* Returns the bytes read, which may be fewer than `size`; -EMSGSIZE where more bytes are needed, -EBADMSG where the
 * bytes are no view (name too long, no UTF-8, or with a NUL inside). */
ssize_t mrshare_view_decode(const void *buf, size_t size, struct mrshare_view *ret_view);
/* JSON: an object with the keys rkey, addr, size, device_name, in one line; control characters are escaped. The caller
 * frees the text with free(). -EINVAL as mrshare_view_encode(). */
int mrshare_view_to_json(const struct mrshare_view *view, char **ret_json);
/* -EBADMSG where the text is no such object (a key missing, twice, out of range, of another type). Other keys are
 * ignored. */
int mrshare_view_from_json(const char *json, struct mrshare_view *ret_view);

/*
 * The peer's side: a connection to a daemon.
 *
 * Threads: any thread may make any call on a connection at any time, but mrshare_close(). A call that waits does not
 * hold up those of other threads.
 *
 * Someone must answer the daemon, at once when it takes memory back and every few seconds to show that we live; whoever
 * does not is disconnected. By default a thread of the library does it, which also runs the callbacks. After
 * mrshare_set_thread(conn, false) there is none, and the application's event loop does it with mrshare_fd() and
 * mrshare_dispatch().
 *
 * Life: once mrshare_connect() succeeded the handle stands for that daemon until it is closed. When the connection is
 * lost, the operations that are outstanding fail: with -ESTALE the one that touched memory which the daemon had taken
 * back, with -ECONNRESET the others (-ETIMEDOUT where the wire went silent, but for a watch). The next operation
 * connects anew, registers the buffers anew and reads the views anew. Nothing is repeated of the library's own accord.
 *
 * A handle belongs to the process that made it. In a forked child each call on it fails with -ECHILD, without touching
 * the connection, which the parent goes on using; mrshare_close() frees only what is the child's. A child that a
 * callback forked may return from it: out of mrshare_dispatch() with -ECHILD, out of mrshare_close(), or into the end
 * of the library's thread.
 */

struct mrshare;
struct mrshare_buffer;

enum {
	MRSHARE_DEFAULT_PORT = 7471,
	MRSHARE_DEFAULT_TIMEOUT_MS = 10000,
	MRSHARE_OPERATIONS_MAX = 65536, /* that one connection has outstanding or waiting for mrshare_poll() */
	MRSHARE_DAEMON_ID_SIZE = 16,    /* bytes */
};

enum mrshare_access {
	MRSHARE_READ = 1,
	MRSHARE_WRITE = 2,
	MRSHARE_ATOMIC = 4,
};

/* An unconnected handle; mrshare_close() frees it. */
int mrshare_new(struct mrshare **ret_conn);

/* Settings, for the next connect. */

/* The local address to connect from: an IPv4 or IPv6 address or a name. Default (NULL): what the route says. */
int mrshare_set_source(struct mrshare *conn, const char *address);
/* The time limit in ms of a connect, of a reading of the catalog, and of silence: when the wire owes answers and gives
 * none for so long, the connection is lost. 0: MRSHARE_DEFAULT_TIMEOUT_MS; INT_MAX at most, more counts as that. */
int mrshare_set_timeout(struct mrshare *conn, unsigned int timeout_ms);
/* Ask for the right to write (and to use atomics). Default: read only. */
int mrshare_set_write(struct mrshare *conn, bool write);
/* Whether a thread of the library serves the connection. Default: true. -EISCONN once a connect was begun, or the
 * thread runs for a callback. */
int mrshare_set_thread(struct mrshare *conn, bool thread);
/* Disconnects and frees; NULL inside is fine. What is outstanding fails with -ECANCELED, and its callbacks run before
 * this returns. No other call on the connection may be running. Called from one of its callbacks it does nothing and
 * leaves the handle as it is; mrshare_error_code() says -EDEADLK. */
void mrshare_close(struct mrshare **conn);

/* Connects to HOST[:PORT]; HOST is an IPv4 address, an [IPv6 address] or a name. Returns after the daemon's welcome,
 * with the views read. -ECONNREFUSED: the daemon rejected, mrshare_error() has its text, or no daemon listens there;
 * -ETIMEDOUT; -EHOSTUNREACH, -ENETUNREACH: no such host, or no way there; -ENODEV: no RDMA device on it; -EAFNOSUPPORT:
 * the source is of another family; -ECONNRESET: the daemon closed the connection before its welcome, or while the views
 * were read; -EPROTO, -EPROTONOSUPPORT, -EBADMSG, -EMSGSIZE: what it sent is not understood; -EINVAL: the address is
 * none; -ENOMEM; -EISCONN: a handle connects once, a failure not counted; -EALREADY: a connect is under way; or what
 * the device fails with. */
int mrshare_connect(struct mrshare *conn, const char *address);
/* What the daemon granted at the last connect: MRSHARE_READ and so on; 0 before. */
unsigned int mrshare_granted(struct mrshare *conn);

/*
 * Views: what the daemon lists.
 */

/* One extent of a mapping, as the daemon's catalog lists it. */
struct mrshare_entry {
	uint64_t mapping_id; /* never reused while the daemon runs; see mrshare_daemon_id() */
	uint64_t shm_offset; /* of the extent's first byte in the region */
	uint8_t shmid;
	uint8_t access; /* MRSHARE_READ and so on: what the mapping allows, whatever this peer was granted */
	struct mrshare_view view;
};

/* A copy of the views as last read (by a connect, by mrshare_refresh(), mrshare_watch(), or a transfer that needed it),
 * in the order of (shmid, shm_offset), and the generation that they are of (or NULL). Does not wait. The caller frees
 * the array with free(). -ENOTCONN before the first connect. */
int mrshare_views(
	struct mrshare *conn, struct mrshare_entry **ret_entries, size_t *ret_count, uint64_t *ret_generation);
/* The id of the daemon that these views are of: random bytes, others each time that a daemon is started. Mappings with
 * the same mapping_id are the same ones where this is the same, too. Does not wait. -ENOTCONN before the first connect.
 */
int mrshare_daemon_id(struct mrshare *conn, uint8_t ret_id[MRSHARE_DAEMON_ID_SIZE]);
/* Reads the catalog anew now. */
int mrshare_refresh(struct mrshare *conn);
/* Waits until the daemon lists another generation than `generation`, and has read it; at most `timeout_ms` (0: for
 * ever). With 0 as the generation it returns as soon as views were read. A caller that is slow misses generations,
 * never the newest. -ETIMEDOUT: no change in that time. Any other: the connection was lost, or could not be made anew;
 * -ECONNRESET also where that, or reading the catalog, took too long. Then go on with the same generation: where the
 * daemon was started anew, which counts anew, the library counts on. */
int mrshare_watch(struct mrshare *conn, uint64_t generation, unsigned int timeout_ms);

enum mrshare_change_kind {
	MRSHARE_ADDED = 1,     /* `now` alone is set */
	MRSHARE_WITHDRAWN = 2, /* `before` alone */
	MRSHARE_CHANGED = 3,   /* both: the same place of the same mapping with another view or access */
};

struct mrshare_change {
	enum mrshare_change_kind kind;
	struct mrshare_entry before, now;
};

/* What leads from one array of mrshare_views() to a later one, withdrawn entries first of each place, where both
 * are of one run of a daemon (mrshare_daemon_id()). The caller frees the array with free(). Needs no connection.
 * -ENOMEM. */
int mrshare_changes(const struct mrshare_entry *before, size_t before_count, const struct mrshare_entry *now,
	size_t now_count, struct mrshare_change **ret_changes, size_t *ret_count);

/*
 * Transfers. Each waits until all of it is done. `buf` may be any memory. When one fails, nothing is known of how much
 * was transferred. A range of size 0 is checked no further and succeeds. -ENXIO: a part is not mapped, the error names
 * it; -EACCES: not granted, or the mapping does not allow it; -ESTALE: the mapping was removed meanwhile; -ECONNRESET,
 * -ETIMEDOUT: the connection was lost; -EOVERFLOW; -ENOTCONN: never connected; and the errors of mrshare_connect()
 * where it is to connect anew.
 */

/* Read and write [shm_offset, shm_offset + size) of region `shmid`. */
int mrshare_read(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, void *buf, size_t size);
int mrshare_write(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, const void *buf, size_t size);
/* Atomic among the peers of the device, on a u64 in the byte order of the daemon's host; shm_offset must be a multiple
 * of 8 (-EINVAL). They return what was there before, `ret_old` may be NULL. Wants MRSHARE_ATOMIC, which a daemon grants
 * with the right to write on its first device. */
int mrshare_fetch_add(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, uint64_t add, uint64_t *ret_old);
/* Stores `desired` where `expected` was: then *ret_old equals `expected`. */
int mrshare_compare_swap(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, uint64_t expected, uint64_t desired,
	uint64_t *ret_old);

/* Registers caller's memory with the device, so that transfers that lie inside it need no copy. It stays the caller's,
 * must be writable and outlive the buffer, which must not be unregistered while an operation uses it. It may be
 * unregistered after mrshare_close(). Without a connection it is registered at the next connect, whose time limit does
 * not count how long that takes; other calls on the connection wait for it. Where memory cannot be registered when a
 * connection is made anew, transfers copy. -EINVAL: a size of 0. */
int mrshare_buffer_register(struct mrshare *conn, void *addr, size_t size, struct mrshare_buffer **ret_buffer);
void mrshare_buffer_unregister(struct mrshare_buffer **buffer);

/*
 * Posted operations: the calls above without the waiting. Any number may be outstanding, up to MRSHARE_OPERATIONS_MAX
 * (-EAGAIN), from any thread. What does not fit on the send queue waits in the library. They end in any order: who
 * needs one after another waits for the first. Memory given with one belongs to it until it has ended.
 *
 * Each operation that was posted ends exactly once. With a callback: in that callback. Without: mrshare_poll() returns
 * it.
 */

struct mrshare_completion {
	uint64_t id;          /* as posting returned it */
	void *data;           /* as given with it */
	int result;           /* 0 or a negative errno, of which mrshare_error() has the words */
	uint64_t value;       /* of atomics that succeeded: what was there before */
	uint64_t reserved[4]; /* 0 */
};

/* Runs on the library's thread, or inside mrshare_dispatch() or mrshare_close(). It may make any call but
 * mrshare_close(); while it runs, no other callback of the connection does. */
typedef void (*mrshare_done)(struct mrshare *conn, const struct mrshare_completion *completion);

/* How an operation ends. A NULL pointer is the same as all zero. */
struct mrshare_how {
	mrshare_done done;       /* NULL: mrshare_poll() returns the completion */
	void *data;              /* for the completion */
	unsigned int timeout_ms; /* for all of it, from posting on; 0: as long as it makes progress */
	uint64_t reserved[4];    /* 0, or -EINVAL */
};

/* `ret_id` may be NULL. Ids are not 0 and not used again in a connection's life. What is wrong with the arguments is
 * returned at once, all else is the completion's. */
int mrshare_post_connect(struct mrshare *conn, const char *address, const struct mrshare_how *how, uint64_t *ret_id);
int mrshare_post_refresh(struct mrshare *conn, const struct mrshare_how *how, uint64_t *ret_id);
int mrshare_post_watch(struct mrshare *conn, uint64_t generation, const struct mrshare_how *how, uint64_t *ret_id);
int mrshare_post_read(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, void *buf, size_t size,
	const struct mrshare_how *how, uint64_t *ret_id);
int mrshare_post_write(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, const void *buf, size_t size,
	const struct mrshare_how *how, uint64_t *ret_id);
int mrshare_post_fetch_add(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, uint64_t add,
	const struct mrshare_how *how, uint64_t *ret_id);
int mrshare_post_compare_swap(struct mrshare *conn, uint8_t shmid, uint64_t shm_offset, uint64_t expected,
	uint64_t desired, const struct mrshare_how *how, uint64_t *ret_id);

/* The operation ends with -ECANCELED, soon but not at once where the device has its memory. -ENOENT: it has ended, or
 * never was. Its completion comes in every case; a part of it may have been transferred.
 * A time limit (-ETIMEDOUT) ends it likewise; what the device still has when the wire was silent for 250 ms can be
 * taken back from it only by disconnecting, and so it is done. */
int mrshare_cancel(struct mrshare *conn, uint64_t id);

/* The next completion of an operation without a callback. Waits up to `timeout_ms` for it (0: not at all, -1: for
 * ever). -EAGAIN: there was none in that time. Returns 0 for an operation that failed, too: see its result. */
int mrshare_poll(struct mrshare *conn, int timeout_ms, struct mrshare_completion *ret_completion);

/* For event loops: readable when mrshare_dispatch() or mrshare_poll() has something to do, time limits included. The
 * same number for the life of the handle. It stays the connection's: watch it for reading, do nothing else with it. */
int mrshare_fd(struct mrshare *conn);
/* Does what is to be done and runs callbacks; never waits for the daemon. After mrshare_set_thread(conn, false) to be
 * called whenever mrshare_fd() is readable, well within a second: later the daemon may drop us for memory that it wants
 * back. With the library's thread it does nothing. */
int mrshare_dispatch(struct mrshare *conn);

/*
 * The provider's side: a connection to the daemon's provider socket. What it maps lives as long as the connection.
 * Calls on one connection must not overlap. In a forked child mapping and unmapping fail with -ECHILD, and closing
 * frees only what is the child's.
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
/* Closes the connection, also where a forked child still has it, upon which the daemon removes its mappings; NULL
 * inside is fine. */
void mrshare_provider_close(struct mrshare_provider **provider);

#ifdef __cplusplus
}
#endif

#endif
