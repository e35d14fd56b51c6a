/* What the files of the vm boundary's own tests share: the host with its one boundary, and a few steps of theirs, each of which waits for its end. */
#ifndef CAISSON_TESTS_VM_OWN_H
#define CAISSON_TESTS_VM_OWN_H

#include "drive.h"
#include "vm_host.h"

extern struct own {
	struct vm_host host;
	uv_loop_t loop;
	struct boundary *b;
	const char *from; /* the snapshot that the next create begins as */
} own;

struct outcome {
	bool done;
	struct err e; /* kind 0 = good */
};

void own_on_done(void *ctx, const struct err *e); /* ctx: the outcome */
bool own_finished(struct outcome *o);
void own_open_boundary(void);
bool own_create(const char *id);
bool own_destroy(const char *id);
void own_connect_to(struct drive *d, const char *id);
bool own_stored(void); /* there is a template in the folder, and none that is being made */

/* vm_own_snapshots.c */
void a_fork_goes_on_with_what_ran(void **state);
void a_fork_has_all_that_is_being_written(void **state);
void a_fork_of_one_that_has_heard_half_of_something(void **state);
void a_slow_disk_holds_nobody_up(void **state);

#endif
