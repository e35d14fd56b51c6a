/* The process of one op: has become the user, may block for ever, is killed from outside. Speaks the op's frames over one
 * blocking socket, to PID 1 or to the daemon directly. */
#ifndef CAISSON_GUEST_WORKER_H
#define CAISSON_GUEST_WORKER_H

#include "base/err.h"
#include "guest/guest.h"
#include "guest/user.h"

struct port {
	int fd;
	uint64_t id;
	uint64_t sent, sent_limit;         /* credit from the daemon; counts payload of DATA, INFO, MATCH, VALUES */
	uint64_t received, received_limit; /* credit given */
	struct buf in, out;
	bool eof;                          /* the daemon sends no more */
	void (*on_gone)(void *ctx);        /* tidies up before the process ends because nobody wants it any more */
	void *ctx;
};

struct work {
	struct port port;
	const struct options *opt;
	const struct guest_op_request *req;
	struct user user;
};

/* In the child: does the op, never returns. rest: bytes already read behind the request. */
void worker_main(const struct options *opt, int fd, uint64_t id, const struct guest_op_request *req, struct str rest)
	__attribute__((noreturn));

/* Each of these ends the process when the other end is gone. */
void port_opened(struct port *p);
void port_data(struct port *p, struct str bytes);        /* waits for credit */
/* A frame of n bytes (at most GUEST_PAYLOAD_MAX) that the kernel moves from the file without a copy. False: the file had fewer, and
 * zeros stand for the rest. */
bool port_file(struct port *p, int fd, size_t n);
void port_data_end(struct port *p);
void port_info(struct port *p, const struct guest_info *i);
void port_match(struct port *p, const char *path, uint64_t line, struct str text);
void port_values(struct port *p, const struct buf *values);
/* The next bytes of the daemon, valid until the next call; n 0 = it sends no more. */
struct str port_receive(struct port *p);
void port_consumed(struct port *p, size_t n);            /* gives credit back */
/* Reads what is there (blocks if there is nothing) and takes credits; data stays in `in`. */
void port_fill(struct port *p);
/* Takes the credits of what waits in `in`, also those behind data, whose small pieces become large ones. What port_next has given moves. */
void port_sort(struct port *p);
/* A whole OP_DATA waiting in `in`? Takes credit frames on the way; eof is noticed. */
bool port_next(struct port *p, struct str *ret);
void port_flush(struct port *p);
size_t port_room(const struct port *p);

/* The ops: 0, or a negative errno with e filled in. */
int op_stat(struct work *w, struct err *e);
int op_list(struct work *w, struct err *e);
int op_read(struct work *w, struct err *e);
int op_write(struct work *w, struct err *e);
int op_mkdir(struct work *w, struct err *e);
int op_remove(struct work *w, struct err *e);
int op_move(struct work *w, struct err *e);
int op_chmod(struct work *w, struct err *e);
int op_find(struct work *w, struct err *e);
int op_search(struct work *w, struct err *e);
int op_replace(struct work *w, struct err *e);
int op_connect(struct work *w, struct err *e);
int op_ports(struct work *w, struct err *e);
int op_userinfo(struct work *w, struct err *e);
int op_disk(struct work *w, struct err *e);
int op_sync(struct work *w, struct err *e);

/* "<what> <path>: <reason>" with the kind that fits the errno. */
int path_error(struct err *e, int errnum, const char *what, const char *path);

#endif
