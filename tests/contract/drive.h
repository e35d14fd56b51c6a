/* Drives one link as a test wants it: starts things, turns the loop until they are done, keeps what came. */
#ifndef CAISSON_TESTS_DRIVE_H
#define CAISSON_TESTS_DRIVE_H

#include "base/buf.h"
#include "core/link.h"

#include <uthash.h>

enum { DRIVE_PATIENCE_MS = 20000 };
/* How much longer than the process boundary a kind may take for the same thing, where a test waits: 1, or more for one that is emulated. */
extern unsigned drive_patience;

struct got_run {
	uint64_t id;
	struct buf out[2];
	struct link_run_end end;
	bool started, ended, room;
	bool no_ack;          /* a slow reader */
	uint64_t *order;      /* counts events of the whole drive; set at the end */
	uint64_t ended_at;
	UT_hash_handle hh;
};

struct drive {
	uv_loop_t *loop;
	struct link *link;
	bool hello, closed, session_ended;
	int session_code;
	char session[160];
	struct err why;
	struct got_run *runs;
	struct link_run_state known[2048];
	size_t known_n;
	uint64_t next_run, events, ended_n, told_late;
};

void drive_init(struct drive *d, uv_loop_t *loop);
bool drive_connect(struct drive *d, int fd);   /* waits for the hello; attaches runs that have not ended */
void drive_disconnect(struct drive *d);
void drive_done(struct drive *d);

/* Turns the loop until *flag; false after the patience. */
bool drive_until(struct drive *d, const bool *flag);
void drive_for(struct drive *d, uint64_t ms);
/* At the end, with everything freed: what a thread has begun is finished, for it uses what goes when we exit. */
void drive_close(uv_loop_t *loop);

struct got_run *drive_start(struct drive *d, const struct link_run_spec *spec);
struct got_run *drive_run(struct drive *d, const struct link_run_spec *spec);   /* until its end; NULL after the patience */
struct got_run *drive_sh(struct drive *d, const char *script);
struct got_run *drive_in(struct drive *d, const char *session, const char *command);
bool got_is(const struct got_run *r, int exit_code, const char *out, const char *err); /* err NULL: any */
void drive_forget(struct drive *d, struct got_run *r);                          /* releases it */

bool drive_session_open(struct drive *d, const char *id, const char *cwd, struct err *ret);
bool drive_session_close(struct drive *d, const char *id, struct err *ret);

struct got_info {
	char path[512], target[512];
	enum file_type type;
	bool is_dir;
	uint64_t size;
	uint32_t mode;
};
struct got_op {
	bool opened, data_ended, ended, failed;
	struct err err;
	struct buf data;
	struct str input;      /* written as room comes, then eof */
	bool feed;
	size_t piece;          /* as many bytes at a time; 0: as many as there is room for */
	bool slow;             /* pauses after each piece of data; link_op_resume goes on */
	struct link_op *op;
	struct got_info infos[256];
	size_t infos_n, matches_n;
	struct {
		char path[256], text[256];
		uint64_t line;
	} matches[64];
	struct pairs values;
};
struct got_op *drive_op(struct drive *d, const struct op_spec *spec, struct str input);         /* until its end */
struct got_op *drive_op_start(struct drive *d, const struct op_spec *spec, struct str input);
struct got_op *drive_op_direct(struct drive *d, int fd, const struct op_spec *spec, struct str input);
struct got_op *drive_op_direct_start(struct drive *d, int fd, const struct op_spec *spec, struct str input);
bool op_ok(struct got_op *o);                                                                      /* frees */
int op_errno(struct got_op *o);                                                                    /* frees */
void got_op_free(struct got_op *o);

#endif
