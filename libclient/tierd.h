/* SPDX-License-Identifier: Apache-2.0 */
/**
 * libtierd: tensors that live where they are needed next.
 *
 * A training process opens a connection to the tierd daemon of its box, creates tensors and asks
 * for each by handle when it needs it. `tierd_acquire` returns a pointer into memory shared with
 * the daemon; until `tierd_release` the bytes neither move nor go. Between the two calls of
 * different users tierd moves tensors between GPU memory (hbm), pinned host memory (dram) and NVMe.
 *
 * The traps, first:
 *  - A pointer is valid only between acquire and release. The next acquire may return another one.
 *  - Writing needs TIERD_WRITE. Bytes written through a view acquired for reading, or after its
 *    release, may be lost; nobody can tell.
 *  - tierd promises residency and that no written byte is lost. It does not arbitrate between
 *    writers: clients that write the same tensor at once synchronise among themselves.
 *  - TIERD_DISCARD says "I overwrite every byte": the old contents are gone when the acquire
 *    returns.
 *  - Nothing survives the daemon: when it ends, so do all tensors.
 *  - After fork() the child must not use the parent's connection: calls return -EPERM there.
 *  - Views that a process holds pin memory for everybody; release early.
 *  - GPU memory that is mapped into a process goes back to others when its library hears that it is
 *    wanted: at once where the one thread runs (below), else with the next call that talks to the
 *    daemon. Who used a GPU by tierd_acquire() alone and then only computes holds it back;
 *    tierd_step() is enough.
 *
 * Conventions: every call returns 0 (or a count where said) or a negative errno; outputs are
 * untouched on failure; `tierd_error` has the sentence. All sizes are bytes, all times nanoseconds.
 * Every call may be made by any thread, and by several at once on one `struct tierd`, unless its
 * text says otherwise. No call installs a signal handler. No call starts a thread but the first
 * tierd_acquire_on() that has to wait: one a connection, which lets waiting streams go if the
 * daemon dies (TIERD_NO_THREAD does without). Besides the errors that each call names, every call
 * that talks to the daemon returns -EPIPE once the daemon is gone (views that are held keep their
 * bytes), -EPERM in a forked child, and -EPROTO where its answer makes no sense.
 *
 * GPUs: an ordinal is the caller's own, after its CUDA_VISIBLE_DEVICES; the library matches it to
 * the daemon's GPU by UUID. Memory of a GPU is mapped into the process when it is met first, and
 * `data` is then an address for kernels and copies of that GPU, not for the CPU. Where the daemon
 * has `backend: memory`, ordinals are the daemon's own and data is ordinary memory. The CUDA driver
 * is opened by the first call that names a GPU of the daemon's or a stream, never for users of
 * TIERD_HOST alone. A stream that is being captured is refused; captures of other streams go on,
 * whatever the calls do meanwhile.
 *
 * Environment: TIERD_SOCKET, see tierd_open(); TIERD_SPIN_US, how many microseconds (1000 at most)
 * a waiting call looks for its answer before it sleeps, 0 unless set: it saves a wake-up where
 * cores are free, and costs one to the daemon where they are not.
 */
#ifndef TIERD_H
#define TIERD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TIERD_API __attribute__((visibility("default")))

/** A connection; opaque. */
struct tierd;

/** A tensor's handle: a value, the same in every process of the domain. {0, 0} is never valid. */
typedef struct {
	uint32_t index, generation;
} tierd_tensor;

/** What a tensor is to training; policies are chosen per class by the operator. */
enum tierd_class {
	TIERD_PARAMETER,
	TIERD_GRADIENT,
	TIERD_OPTIMIZER,
	TIERD_ACTIVATION,
	TIERD_OTHER,
};

enum tierd_dtype {
	TIERD_U8,
	TIERD_I8,
	TIERD_I32,
	TIERD_I64,
	TIERD_F16,
	TIERD_BF16,
	TIERD_F32,
	TIERD_F64,
	TIERD_F8E4M3,
	TIERD_F8E5M2,
	TIERD_BOOL,
};

enum tierd_access {
	TIERD_READ = 1,
	TIERD_WRITE = 2,
	TIERD_DISCARD = 4, /**< with TIERD_WRITE: old bytes need not be loaded */
};

/** The place of host memory; a place >= 0 is a GPU's ordinal, as this process counts them. */
#define TIERD_HOST (-1)
/** In struct tierd_info alone: a GPU that this process does not see, or has not used yet. */
#define TIERD_ELSEWHERE (-2)

/** Flag of tierd_open(): the library starts no thread; tierd_acquire_on() waits on the CPU instead.
 */
#define TIERD_NO_THREAD 1

/** Flag of struct tierd_spec: its host replica stands in the zone of dram that this library
 * registers with CUDA (once, at the first use), so that tierd_read_into() and tierd_write_from()
 * copy at full speed. From tierd_create() -ENOTSUP where the daemon has no such zone
 * (tiers.dram.zone), -ENOSPC where the tensor could never stand in it. */
#define TIERD_DEVICE_COPY 1

#define TIERD_NAME_MAX 255 /**< bytes of a name, without its end */
#define TIERD_NDIM_MAX 8
/** Tensors in one acquire_batch, acquire_on, prefetch or evict; more is -E2BIG. */
#define TIERD_BATCH_MAX 8192

/** What to create. Zero-initialise it; reserved members must be 0. */
struct tierd_spec {
	const char *name; /**< 1 to TIERD_NAME_MAX bytes, any but NUL; NULL: unnamed */
	enum tierd_class class_;
	enum tierd_dtype dtype;
	uint32_t ndim;                  /**< 0 (a scalar) to TIERD_NDIM_MAX */
	uint64_t shape[TIERD_NDIM_MAX]; /**< elements; a 0 makes a tensor of 0 bytes */
	uint64_t flags;                 /**< 0 or TIERD_DEVICE_COPY */
	uint64_t reserved[4];
};

/** A pinned tensor. Filled by acquire, zeroed by release; a value of all zeros is no view. */
struct tierd_view {
	void *data;     /**< aligned to 512 bytes or more; not NULL even for 0 bytes; on a GPU a
			   CUdeviceptr */
	uint64_t bytes; /**< of the tensor as created, never rounded */
	tierd_tensor tensor;
	int32_t place;   /**< TIERD_HOST or a GPU's ordinal */
	uint32_t access; /**< as acquired */
	uint64_t cookie; /**< the library's; do not touch */
	uint64_t reserved[2];
};

/** Where a tensor is; a snapshot that may be old when it is read. */
struct tierd_info {
	char name[TIERD_NAME_MAX + 1]; /**< "" for an unnamed tensor */
	char name_space[TIERD_NAME_MAX + 1];
	tierd_tensor tensor;
	enum tierd_class class_;
	enum tierd_dtype dtype;
	uint32_t ndim;
	uint64_t shape[TIERD_NDIM_MAX];
	uint64_t bytes;
	uint64_t version; /**< grows each time the daemon has seen new bytes */
	uint32_t state;   /**< enum tierd_state */
	int32_t place;    /**< of the front, or TIERD_ELSEWHERE; not if it is TIERD_STATE_ABSENT */
	uint32_t dirty;   /**< 1: no lower tier holds these bytes yet */
	uint32_t pins;    /**< of all clients */
	uint64_t stored_bytes[3]; /**< bytes in hbm, dram, nvme that are valid now, rounded as
				   *   stored: of what was just written where it was written */
	uint64_t reserved[8];
};

enum tierd_state {
	TIERD_STATE_ABSENT,  /**< in no tier that clients can reach: nvme only, or never written */
	TIERD_STATE_FILLING, /**< being brought */
	TIERD_STATE_RESIDENT,
	TIERD_STATE_EVICTING, /**< a drop is being tried; pins still win */
	TIERD_STATE_DROPPING, /**< being moved or dropped */
	TIERD_STATE_FAILED,
};

enum tierd_tier { TIERD_HBM, TIERD_DRAM, TIERD_NVME, TIERD_TIERS };
#define TIERD_CLASSES 5

/** Totals of the domain. Counters grow from the daemon's start. */
struct tierd_stats {
	struct {
		uint64_t limit_bytes;    /**< as configured, 0: no such tier */
		uint64_t resident_bytes; /**< extents that hold valid bytes */
		uint64_t reserved_bytes; /**< extents taken, being filled ones among them */
		uint64_t peak_bytes;     /**< highest reserved_bytes since start or the last mark */
		uint64_t largest_free_bytes; /**< one extent of this size could be taken now */
		uint64_t class_bytes[TIERD_CLASSES]; /**< resident, a class */
	} tier[TIERD_TIERS];
	uint64_t committed_bytes;  /**< admitted by create: bytes of all tensors, in pages of 4 KiB
				    *   above 512 bytes */
	uint64_t admissible_bytes; /**< create refuses beyond this */
	uint64_t tensors;
	uint64_t moved_bytes[TIERD_TIERS][TIERD_TIERS]; /**< from, to */
	uint64_t moves[TIERD_CLASSES][TIERD_TIERS][TIERD_TIERS];
	uint64_t stall_ns; /**< time that acquires waited, summed over waiters */
	uint64_t misses, hits_logged, log_lost;
	uint64_t backed_bytes[TIERD_TIERS]; /**< that there is memory for now; dram and hbm grow to
					       their limit in the background or on demand */
	uint64_t hbm_on_gpu; /**< 1: the memory of hbm is a GPU's, which a CPU cannot reach; 0: host
				  memory stands in for it, or there is none */
	uint64_t reserved[12];
};

/**
 * Connects to the daemon.
 *
 * @param socket_path path of the daemon's socket; NULL: $TIERD_SOCKET, then
 *        $XDG_RUNTIME_DIR/tierd.sock, then /run/tierd/tierd.sock, the first that is set or exists
 * @param name_space the job whose names and lifetime the tensors share, 1 to TIERD_NAME_MAX bytes;
 *        NULL: "default"
 * @param flags 0 or TIERD_NO_THREAD
 * @param ret the connection, owned by the caller until tierd_close()
 * @return 0; -ENOENT no socket at that path; -ECONNREFUSED a socket that no daemon serves; -EPROTO
 *         the daemon speaks another major version; -EACCES this uid is refused; -EUSERS or -EMFILE
 *         the daemon is at its limit of clients or descriptors; -ENAMETOOLONG the path is too
 *         long; -EINVAL a flag that is not known; -ENOMEM no memory; -ETIMEDOUT no answer within
 *         10 s
 * Units: bytes of names; seconds as said.
 * Ownership: `ret` is the caller's until tierd_close(); the strings are read during the call
 *        only.
 * Threads: any. Blocks until the daemon has answered, 10 s at most. Only tierd_error(NULL) has
 *        the sentence of a failed open.
 */
TIERD_API int tierd_open(const char *socket_path, const char *name_space, uint64_t flags,
			 struct tierd **ret);

/**
 * Ends a connection. The connection's unnamed tensors die with it; named ones live on as
 * tierd_create() says. Views still held stay valid: the unmapping waits for the last
 * tierd_release(), which is the only call still allowed with this `struct tierd`. It cannot fail.
 * Streams that still have to end pins of tierd_release_on() or copies are waited for, 10 s at most;
 * then what they use stays mapped and pinned, and the thread that lets them go if the daemon dies
 * stays, until the process ends.
 *
 * @param t from tierd_open(), or NULL; not the caller's any more
 * Units: none.
 * Ownership: `t` is not the caller's any more, nor is anything that came from it but views.
 * Threads: any, once, when no other thread is inside a call but tierd_release(). Blocks for
 *        streams only, as said.
 */
TIERD_API void tierd_close(struct tierd *t);

/**
 * The sentence of the calling thread's last failed call.
 *
 * @param t not used to find it, may be NULL: the text is the thread's own
 * @return a string, never NULL, "" when nothing failed yet; it cannot fail
 * Units: none.
 * Ownership: the library's; valid until this thread's next call of the library.
 * Threads: any. Does not block.
 */
TIERD_API const char *tierd_error(struct tierd *t);

/**
 * Creates tensors. They read as zeros until written and take no memory until then.
 *
 * A name belongs to the namespace of the connection. An unnamed tensor dies with the connection
 * that made it; a named one when the last connection of its namespace has gone and the configured
 * `linger` has passed. All or nothing.
 *
 * @param specs n of them, read only during the call
 * @param ret n handles; values, nothing to free but by tierd_destroy()
 * @return 0; -EEXIST a name is taken; -EDQUOT they pass what the limits of the namespace can ever
 *         hold, or what others are guaranteed (tierd_error() has the sum and the key);
 *         -ENOSPC the tiers could not hold them beside what was admitted, or the table (`tensors`
 *         of the configuration) is full; -EINVAL a name that is empty, too long or holds NUL,
 *         a class, dtype, flag or reserved member that is not known, ndim over
 *         TIERD_NDIM_MAX; -EOVERFLOW a shape of more than 2^47 bytes; -ENOTSUP TIERD_DEVICE_COPY
 *         and the daemon has no zone for it; -ENOMEM no memory
 * Units: shapes in elements, names in bytes.
 * Ownership: `specs` and their names are read during the call only; `ret` gets n values, which
 *        only tierd_destroy() and their lifetime end.
 * Threads: any. Blocks until the daemon has answered, which needs no I/O. Where there is no room,
 * it and what this connection asks for after it wait for what was destroyed, or left by clients
 * that died, to be gone: for its moves 10 s at most.
 */
TIERD_API int tierd_create(struct tierd *t, const struct tierd_spec *specs, size_t n,
			   tierd_tensor *ret);

/**
 * Finds a tensor of this connection's namespace by name.
 *
 * @param ret its handle
 * @return 0; -ENOENT no such name; -EINVAL a name that cannot be one
 * Units: a name in bytes.
 * Ownership: `name` is read during the call only; `ret` gets a value, nothing to free.
 * Threads: any. Blocks until the daemon has answered, which needs no I/O.
 */
TIERD_API int tierd_lookup(struct tierd *t, const char *name, tierd_tensor *ret);

/**
 * Destroys tensors. Their names are free at once. One that is still pinned somewhere is doomed: new
 * acquires fail with -ESTALE, its bytes come back when the last pin ends. Where a stream still
 * waits for the bytes (tierd_acquire_on()), they read as 0xff and tierd_release_on() says -EIO:
 * they are not brought any more. All that can be destroyed are, whatever is returned.
 *
 * @return 0; -ESTALE a handle was destroyed before; -EPERM one belongs to another namespace
 * Units: none.
 * Ownership: `tensors` is read during the call only; views of them stay the caller's.
 * Threads: any. Blocks until the daemon has answered, which needs no I/O.
 */
TIERD_API int tierd_destroy(struct tierd *t, const tierd_tensor *tensors, size_t n);

/**
 * Waits until a tensor is in a place, pins it there and returns a pointer to it. A tensor that is
 * there already costs two atomic operations and no system call.
 *
 * @param place TIERD_HOST, or a GPU's ordinal (which the daemon may back by host memory)
 * @param access TIERD_READ, TIERD_WRITE or both; TIERD_DISCARD may be added to TIERD_WRITE
 * @param timeout_ns 0: do not wait; negative: for ever
 * @param ret the view; the caller's until tierd_release()
 * @return 0; -ETIMEDOUT not there at the deadline; -EBUSY likewise, and another process (its pid is
 *         in tierd_error()) pins it at another place; -EDEADLK this connection itself pins it at
 *         another place; -ENOSPC it can never fit into that place, or all that stands there was
 *         written, nothing below has room for it, and every connection waits so that none could
 *         destroy something; -EDQUOT nor, for sure, into what
 *         its namespace may have of it (`namespaces` of the configuration); -ESTALE destroyed; -EIO
 *         its bytes could not be read back (tierd_error() names tensor, device and cause), or, as
 *         -ENOSPC where a disk is full, what had to leave the place failed to be written back when
 *         that was tried again; -ENODEV no such place, no CUDA driver here, or a GPU that is not
 *         the daemon's; -ENOMEM or -EMFILE this process could not map it; -EINVAL an access that
 *         is none; -EOVERFLOW 65535 pins of this tensor are held; -EINTR a signal was handled
 *         while it waited: nothing is held;
 *         -EDEADLK also, whatever the timeout: all that is pinned of what it waits for belongs to
 *         connections that wait themselves, this one among them, and it came last. A connection
 *         waits when every thread of it that ever acquired something does, and no stream is to end
 *         a view of it. Release something, and acquire again. A thread that only releases what
 *         others acquired is not known as one that may help, before it has called
 *         tierd_acquire_batch() once, if only of nothing
 * Units: timeout in nanoseconds, `ret->bytes` in bytes.
 * Ownership: `ret` and the right to its bytes are the caller's until tierd_release(); the
 *        memory is shared with the daemon and other clients.
 * Threads: any, and any may release it. Blocks up to the timeout (a second longer if the daemon
 *        hangs).
 *
 *     struct tierd_view v;
 *     if (tierd_acquire(t, weights, TIERD_HOST, TIERD_READ, -1, &v) == 0) {
 *             use(v.data, v.bytes);
 *             tierd_release(t, &v);
 *     }
 */
TIERD_API int tierd_acquire(struct tierd *t, tierd_tensor tensor, int place, uint32_t access,
			    int64_t timeout_ns, struct tierd_view *ret);

/**
 * tierd_acquire() of several tensors at once, all or nothing. It holds no pin while it waits. A
 * handle may stand in it more than once. Of no tensor it tells tierd that there is this thread, and
 * does nothing else: a thread that will only release does so before others wait for that.
 *
 * @param n 0 to TIERD_BATCH_MAX
 * @param ret n views, each released on its own
 * @return as tierd_acquire(); -E2BIG n is over the limit; -ENOSPC also when the tensors can
 *         never be in that place together
 * Units: timeout in nanoseconds.
 * Ownership: as tierd_acquire(), each of the n views on its own.
 * Threads: any. Blocks up to the timeout.
 */
TIERD_API int tierd_acquire_batch(struct tierd *t, const tierd_tensor *tensors, size_t n, int place,
				  uint32_t access, int64_t timeout_ns, struct tierd_view *ret);

/**
 * Ends a view: unpins the tensor and zeroes `view`. A view of all zeros is left alone, so that a
 * second release of the same view does nothing.
 *
 * @param view from an acquire of the same connection
 * Units: none.
 * Ownership: the view and its bytes are not the caller's any more.
 * Threads: any. Does not block and cannot fail.
 */
TIERD_API void tierd_release(struct tierd *t, struct tierd_view *view);

/**
 * tierd_acquire_batch() for the GPU of a stream: returns as soon as every tensor stands there or
 * has its room there, pinned. `cuda_stream` waits on the GPU until the bytes are there: work put on
 * it afterwards sees them; the CPU and other streams do not know. What is there already costs the
 * stream nothing.
 *
 * If a fill fails afterwards the bytes become 0xFF (a GPU that was lost takes not even those),
 * the state TIERD_STATE_FAILED while pins last, and tierd_release_on() of it or else the next
 * tierd_step() or tierd_flush() returns -EIO naming the tensor. If tierd dies the stream is let go
 * and the next call returns -EPIPE. With TIERD_NO_THREAD this waits on the CPU until the bytes are
 * there.
 *
 * @param n 0 to TIERD_BATCH_MAX
 * @param gpu the ordinal of the stream's GPU
 * @param access as tierd_acquire()
 * @param cuda_stream a CUstream or cudaStream_t of that GPU, in any context of it; NULL: the
 *        legacy default stream of the current context. Streams of other GPUs can wait for it by
 *        an event
 * @param ret n views, each ended by tierd_release_on(), or by tierd_release() once the stream is
 *        done with it
 * @return as tierd_acquire_batch(), never -ETIMEDOUT; -EBUSY the stream is being captured; -ENODEV
 *         also where there is no CUDA driver; -EINVAL also a place below 0, what is no stream, or
 *         a stream of another GPU, hit or miss; -ENOMEM also no thread or no memory of the
 *         driver's
 * Units: none.
 * Ownership: as tierd_acquire_batch().
 * Threads: any. Blocks until there is room, for ever; a signal ends it. The first call that waits
 *        starts the connection's one thread. Views that this program keeps take their room: where
 *        they fill the GPU, and no stream is to end any of them, it is -EDEADLK as in
 *        tierd_acquire().
 *
 *     struct tierd_view v[2];
 *     if (tierd_acquire_on(t, tensors, 2, 0, TIERD_READ | TIERD_WRITE, stream, v) == 0) {
 *             launch_kernel(stream, v[0].data, v[1].data);
 *             tierd_release_on(t, v, 2, stream);
 *     }
 */
TIERD_API int tierd_acquire_on(struct tierd *t, const tierd_tensor *tensors, size_t n, int gpu,
			       uint32_t access, void *cuda_stream, struct tierd_view *ret);

/**
 * Ends views when a stream gets there: the pins stand until all work put on it so far is done; the
 * views are zeroed at once. Views of any acquire will do, also of a host place.
 *
 * @param views n of them, of the same connection; those of all zeros are left alone
 * @param cuda_stream as tierd_acquire_on(), but of any GPU
 * @return 0; -EIO a tensor's fill had failed, or its GPU was lost under it: all are released, the
 *         first is named, with the cause; -EPIPE the daemon is gone: likewise; -EBUSY it is being
 *         captured, -EINVAL a view that pins nothing or what is no stream, -EPERM in a forked
 *         child: nothing was released; -ENODEV no CUDA driver, or the GPU is lost to this process:
 *         then all are released. Any other is the driver's. Views that were released are zeroed,
 *         and no others
 * Units: none.
 * Ownership: the views are not the caller's any more; their bytes are the stream's until it gets
 *        there.
 * Threads: any. Blocks only while the stream has 1024 pins to end, or 32 others have: then until
 *        it is done. A context that is destroyed before its stream got there leaves the pins until
 *        tierd_close() has waited in vain.
 */
TIERD_API int tierd_release_on(struct tierd *t, struct tierd_view *views, size_t n,
			       void *cuda_stream);

/**
 * Copies the whole of a tensor to memory of the caller's own allocator on the GPU of a stream, in
 * the stream's order, and returns when the copy is on the stream. A tensor that is not in dram is
 * brought there first.
 *
 * @param tensor made with TIERD_DEVICE_COPY
 * @param device_pointer a CUdeviceptr; room for all bytes of the tensor
 * @param cuda_stream as tierd_acquire_on()
 * @return as tierd_acquire() without a limit; -EINVAL the tensor has no TIERD_DEVICE_COPY; -EBUSY
 *         the stream is being captured; -ENODEV no CUDA driver; -ENOMEM the zone could not be
 *         registered
 * Units: bytes.
 * Ownership: the tensor is pinned until the stream gets there, as by tierd_release_on(); so long
 *        `device_pointer` is written.
 * Threads: any. Blocks until the tensor is in dram.
 */
TIERD_API int tierd_read_into(struct tierd *t, tierd_tensor tensor, void *device_pointer,
			      void *cuda_stream);

/**
 * tierd_read_into() the other way: overwrites the whole tensor with memory of the GPU.
 *
 * @param device_pointer a CUdeviceptr; all bytes of the tensor are read from it
 * @return as tierd_read_into(), also -EINVAL for what is no device pointer; the tensor keeps its
 *         bytes, unless the driver fails in the middle of more than 1 GiB
 * Units: bytes.
 * Ownership: as tierd_read_into(); `device_pointer` is read until the stream gets there.
 * Threads: any. Blocks until there is room in dram.
 */
TIERD_API int tierd_write_from(struct tierd *t, tierd_tensor tensor, const void *device_pointer,
			       void *cuda_stream);

/**
 * Says that tensors will be needed in a place, earliest first. A hint: it evicts nothing. What has
 * no room waits for some, and lets smaller ones go before it; of the places that a tensor waits for
 * the one named last counts. What cannot be read is left where it is.
 *
 * @return 0; -E2BIG n is over TIERD_BATCH_MAX; -ENODEV no such place; -ESTALE a handle was
 *         destroyed (the others are taken)
 * Units: none.
 * Ownership: `tensors` is read during the call only.
 * Threads: any. Blocks until the daemon has taken note, not for the moves.
 */
TIERD_API int tierd_prefetch(struct tierd *t, const tierd_tensor *tensors, size_t n, int place);

/**
 * Says that tensors are not needed soon: they are the first to go when room is wanted, and are
 * written back beforehand. A pinned tensor stays.
 *
 * @return 0; -E2BIG n is over TIERD_BATCH_MAX; -ESTALE a handle was destroyed; -EPERM one is of
 *         another user's namespace, and this process is not root's (the others are taken)
 * Units: none.
 * Ownership: `tensors` is read during the call only.
 * Threads: any. Blocks until the daemon has taken note, not for the moves.
 */
TIERD_API int tierd_evict(struct tierd *t, const tierd_tensor *tensors, size_t n);

/**
 * Copies bytes of a tensor out of any tier without moving it, whatever its size: the way to reach
 * tensors larger than dram. Only from a GPU that this process cannot reach (CUDA_VISIBLE_DEVICES,
 * no driver) it is brought to dram first, and those who pin it there are waited for.
 *
 * @param offset bytes from the tensor's start; offset + bytes must not exceed its size
 * @param to the caller's memory
 * @return 0; -EINVAL the range leaves the tensor; -ESTALE destroyed; -EIO as tierd_acquire(), or
 *         another process pins what a failed tierd_acquire_on() left and keeps the bytes from it
 *         for more than a second; -EINTR a signal was handled while it waited: some bytes may have
 *         been copied
 * Units: bytes.
 * Ownership: `to` is the caller's and is written during the call only, also when it fails.
 * Threads: any. Blocks until done. Not atomic against writers of the same tensor.
 */
TIERD_API int tierd_copy_out(struct tierd *t, tierd_tensor tensor, uint64_t offset, void *to,
			     uint64_t bytes);

/**
 * Copies bytes into a tensor in whatever tier it is, without moving it but where tierd_copy_out()
 * does.
 *
 * @param offset bytes from the tensor's start; offset + bytes must not exceed its size
 * @param from the caller's memory, read only during the call
 * @return 0; -EINVAL the range leaves the tensor; -ESTALE destroyed; -EIO as tierd_copy_out(): what
 *         was written before the failing megabyte stays written; -EBUSY another process pins it to
 *         overwrite all of it, and has not begun within a second; -ENOSPC no room on nvme,
 *         -EDQUOT nor within its namespace's limit of it; -EINTR a
 *         signal was handled while it waited; likewise
 * Units: bytes.
 * Ownership: `from` is the caller's and is read during the call only.
 * Threads: any. Blocks until done. Not atomic against other writers of the same tensor.
 */
TIERD_API int tierd_copy_in(struct tierd *t, tierd_tensor tensor, uint64_t offset, const void *from,
			    uint64_t bytes);

/**
 * Ends one iteration of the training loop, for policies that learn from iterations and for `tierctl
 * leaks`, which sees no job that does not call it.
 *
 * @return 0; -EIO a fill that tierd_acquire_on() did not wait for has failed, which is told once
 *         (the iteration counts all the same); -EPIPE the daemon is gone; -EPERM in a forked
 *         child
 * Units: none.
 * Ownership: nothing changes hands.
 * Threads: any, once an iteration and connection. Does not block.
 */
TIERD_API int tierd_step(struct tierd *t);

/**
 * Waits until the bytes written so far are on nvme and synced.
 *
 * @param tensors n handles; n = 0: all tensors of the namespace
 * @return 0; -ESTALE destroyed; -EIO as tierd_acquire() or tierd_step(); -ENOSPC no room on nvme;
 *         -ENODEV there is no nvme tier; -EBUSY a tensor is pinned for writing; -EINVAL a tensor
 *         below 4 KiB, which never goes to nvme, was named; -EINTR a signal was handled
 *         while it waited
 * Units: none.
 * Ownership: `tensors` is read during the call only.
 * Threads: any. Blocks until done.
 */
TIERD_API int tierd_flush(struct tierd *t, const tierd_tensor *tensors, size_t n);

/**
 * Tells what and where a tensor is.
 *
 * @param ret filled; a value
 * @return 0; -ESTALE the handle was destroyed
 * Units: bytes and elements, as struct tierd_info says.
 * Ownership: `ret` gets a value, nothing to free.
 * Threads: any. Blocks until the daemon has answered, which needs no I/O.
 */
TIERD_API int tierd_stat(struct tierd *t, tierd_tensor tensor, struct tierd_info *ret);

/**
 * Reads the daemon's totals from shared memory.
 *
 * @param ret filled; a value
 * @return 0; -EPIPE the daemon is gone; -EPERM in a forked child; -EPROTO the daemon is of another
 *         minor version, which has other counters
 * Units: bytes and nanoseconds, as struct tierd_stats says.
 * Ownership: `ret` gets a value, nothing to free.
 * Threads: any. Does not block and makes no request of the daemon.
 */
TIERD_API int tierd_stats(struct tierd *t, struct tierd_stats *ret);

/**
 * Gives cached, unused memory back to the system: pages of extents that hold nothing. Memory that
 * an nvme device has registered for its transfers stays.
 *
 * @return 0; -EPIPE the daemon is gone; -EPERM in a forked child
 * Units: none.
 * Ownership: nothing changes hands.
 * Threads: any. Blocks until the daemon has answered.
 */
TIERD_API int tierd_trim(struct tierd *t);

#ifdef __cplusplus
}
#endif

#endif
