/* What the parts of the guest share. */
#ifndef CAISSON_GUEST_GUEST_H
#define CAISSON_GUEST_GUEST_H

#include "guest/confine.h"
#include "guest/group.h"
#include "guest/loop.h"
#include "guest/user.h"
#include "wire/guest.h"

#include <sys/resource.h>

struct conn;
struct run;
struct session;
struct op;
struct ask;

struct options {        /* constant after start */
	const char *user;     /* default of runs and ops */
	const char *workdir;  /* or NULL: the user's home */
	const char **env;     /* NULL-terminated, of the image */
	size_t env_n;
	struct rlimit files;  /* as found, for the programs */
	bool no_new_privs;    /* for the programs; in a process boundary we have it ourselves */
	const char *sudo;     /* the program that stands for sudo, or NULL: it is not ours to give */
};

struct sudo {
	struct watch listener; /* or unset */
	struct ask *asks;
	size_t n;
};

struct volumes { /* of a virtual machine: volumes.h */
	pid_t relay; /* or 0 */
	int roots[GUEST_VOLUMES_MAX];
	unsigned n;
};

enum { RUN_BUCKETS = 1024 };

struct guest {
	struct loop loop;
	struct options opt;
	struct groups groups;
	struct confine confine;        /* of every program */
	struct watch listener;         /* or unset: fd 3 is a stream itself */
	struct conn *conn;             /* the daemon's, or NULL */
	struct conn *waiting;          /* accepted, no first frame yet */
	struct run *runs[RUN_BUCKETS]; /* by id */
	struct run *sending, **sending_tail; /* runs with something to tell, in turn */
	size_t runs_n;
	struct session *sessions;
	struct op *ops;
	struct sudo sudo;
	struct volumes volumes;
	uint64_t oom_kills;            /* told so far; in a virtual machine, of which nobody else could tell */
	bool in_vm;                    /* we are a virtual machine's first program: SETUP is for us */
	int boot_id;                   /* of such a machine: the file that says its id, once it is set up */
	bool bare;                     /* and it has not come yet: nothing runs */
	uint64_t pids;                 /* how many processes there may be, as was last told; 0 = nobody has */
};

/* A child has ended that PID 1 waited for: who owns the pid gets the status. */
void guest_reap(struct guest *g);

/* conn.c. Returns the buffer for answers to the daemon, or NULL while there is none. */
struct buf *guest_out(struct guest *g);
/* Takes fd, a stream; permanent: never closed, a new hello starts over. */
void conn_accept(struct guest *g, int fd, bool permanent);
void conn_listen(struct guest *g, int fd);
void conn_flush(struct guest *g); /* end of a turn: says what there is to say */

#endif
