/* Private to daytona-fake*.c. */
#ifndef CAISSON_TESTS_DAYTONA_FAKE_INT_H
#define CAISSON_TESTS_DAYTONA_FAKE_INT_H

#include "daytona-fake.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

enum { SANDBOXES = 16, RUNS = 64, FILES = 64, SESSIONS = 8 };

struct box {
	bool used;
	char id[37];
	struct sandbox_spec spec;
	enum sandbox_state state;
};
struct fake_run {
	struct box *box;
	char id[16];
	struct run_spec spec;
	struct fake_command what;
	bool pty_open;
	struct buf in;
};
struct fake_session {
	struct box *box;
	char *id;
	bool alive;
};
struct follower {
	uv_timer_t timer; /* first: freed by close */
	struct api *a;
	struct fake_run *run;
	uint64_t at[2];
	struct follower_events ev;
	void *ctx;
	bool paused, ended, freed;
};
struct api_op {
	uv_timer_t timer;
	struct api *a;
	struct op_spec spec;
	char *path;
	struct op_events ev;
	void *ctx;
	size_t room, sent;
	struct buf in;
	bool opened, eof, paused, done;
};
struct subscription {
	struct subscription *next;
	void (*on_event)(void *, const struct event_view *);
	void *ctx;
	struct api *a;
};
struct api {
	uv_loop_t *loop;
	struct box boxes[SANDBOXES];
	struct fake_run runs[RUNS];
	size_t n_runs, pending;
	struct fake_session sessions[SESSIONS];
	struct fake_file files[FILES];
	struct subscription *subscriptions;
	struct sandbox_spec last;
	struct buf head;
};

struct box *fake_lookup(struct api *a, const char *ref, struct err *e);
void fake_free_handle(uv_handle_t *h);

#endif
