/* The child between clone and exec: turns itself, step by step, from a clone of the warden into the guest in its sandbox, into the QEMU of a
 * machine in its jail, or into the server of that machine's volumes in another.
 *
 * It shares the warden's memory meanwhile (CLONE_VM), which does nothing but write its maps and wait. So: raw system calls only
 * (the library's set*id would signal threads), no allocation, no stdio, nothing written but its own stack and `failed`. */
#ifndef CAISSON_WARDEN_INSIDE_H
#define CAISSON_WARDEN_INSIDE_H

#include "base/util.h"
#include "wire/vmm.h"
#include "wire/warden.h"

#include <assert.h>

/* Where its descriptors are: in the low numbers that the warden keeps for them. The table is shared at first (copying one of
 * thousands is dear) and cut off after INSIDE_END by the child's first step. */
enum {
	INSIDE_NULL = 9,
	INSIDE_ROOT,
	INSIDE_OWN, /* the rest is the guest's ... */
	INSIDE_DEV = INSIDE_OWN,
	INSIDE_GUEST,
	INSIDE_LISTEN,
	INSIDE_CGROUP,
	INSIDE_VOLUME, /* the first one */
	INSIDE_GUEST_END = INSIDE_VOLUME + WARDEN_VOLUMES_MAX,
	INSIDE_VMM = INSIDE_OWN, /* ... or QEMU's: those of enum vmm_fd, in their order, and its log */
	INSIDE_LOG = INSIDE_VMM + VMM_FDS,
	INSIDE_VMM_END,
	INSIDE_LINE = INSIDE_LISTEN, /* of the server, which has the guest's program and volumes */
	INSIDE_END = INSIDE_GUEST_END, /* the larger one */
};
static_assert((int)INSIDE_END >= (int)INSIDE_VMM_END, "QEMU has more descriptors than a guest");

enum inside_kind { INSIDE_IS_GUEST, INSIDE_IS_VMM, INSIDE_IS_VOLUMES };

struct inside {
	uint32_t go;   /* word: 1 = maps and groups are done */
	uint32_t here; /* word: 1 until the program runs, or the child has ended */
	enum inside_kind kind;
	int last_cap;
	const char *hostname;
	uint64_t files_max;
	char *const *argv;
	const int *give; /* what becomes descriptor 0, 1, ...: one of the numbers above, or negative for none */
	int give_n;
	/* the guest's, and the server's */
	char shm_size[24];
	const struct warden_volume *volumes;
	uint32_t volumes_n;
	/* QEMU's */
	char *const *env;
	uint64_t file_bytes_max; /* of a file that it writes */
	/* out */
	const char *failed; /* step that failed, static; NULL = none */
	const char *failed_at; /* the path that it was at, or NULL */
	int failed_errno;
};

/* For process_clone. Never returns to a caller that could go on. */
int inside_main(void *inside);

#endif
