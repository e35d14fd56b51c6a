/* What the files of the Daytona dialect share. Theory of operation:
 *
 * A route's handler decodes the request and calls a verb. When the verb answers later, the handler's state is a struct that
 * begins with `struct call`: it is made by call_new(), and ends exactly once - by call_json(), call_empty() or call_fail()
 * (which answer and free it), by call_free() after a streamed answer, or by the client leaving (then call_gone() has
 * api_forget() drop the pending verb and the struct's own drop() give back operations and followers). */
#ifndef CAISSON_DIALECT_DAYTONA_INTERNAL_H
#define CAISSON_DIALECT_DAYTONA_INTERNAL_H

#include "base/log.h"
#include "dialect/daytona/daytona.h"

#define BASE_PATH "/daytona"
/* Kept of one command's output when the whole of it goes into one JSON reply. Beyond it the reply says that it was cut. */
#define REPLY_OUTPUT_MAX (32U << 20)
#define LIST_MAX 100000 /* entries in one JSON list of files, matches, lines */

struct events;
struct build;
struct dockerfile;
struct starting;
struct storage_token;
struct daytona {
	uv_loop_t *loop;
	struct api *api;
	struct server *server;
	char *public_url, *preview_domain, *target, *ssh;
	enum network_mode network; /* of sandboxes that do not say */
	bool link_by_host; /* preview links are given in the host form */
	struct route *routes;
	size_t n_routes;
	char **patterns; /* heap strings that routes point to */
	size_t n_patterns;
	struct dialect dialects[4];
	struct events *events;
	struct language_server *language_servers;
	struct build *builds; /* newest first */
	struct starting *starting; /* commands of images */
	struct storage_token *tokens;
};

/* network.c: what a body says of it. given: anything at all; then mode, and with "allow" a heap list; with "none" the names that will be allowed
 * when it is one no more (domainAllowList), to be kept in a sandbox's extra as NETWORK_BEHIND. */
#define NETWORK_BEHIND "domainAllowList"
struct network_wish {
	bool given;
	enum network_mode mode;
	char **allow;
	char *behind;
};
/* before: the rules that the sandbox has; NULL at a create. */
int network_decode(const json_t *body, char *const *before, struct network_wish *w, struct err *e);
void network_wish_done(struct network_wish *w);
void network_put(json_t *o, const struct sandbox_spec *s, const json_t *extra);
void handle_network(struct request *r, void *daytona);

enum route_tag {
	TAG_CONTROL,  /* control plane: bearer key */
	TAG_TOOLBOX,  /* inside a sandbox: bearer key, or the sandbox's own preview token */
	TAG_OPEN,     /* authenticates itself, or needs nothing */
};

/* One area's table; toolbox patterns are relative to the sandbox ("/process/execute"). */
struct route_table {
	const struct route *routes;
	size_t n;
};
extern const struct route_table snapshot_routes, build_routes, storage_routes, sandbox_routes, catalog_routes, preview_routes, events_routes, signed_routes, telemetry_routes, volume_routes, ssh_routes, secret_routes;                 /* as they are */
extern const struct route_table process_routes, session_routes, pty_routes, file_routes, upload_routes, download_routes, box_routes,
	git_routes, interpreter_routes, lsp_routes; /* toolbox */

/* --- errors.c --- */
int status_of(enum err_kind kind);
/* Answers with e; route and kind choose status, code and source. */
void fail(struct request *r, const struct err *e);
/* Answers with a code of the SDKs' table, whose class they raise. */
void fail_code(struct request *r, int status, const char *code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The same with further members for the body. */
void fail_more(struct request *r, int status, const char *code, json_t *take, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* {"statusCode","message","code","source"}: the body of an error, also of one file in a bulk download. */
json_t *error_body(const struct err *e, bool toolbox);
void refuse(struct request *r, int status, const struct err *e, void *daytona);
int sandbox_not_found(struct err *e, const char *ref); /* in the words that integrations look for; returns -ENOENT */

/* --- json.c --- */
/* Text of unknown origin: bytes that are not UTF-8 become U+FFFD. */
json_t *text_json(struct str s);
json_t *textz_json(const char *z); /* NULL gives null */
json_t *time_json(uint64_t unix_ms);
json_t *number_json(double v); /* an integer when it is whole */
json_t *pairs_json(const struct pairs *p);
void put(json_t *object, const char *key, json_t *take); /* a NULL value is our bug or memory: the key is left out */

/* The request's body as an object. A body of no bytes is an empty object. NULL and e otherwise. */
json_t *body_object(const struct request *r, struct err *e);
/* A member of the wanted type; absent or null: *ret keeps its value and 0 is returned; present: 1. Wrong type: -EINVAL and e
 * names the member. */
int want_text(const json_t *o, const char *key, const char **ret, struct err *e);
int want_bool(const json_t *o, const char *key, bool *ret, struct err *e);
int want_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e);
int want_number(const json_t *o, const char *key, double min, double max, double *ret, struct err *e);
int want_pairs(const json_t *o, const char *key, struct pairs *ret, struct err *e); /* object of strings */
int want_texts(const json_t *o, const char *key, char ***ret, struct err *e);       /* array of strings; heap, NULL-terminated */
int want_array(const json_t *o, const char *key, const json_t **ret, struct err *e);
void texts_free(char **v);
/* The same for text that came in a path or a query. */
int parse_int(const char *field, const char *text, int64_t min, int64_t max, int64_t *ret, struct err *e);
int parse_bool(const char *field, const char *text, bool *ret, struct err *e);
int query_mode(const struct request *r, const char *name, uint32_t *ret, struct err *e); /* octal; 1 given, 0 absent */
int query_required(const struct request *r, const char *name, const char **ret, struct err *e);

/* --- call.c --- */
struct call {
	struct daytona *d;
	struct request *r; /* NULL once answered */
	struct caller caller;
	char *ref; /* the sandbox of the path, or NULL */
	void (*drop)(struct call *c);
};
void *call_new(size_t size, struct daytona *d, struct request *r, void (*drop)(struct call *c));
void call_json(struct call *c, int status, json_t *take);
void call_empty(struct call *c, int status);
void call_fail(struct call *c, const struct err *e);
void call_detach(struct call *c); /* before a last word to the request: no gone notice any more; r becomes NULL */
void call_free(struct call *c);
/* Answers an api_done_fn with `status` and no body, or the error. */
void call_on_done_empty(void *call, const struct err *e, int status);
const struct caller *caller_of(const struct request *r);
/* The sandbox of a toolbox request, running: else answers and returns false. */
bool toolbox_sandbox(struct daytona *d, struct request *r, struct sandbox_view *ret);
/* base URL as this client sees us; heap. For a stored Host: base_url_of. */
char *base_url(const struct daytona *d, const struct request *r);
/* True when the SDK that asks splits marked output itself (0.167.0 and later take JSON). */
enum log_form { LOG_JSON, LOG_MARKED, LOG_PLAIN };
enum log_form wanted_log_form(const struct request *r);

/* --- sandbox.c --- */
json_t *sandbox_json(const struct daytona *d, const char *base, const struct sandbox_view *v, bool item);
const char *sandbox_state_word(enum sandbox_state s);
/* The dialect's own part of a sandbox's `extra`; always a new object. */
json_t *extra_load(const struct sandbox_view *v);
int extra_put(struct daytona *d, const struct caller *c, const struct sandbox_view *v, const char *key, json_t *take, struct err *e);
char *extra_text(const char *whole, json_t *ours); /* the whole `extra` with our part replaced; heap */

/* --- signed.c --- */
/* True when the request's signature lets whoever has it in. e is set when there is one that does not. */
/* An API key; the request is then made by its right. */
int key_opens(struct daytona *d, struct request *r, struct str key, struct caller *ret, struct err *e);
bool signature_opens(struct daytona *d, struct request *r, const struct route *route, struct caller *ret, struct err *e);

/* --- catalog.c --- */
json_t *page_json(json_t *items, uint64_t total, int64_t page, size_t limit); /* items is taken */

/* --- entrypoint.c: the image's own command --- */
#define ENTRYPOINT_FIELD "entrypoint" /* of `extra`: an array of strings */
json_t *entrypoint_json(char *const *command); /* NULL: there is none */
/* Of what is made by a Dockerfile: its own, else that of the caller's snapshot that it begins as. New, or NULL. */
json_t *entrypoint_of(struct daytona *d, const struct caller *c, const struct dockerfile *f);
/* Starts it, unless it runs; nothing where there is none, or one that would only wait. */
void entrypoint_start(struct daytona *d, const struct caller *c, const struct sandbox_view *v);
/* Its last run; -ENOENT: there is none (any more). */
int entrypoint_run(struct daytona *d, const struct caller *c, const struct sandbox_view *v, struct run_view *ret);
void entrypoints_done(struct daytona *d);

/* --- snapshots.c --- */
/* Is this one of the caller's snapshots? 1 and the dialect's part of what is kept with it (the caller's), 0, or why it may not be used. */
int snapshot_usable(struct daytona *d, const struct caller *c, const char *ref, json_t **ret_extra, struct err *e);

/* --- layer.c --- */
bool snapshot_is_layer(const struct snapshot_view *v); /* what builds keep for themselves */

/* --- secrets.c --- */
int secrets_decode(const json_t *body, struct pairs *ret, struct err *e); /* variable -> name of a secret */

/* --- volumes.c --- */
int volumes_decode(const json_t *body, struct volume_mounts *ret, struct err *e);
json_t *volumes_json(const struct volume_mounts *m);

/* --- create.c --- */
int want_resources(const json_t *body, struct resources *res, struct err *e); /* cpu, memory, disk, gpu */
void handle_create(struct request *r, void *daytona);

/* --- collect.c: output of a run into one reply or a socket --- */
#define MARK_STDOUT "\x01\x01\x01"
#define MARK_STDERR "\x02\x02\x02"
struct collector {
	struct buf out, err, marked; /* marked: both in order of arrival, with a marker at each change */
	bool want_marked, truncated;
	int last; /* stream of the last marker */
};
void collector_init(struct collector *c, bool want_marked);
void collector_done(struct collector *c);
void collector_add(struct collector *c, int stream, struct str bytes);
/* Both streams behind each other as a JSON string, with a closing line when something was cut or memory ran out. */
json_t *collector_text(const struct collector *c, const struct run_view *r);
/* stderr behind stdout, in `out`. */
void collector_join(struct collector *c);
/* Reads what is there of an existing run. */
int collector_read(struct collector *c, struct daytona *d, const struct caller *who, const char *ref, const char *run, struct err *e);

/* --- logs.c: both use up the request --- */
void log_stream(struct daytona *d, struct request *r, const char *run);
void log_stream_empty(struct daytona *d, struct request *r);

/* --- lsp.c --- */
void language_servers_done(struct daytona *d);

/* --- storage.c --- */
void storage_done(struct daytona *d);

/* --- events.c --- */
void events_init(struct daytona *d);
void events_done(struct daytona *d);

#endif
