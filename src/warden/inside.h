/* The child between clone and exec: turns itself, step by step, from a clone of the warden into the guest in its sandbox.
 *
 * It shares the warden's memory meanwhile (CLONE_VM), which does nothing but write its maps and wait. So: raw system calls only
 * (the library's set*id would signal threads), no allocation, no stdio, nothing written but its own stack and `failed`. */
#ifndef CAISSON_WARDEN_INSIDE_H
#define CAISSON_WARDEN_INSIDE_H

#include "base/util.h"

/* Where its descriptors are: in the low numbers that the warden keeps for them. The table is shared at first (copying one of
 * thousands is dear) and cut off after INSIDE_END by the child's first step. */
enum { INSIDE_NULL = 9, INSIDE_ROOT, INSIDE_DEV, INSIDE_GUEST, INSIDE_LISTEN, INSIDE_CGROUP, INSIDE_END };

struct inside {
	uint32_t go;   /* word: 1 = maps and groups are done */
	uint32_t here; /* word: 1 until the guest runs, or the child has ended */
	bool cgroup;   /* INSIDE_CGROUP is one; it becomes 4. INSIDE_LISTEN becomes 3, INSIDE_NULL 0, 1, 2 */
	int last_cap;
	const char *hostname;
	char shm_size[24];
	uint64_t files_max;
	char *const *argv;
	/* out */
	const char *failed; /* step that failed, static; NULL = none */
	int failed_errno;
};

/* For process_clone. Never returns to a caller that could go on. */
int inside_main(void *inside);

#endif
