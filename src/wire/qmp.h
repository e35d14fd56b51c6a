/* QMP, the language QEMU is steered in: lines of JSON both ways. Pure: bytes in, calls ended and events out; whoever owns the
 * socket moves the bytes, and the descriptors that go with them.
 *
 * Theory of operation. QEMU greets; we say qmp_capabilities; from then on commands are sent, each with a number of ours, and answered
 * in order. What is asked for earlier waits. Events come in between at any time. A QEMU that a sandbox has taken over may say anything:
 * a line has a bound, an answer nobody waits for or out of order is a violation, and its texts are escaped. After a violation, or
 * when the owner says that the connection is gone (qmp_end), every call that waits fails, and so does every later one at once.
 *
 *   GREETING (nothing sent) -> NEGOTIATING (qmp_capabilities sent) -> OPEN -> ENDED
 *
 * Callbacks come from within qmp_feed, qmp_end and, in ENDED, qmp_call. They may make calls, but not free the struct. */
#ifndef CAISSON_WIRE_QMP_H
#define CAISSON_WIRE_QMP_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

enum {
	QMP_LINE_MAX = 256 * 1024, /* from QEMU; what we ask for is answered in a few KiB */
	QMP_SEND_MAX = 64 * 1024,  /* one command */
};

/* Exactly one of e and result is not NULL; both are valid during the call only. An error of QEMU's is ERR_UNAVAILABLE (ENOENT where
 * it does not know the command or the device), the end of the connection ERR_UNAVAILABLE with EPIPE. */
typedef void (*qmp_done_fn)(void *ctx, const struct err *e, const json_t *result);
typedef void (*qmp_event_fn)(void *ctx, const char *name, const json_t *data); /* data: an object, perhaps empty */

enum qmp_state { QMP_GREETING, QMP_NEGOTIATING, QMP_OPEN, QMP_ENDED };

struct qmp_call_;
struct qmp {
	enum qmp_state state;
	unsigned version[3]; /* QEMU's major, minor, micro; known from NEGOTIATING on */
	qmp_event_fn on_event;
	void *ctx;
	struct err ended; /* valid in ENDED */
	struct buf in_;   /* private: an incomplete line */
	struct qmp_call_ *calls_, **calls_tail_; /* private: in order of their numbers */
	uint64_t serial_;
};

void qmp_init(struct qmp *q, qmp_event_fn on_event, void *ctx);
void qmp_done(struct qmp *q); /* calls nobody; what waits is dropped: qmp_end first if it must be told */

/* arguments: a reference that is taken, or NULL. fd: a descriptor that must travel with this command (getfd), or negative; taken, and
 * closed once it is sent or will not be. done may be NULL. */
void qmp_call(struct qmp *q, const char *command, json_t *arguments, int fd, qmp_done_fn done, void *ctx);

/* Bytes from QEMU. 0; or -EPROTO after a violation: then the state is ENDED, everybody has been told, and the socket is to be closed. */
int qmp_feed(struct qmp *q, struct str bytes);

/* What is to be sent next: false when there is nothing now. *ret_fd, unless negative, goes by SCM_RIGHTS with the first of these bytes. After
 * a send of n > 0 bytes: qmp_sent. */
bool qmp_to_send(struct qmp *q, struct str *ret_bytes, int *ret_fd);
void qmp_sent(struct qmp *q, size_t n);

/* The connection has ended. */
void qmp_end(struct qmp *q, const struct err *why);

#endif
