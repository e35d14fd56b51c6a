/* What is told while things happen: to followers of a run's output, to subscribers of the server's events. Plain data. */
#ifndef CAISSON_MODEL_EVENT_H
#define CAISSON_MODEL_EVENT_H

#include "model/sandbox.h"

struct follower_events {
	void (*on_output)(void *ctx, int stream, uint64_t offset, struct str bytes);
	void (*on_stdin_room)(void *ctx);
	void (*on_end)(void *ctx, const struct run_view *r); /* after the last byte; also when the sandbox goes away (LOST) */
};

struct event_view {
	uint64_t seq;
	uint64_t at_ms;
	const char *type;              /* "sandbox.created" "sandbox.state" "sandbox.deleted" "run.started" "run.ended" "permission.asked" */
	const struct sandbox_view *sandbox;
	enum sandbox_state old_state;  /* for sandbox.state */
	const struct run_view *run;    /* for run.* */
};

#endif
