/* One QEMU: its process and its monitor. Whoever owns the sockets' folder, the disk and the guest's line is another matter.
 *
 * A QEMU that no longer answers its monitor, or says what is no QMP, is of no use and perhaps not ours any more: it is killed, and its end
 * tells why. What it writes to its standard error goes to a memory file of fixed size, so that it can't fill anything. */
#ifndef CAISSON_BOUNDARY_VM_QEMU_H
#define CAISSON_BOUNDARY_VM_QEMU_H

#include "boundary/vm/launch.h"
#include "wire/qmp.h"

#include <uv.h>

struct qemu;
struct qemu_events {
	void (*started)(void *ctx, const struct err *e); /* e: there is none and was none; not called after qemu_adopt */
	void (*ended)(void *ctx, const struct err *why); /* the process is gone */
	qmp_event_fn event;                              /* or NULL */
	bool (*may_run)(void *ctx);                      /* or NULL: always. Whether nobody holds it still */
	void (*loaded)(void *ctx);                       /* or NULL. After qemu_restore: it has all of its state, and is about to run */
	void (*restored)(void *ctx);                     /* then, and it may not be without: it runs */
};

struct qemu_host {
	uv_loop_t *loop;
	struct launcher *launcher;
	unsigned beat_ms; /* how often it is asked whether it is there */
};

/* dir: the folder of the socket "qmp". All is borrowed for the qemu's life. */
struct qemu *qemu_new(const struct qemu_host *h, int dir, const struct qemu_events *ev, void *ctx);
/* l: as for a launcher; its log is set here. `started`, or `ended`, may come before this returns. */
void qemu_start(struct qemu *q, struct launch *l);
/* The process of the file "vmm" in dir, if it is there still; or a negative errno. */
int qemu_adopt(struct qemu *q, const char *id);

pid_t qemu_pid(const struct qemu *q); /* 0 = none yet */
/* As qmp_call; fails at once when there is no connection. */
void qemu_call(struct qemu *q, const char *command, json_t *arguments, int fd, qmp_done_fn done, void *ctx);
/* Tells when no migration is at its end any more, with the status of query-status. QEMU says that one is over before it is: until then
 * it refuses to go on. `event` tells of an end only behind that. */
void qemu_settled(struct qemu *q, qmp_done_fn done, void *ctx);
/* What its network device, if it has one, tells the guest: whether there is a link. At the start that is what its launch says. */
void qemu_link(struct qemu *q, bool up, qmp_done_fn done, void *ctx);
/* Gives it the state (a descriptor, taken) that it was started to wait for, and has it run. What it refuses is its end. Until
 * `restored` tells that it runs, what comes on the guest's line may be lost: QEMU takes it and has no guest to give it to yet. */
void qemu_restore(struct qemu *q, int state);
/* The arguments of migrate-set-capabilities, on both sides of a template: memory is not part of what is saved, and events tell. */
json_t *qemu_capabilities(void);
/* `ended` tells when; or `started`, with an error. */
void qemu_kill(struct qemu *q);
/* Leaves a process alone that has started. Not from within a callback of the monitor (event, or a call's done). */
void qemu_free(struct qemu *q);

#endif
