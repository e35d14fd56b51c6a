/* What the files of the MCP dialect share. Theory of operation:
 *
 * A POST is one JSON-RPC message. What needs no sandbox is answered at once (mcp.c). A tools/call becomes a struct tool_call: its
 * arguments are checked against the tool's own schema (schema.c), its sandbox is found, or made when the session has none, and then
 * the tool's begin() works with arguments that are known to be right. It ends exactly once: by tool_result or tool_fail, or with the
 * client's leaving. A session that ends takes along the sandboxes that it has made; calls under way outlive it and fail by
 * themselves. */
#ifndef CAISSON_DIALECT_MCP_INTERNAL_H
#define CAISSON_DIALECT_MCP_INTERNAL_H

#include "dialect/mcp/mcp.h"

#include <jansson.h>
#include <uthash.h>

#define MCP_REPLY_MAX (8U << 20)
#define MCP_BODY_MAX (16U << 20)

struct tool_call;

struct session {
	char id[65];
	char tenant[64];
	uint64_t used_ms; /* monotonic */
	char **made;      /* ids of the sandboxes that go with it, in order of creation */
	size_t n_made;
	char *last;       /* the sandbox of calls that name none, or NULL */
	struct tool_call *calls; /* under way (utlist) */
	bool making;      /* the sandbox of calls that name none is on its way */
	UT_hash_handle hh;
};

#define CLIP_HALF (32U << 10) /* of one stream in an answer: its first and its last so many bytes */
struct clip {
	struct buf head, tail;
	uint64_t total;
};
struct code { /* of a run_code in the interpreter */
	struct execution *execution;
	struct clip stream[2];
	struct buf value; /* of the last expression */
	json_t *pictures;
	bool failed, interrupted;
};

struct making;
struct mcp {
	struct api *api;
	struct mcp_options o;
	struct dialect dialect;
	struct session *sessions;
	struct making *makings;
	json_t *tools; /* tools.json */
};

struct tool {
	const char *name;
	bool no_sandbox; /* begin() does not need one */
	void (*begin)(struct tool_call *c);
};
extern const struct tool mcp_tools[]; /* name NULL ends it */

struct tool_call {
	struct mcp *m;
	struct request *r;
	struct session *s; /* NULL once it has ended */
	struct caller caller;
	const struct tool *tool;
	json_t *id;   /* of the message */
	json_t *args; /* an object */
	char *sandbox; /* id or name */
	bool waits;    /* for the session's sandbox */
	struct making *making; /* its own */
	struct tool_call *prev, *next;
	/* of some tools: */
	char *run;
	struct api_op *op;
	struct code code;
	struct buf data;
	size_t sent;
	json_t *list;
	json_int_t size;
	bool found, cut;
};

/* tools.c */
void tool_start(struct mcp *m, struct request *r, struct session *s, const json_t *id, const json_t *params);
/* The ends of a call. */
void tool_content(struct tool_call *c, json_t *take_content, json_t *take_structured);
void tool_result(struct tool_call *c, const char *text, json_t *take_structured); /* content: one text */
void tool_fail(struct tool_call *c, const struct err *e); /* a tool's error: for the model to read */
void tool_op(struct tool_call *c, const struct op_spec *spec, const struct op_events *ev);
const char *arg_text(const struct tool_call *c, const char *name); /* NULL when not given */
json_int_t arg_int(const struct tool_call *c, const char *name, json_int_t otherwise);
bool arg_flag(const struct tool_call *c, const char *name);
void arg_pairs(const struct tool_call *c, const char *name, struct pairs *to);
json_t *text_value(struct str s); /* bytes that are no UTF-8 become U+FFFD */

/* sessions: mcp.c */
void session_keep(struct session *s, const char *sandbox); /* remember: to be deleted with it */
void session_drop(struct session *s, const char *sandbox); /* no longer there */
#define SESSION_MADE_MAX 256

/* box.c, run.c, files.c */
void tool_create(struct tool_call *c);
void make_for_session(struct session *s, struct tool_call *c); /* begins the calls that wait, or fails them */
void making_leave(struct tool_call *c);                        /* the call has gone */
void makings_leave(struct mcp *m, struct session *s);          /* the session has ended; NULL: all have */
void tool_delete(struct tool_call *c);
void tool_expose(struct tool_call *c);
void tool_run(struct tool_call *c);
void tool_run_code(struct tool_call *c);
void code_init(struct code *x);
void code_done(struct code *x); /* leaves what runs */
void code_run(struct tool_call *c);
void tool_read(struct tool_call *c);
void tool_write(struct tool_call *c);
void tool_list(struct tool_call *c);

/* schema.c: the part of JSON Schema that tools.json uses */
int schema_check(const json_t *schema, const json_t *args, struct err *e);

#endif
