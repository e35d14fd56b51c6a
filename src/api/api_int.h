/* Private to api/. */
#ifndef CAISSON_API_API_INT_H
#define CAISSON_API_API_INT_H

#include "api/api.h"
#include "core/core.h"

#include <uthash.h>

/* An asynchronous verb under way: what core's answer finds again. */
struct asker;
struct call {
	struct api *api;
	struct asker *asker; /* NULL once it has gone */
	void *ctx;
	union {
		api_sandbox_fn sandbox;
		api_done_fn done;
		api_run_fn run;
		api_usage_fn usage;
		api_interpreter_fn interpreter;
		api_snapshot_fn snapshot;
		api_fork_fn fork;
		api_volume_fn volume;
	} fn;
	struct call *same_prev, *same_next; /* further calls of the same asker (utlist) */
};

struct asker { /* whoever has calls under way, known by its ctx */
	void *ctx;
	struct call *calls;
	UT_hash_handle hh;
};

struct api {
	uv_loop_t *loop;
	struct core *core;
	struct asker *askers;
	struct image last_image; /* behind the view of api_image_get */
	const char *boundaries[8];
	struct resources defaults;
	void (*revoked)(void *ctx, const char *key_id);
	void *revoked_ctx;
};

struct call *api_call(struct api *a, void *ctx);
/* Takes the call off its asker's list. Returns whether there still is somebody to tell; frees nothing. */
bool api_call_end(struct call *c);
void api_answer_done(void *ctx, const struct err *e, struct sandbox *s);

/* Around what core is asked to begin: the audit lines of it carry the caller's key. c NULL: it is over. */
static inline void api_act(struct api *a, const struct caller *c)
{
	core_act_as(a->core, c ? c->key_id : NULL);
}
/* An audit line of a verb that core says nothing about; api_line_end writes it. sandbox: id, or NULL. */
struct audit_line *api_line(struct api *a, const struct caller *c, const char *type, const char *sandbox);
void api_line_end(struct api *a);
void api_say(struct api *a, const struct caller *c, const char *type, const struct sandbox *s); /* both */

/* The caller that the sandbox belongs to. */
void api_owner(struct sandbox *s, const struct sandbox_view *v, struct caller *ret);
/* 0, or ERR_DENIED. */
int api_need_operator(const struct caller *c, struct err *e);
/* The caller's sandbox of this id or name; NULL and e (ERR_NOT_FOUND, the same for another tenant's) when there is none. */
struct sandbox *api_lookup(struct api *a, const struct caller *c, const char *ref, struct err *e);

#endif
