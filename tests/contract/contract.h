/* ONE suite that every boundary has to pass, written against boundary.h and link.h only. A kind brings a factory:
 *
 *	int main(void) { return contract_run(&(struct contract_kind){ .name = "process", .open = ..., .close = ... }); }
 *
 * ends with 77 (skipped) when open says that this host cannot do it. */
#ifndef CAISSON_TESTS_CONTRACT_H
#define CAISSON_TESTS_CONTRACT_H

#include "boundary/boundary.h"

struct contract_kind {
	const char *name;
	/* A boundary on the loop, or NULL with *skip (this host can't) or an abort. Called again after close for the adoption test:
	 * it must find the sandboxes of before. */
	struct boundary *(*open)(uv_loop_t *loop, const char **skip);
	void (*close)(struct boundary *b); /* frees it, the sandboxes stay */
	void (*done)(void);                /* after all: nothing may be left */
	unsigned patience;                 /* drive_patience; 0 = 1 */
	const char *image_digest; /* as boundary_spec wants it */
	bool exact_trees;                  /* whole-tree kill also finds what has cleared its environment and left its parents */
	bool own_files;                    /* else they are this machine's, and what they hold is left alone */
};
int contract_run(const struct contract_kind *kind);

#endif
