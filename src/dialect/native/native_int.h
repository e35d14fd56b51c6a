/* What the files of the native dialect share. */
#ifndef CAISSON_DIALECT_NATIVE_NATIVE_INT_H
#define CAISSON_DIALECT_NATIVE_NATIVE_INT_H

#include "dialect/native/decode.h"
#include "dialect/native/jsonout.h"
#include "dialect/native/native.h"

struct native {
	uv_loop_t *loop;
	struct api *api;
	struct server *server;
	struct dialect dialect;
	uint64_t answers[6]; /* by hundreds of the status: [2] = 2xx */
	uint64_t started_ms; /* unix */
	enum network_mode network; /* of sandboxes that ask for none */
};

/* route.tag bits */
enum {
	ROUTE_OPEN = 1,  /* no key needed from the loopback interface and the unix socket */
	ROUTE_QUERY = 2, /* has query parameters (its handler decodes them); else any is refused */
	ROUTE_PROXY = 4, /* the query belongs to the program inside */
};

#define JSON_REPLY_MAX (256U << 20) /* bytes of a reply that is built in memory: lists */
#define QUEUE_ROOM (256U << 10)     /* a piece of output at a time: what the server queues before it says "no room" */

/* The caller that the guard let in. */
const struct caller *req_caller(const struct request *r);
const char *req_ref(const struct request *r); /* {id} */

/* Answers. Each uses up the request. */
void answer_err(struct native *n, struct request *r, const struct err *e);
void answer_json(struct native *n, struct request *r, int status, const struct buf *json); /* says so when it overflowed */

/* A list as an answer, {"items": [...]}: what is put into j between the two calls are its items. */
struct items {
	struct buf b;
	struct jout j;
};
void items_begin(struct items *l); /* l stays where it is */
void items_done(struct items *l);
#define auto_items __attribute__((cleanup(items_done)))
void answer_items(struct native *n, struct request *r, int status, struct items *l);
void answer_created(struct native *n, struct request *r, const char *location, const struct buf *json);
void answer_empty(struct native *n, struct request *r, int status);
void answer_begin(struct native *n, struct request *r, const struct header *h, size_t n_h, const char *type); /* 200, of open length */
int err_status(enum err_kind kind);
void jout_error(struct buf *b, const char *kind, const char *message); /* the whole body */

/* What waits for an asynchronous verb that ends in one answer. Forgotten when the client goes away first. */
struct pending {
	struct native *n;
	struct request *r;
};
struct pending *pending_new(struct native *n, struct request *r);
struct native *pending_take(struct pending *p, struct request **ret); /* frees */

/* A way to name a run again later: everything copied. */
struct run_ref {
	struct caller caller;
	char *sandbox, *run;
};
struct run_ref run_ref_of(const struct request *r, const char *run); /* {id}; run NULL = {run} */
void run_ref_done(struct run_ref *ref);

/* Calls step as long as the client takes more, some steps a turn of the loop so that others get theirs. step answers, writes, and
 * says whether there is more; after PUMP_END (it has ended or cut the answer) and when the client has gone, done frees ctx. */
enum pump_step { PUMP_MORE, PUMP_END };
struct pump_ops {
	enum pump_step (*step)(void *ctx);
	void (*done)(void *ctx);
};
void pump_start(struct native *n, struct request *r, const struct pump_ops *ops, void *ctx);

/* encode.c */
void encode_sandbox(struct jout *j, const char *key, const struct sandbox_view *v);
void encode_volume_mounts(struct jout *j, const struct volume_mounts *m);
int set_volumes(void *into, const char *where, const json_t *v, struct err *e); /* of a struct sandbox_spec */
void encode_publications(struct jout *j, const struct publications *p);
int set_publish(void *into, const char *where, const json_t *v, struct err *e); /* of a struct sandbox_spec */
void encode_snapshot(struct jout *j, const char *key, const struct snapshot_view *v);
void encode_run(struct jout *j, const char *key, const struct run_view *v);
void encode_run_fields(struct jout *j, const struct run_view *v); /* without the braces */
void encode_session(struct jout *j, const char *key, const struct session_view *v);
void encode_file(struct jout *j, const char *key, const struct file_info *v);
void encode_usage(struct jout *j, const char *key, const struct usage *v);
void encode_resources(struct jout *j, const char *key, const struct resources *v);
void encode_image(struct jout *j, const char *key, const struct image_view *v);
void encode_key(struct jout *j, const char *key, const struct key_view *v);
void encode_event(struct jout *j, const char *key, const struct event_view *v);

/* spec.c: decoded and validated. The _done of the struct is called in any case. */
int native_pool_decode(const struct native *n, const struct request *r, struct sandbox_spec *ret, size_t *ret_size, struct err *e); /* ret: to be spec_done, always */
int native_run_decode(const struct request *r, struct run_spec *ret, struct err *e);
int native_sandbox_decode(const struct native *n, const struct request *r, struct sandbox_spec *ret, struct err *e);
int take_idempotency(const struct request *r, char **field, struct err *e); /* the header into the field */
struct sandbox_changes {
	bool has_labels, has_lifetime, has_network, has_secrets, has_permissions;
	struct pairs labels;      /* all there shall be */
	struct pairs env_set;
	char **env_unset;         /* NULL-terminated, or NULL */
	struct lifetime lifetime; /* filled in with the present one before decoding */
	struct sandbox_spec network; /* of which only that, the secrets and the permissions are used; its mode is filled in as well */
};
int changes_decode(struct str body, struct sandbox_changes *c, struct err *e);
void changes_done(struct sandbox_changes *c);

/* run_result.c: a Run with its output, however large */
void answer_result(struct native *n, struct request *r, const struct run_ref *ref, const struct run_view *v);
/* run_output.c: raw bytes */
void answer_output(struct native *n, struct request *r);
/* run_follow.c: NDJSON from offsets to the end. With kill the client's leaving cancels the run. */
void answer_events(struct native *n, struct request *r, const struct run_ref *ref, uint64_t stdout_offset, uint64_t stderr_offset, bool kill);
void answer_follow_raw(struct native *n, struct request *r, const struct run_ref *ref, int stream, uint64_t offset, const struct run_view *v);
/* Headers of raw output; text must hold 4 * 24 bytes. */
size_t output_headers(struct header h[static 4], char text[static 96], int stream, uint64_t offset, const struct run_view *v);

/* handlers */
void native_sandbox_create(struct request *r, void *dialect);
void native_sandbox_list(struct request *r, void *dialect);
void native_sandbox_get(struct request *r, void *dialect);
void native_sandbox_update(struct request *r, void *dialect);
void native_sandbox_delete(struct request *r, void *dialect);
void native_sandbox_start(struct request *r, void *dialect);
void native_sandbox_stop(struct request *r, void *dialect);
void native_sandbox_pause(struct request *r, void *dialect);
void native_sandbox_suspend(struct request *r, void *dialect);
void native_sandbox_resume(struct request *r, void *dialect);
void native_sandbox_fork(struct request *r, void *dialect);
void native_snapshot_create(struct request *r, void *dialect);
void native_snapshot_list(struct request *r, void *dialect);
void native_snapshot_get(struct request *r, void *dialect);
void native_snapshot_delete(struct request *r, void *dialect);
void native_volume_create(struct request *r, void *dialect);
void native_volume_list(struct request *r, void *dialect);
void native_volume_get(struct request *r, void *dialect);
void native_volume_delete(struct request *r, void *dialect);
int resources_decode(struct str body, struct resources *ret, struct err *e);
void native_sandbox_resize(struct request *r, void *dialect);
void native_sandbox_touch(struct request *r, void *dialect);
void native_sandbox_usage(struct request *r, void *dialect);
void native_run_create(struct request *r, void *dialect);
void native_run_list(struct request *r, void *dialect);
void native_run_get(struct request *r, void *dialect);
void native_run_cancel(struct request *r, void *dialect);
void native_run_output(struct request *r, void *dialect);
void native_run_events(struct request *r, void *dialect);
void native_run_attach(struct request *r, void *dialect);
void native_run_stdin(struct request *r, void *dialect);
void native_run_signal(struct request *r, void *dialect);
void native_run_resize(struct request *r, void *dialect);
void native_permission_list(struct request *r, void *dialect);
void native_permission_answer(struct request *r, void *dialect);
void native_session_create(struct request *r, void *dialect);
void native_session_list(struct request *r, void *dialect);
void native_session_get(struct request *r, void *dialect);
void native_session_delete(struct request *r, void *dialect);
void native_interpreter_create(struct request *r, void *dialect);
void native_interpreter_list(struct request *r, void *dialect);
void native_interpreter_get(struct request *r, void *dialect);
void native_interpreter_delete(struct request *r, void *dialect);
void native_interpreter_interrupt(struct request *r, void *dialect);
void native_interpreter_execute(struct request *r, void *dialect);
void native_file_read(struct request *r, void *dialect);
void native_file_write(struct request *r, void *dialect);
void native_file_delete(struct request *r, void *dialect);
void native_file_stat(struct request *r, void *dialect);
void native_file_list(struct request *r, void *dialect);
void native_file_mkdir(struct request *r, void *dialect);
void native_file_move(struct request *r, void *dialect);
void native_file_chmod(struct request *r, void *dialect);
void native_file_find(struct request *r, void *dialect);
void native_file_search(struct request *r, void *dialect);
void native_file_replace(struct request *r, void *dialect);
void native_port_list(struct request *r, void *dialect);
void native_port_proxy(struct request *r, void *dialect);
void native_port_publish(struct request *r, void *dialect);
void native_port_unpublish(struct request *r, void *dialect);
void native_image_list(struct request *r, void *dialect);
void native_image_get(struct request *r, void *dialect);
void native_image_delete(struct request *r, void *dialect);
void native_key_create(struct request *r, void *dialect);
void native_pool_list(struct request *r, void *dialect);
void native_pool_set(struct request *r, void *dialect);
void native_secret_create(struct request *r, void *dialect);
void native_secret_list(struct request *r, void *dialect);
void native_secret_get(struct request *r, void *dialect);
void native_secret_change(struct request *r, void *dialect);
void native_secret_delete(struct request *r, void *dialect);
void native_key_list(struct request *r, void *dialect);
void native_key_revoke(struct request *r, void *dialect);
void native_audit_list(struct request *r, void *dialect);
void native_audit_stream(struct request *r, void *dialect);
void native_webhook_create(struct request *r, void *dialect);
void native_webhook_list(struct request *r, void *dialect);
void native_webhook_delete(struct request *r, void *dialect);
void native_server_events(struct request *r, void *dialect);
void native_server_info_get(struct request *r, void *dialect);
void native_server_health(struct request *r, void *dialect);
void native_server_metrics(struct request *r, void *dialect);

#endif
