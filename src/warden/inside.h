/* The child between clone and exec: turns itself, step by step, from a clone of the warden into the guest in its sandbox.
 *
 * It shares the warden's memory meanwhile (CLONE_VM), which does nothing but write its maps and wait. So: raw system calls only
 * (the library's set*id would signal threads), no allocation, no stdio, nothing written but its own stack and `failed`. */
#ifndef CAISSON_WARDEN_INSIDE_H
#define CAISSON_WARDEN_INSIDE_H

#include "base/util.h"

struct inside {
	int sync;   /* one byte from the warden: maps and groups are done. End of file to the warden: the guest runs */
	int root;   /* detached mount: the sandbox's root */
	int dev;    /* detached mount: a clone of the shared /dev */
	int guest;  /* the program */
	int listen; /* becomes 3 */
	int cgroup; /* becomes 4, or negative */
	int null;   /* becomes 0, 1, 2 */
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
