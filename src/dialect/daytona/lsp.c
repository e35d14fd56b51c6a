/* Language servers inside a sandbox: the image's own, each a run, spoken to over its stdin and stdout.
 *
 * A server belongs to a sandbox, a language and a project. Its launcher says on stderr where it is (the sandbox's directory, then the
 * project's); then, by the Language Server Protocol, "initialize" goes out, and its answer makes the server READY; tsserver is ready at once.
 * Requests wait in a list by number. When the run ends everything that waits is told, and the server is forgotten: the next call says
 * that it has to be started. After a restart of ours it is the same; what was left of it then ends with its stdin, or with the sandbox. */
#include "dialect/daytona/lsp.h"

#include <errno.h>
#include <stdio.h>
#include <utlist.h>

#define OUTPUT_MAX (200U << 20) /* a server that has said more than that is ended: a run's output is kept */
#define SERVERS_MAX 20          /* of one sandbox */
#define WORDS_MAX 600           /* of stderr, for a message */
#define FILE_MAX (8U << 20)

enum state { STARTING, READY, DEAD };

struct ask; /* a request of a client */
struct language_server {
	struct daytona *d;
	struct caller caller;
	char *sandbox, *language, *project, *run;
	enum lsp_kind kind;
	enum state state;
	struct follower *follower;
	struct buf in, out, words; /* said by it; to be said to it; on stderr */
	char *base, *root;         /* directories, once known */
	uint64_t heard;
	json_int_t serial;
	json_t *open;              /* paths of open files: {path: version} */
	struct ask *asks;
	struct language_server *prev, *next;
};

enum what { ASK_START, ASK_OPEN, ASK_CLOSE, ASK_COMPLETIONS, ASK_SYMBOLS, ASK_WORKSPACE };
struct ask {
	struct call call; /* first */
	enum what what;
	struct language_server *server; /* while it waits there */
	json_int_t id;                  /* of the request, 0 before it is sent */
	char *uri;                      /* of the file */
	struct api_op *op;              /* reading the file that is opened */
	char *path;
	struct buf text;
	struct ask *prev, *next;
};

/* --- asks --- */

static void leave(struct ask *a)
{
	if (a->server)
		DL_DELETE(a->server->asks, a);
	a->server = NULL;
}

static void ask_drop(struct call *c)
{
	struct ask *a = container_of(c, struct ask, call);
	leave(a);
	if (a->op)
		api_op_cancel(a->op);
	buf_done(&a->text);
	free(a->uri);
	free(a->path);
}

static struct ask *ask_new(struct daytona *d, struct request *r, enum what what)
{
	struct ask *a = call_new(sizeof(*a), d, r, ask_drop);
	a->what = what;
	buf_init(&a->text, FILE_MAX);
	return a;
}

static void wait_at(struct ask *a, struct language_server *s)
{
	a->server = s;
	DL_APPEND(s->asks, a);
}

static void fail_ask(struct ask *a, int status, const char *code, const char *text)
{
	struct request *r = a->call.r;
	call_detach(&a->call);
	fail_code(r, status, code, "%s", text);
	call_free(&a->call);
}

/* --- servers --- */

static struct language_server *find(struct daytona *d, const char *sandbox, const char *language, const char *project)
{
	struct language_server *s;
	DL_FOREACH (d->language_servers, s)
		if (streq(s->sandbox, sandbox) && streq(s->language, language) && streq(s->project, project))
			return s;
	return NULL;
}

static void forget_server(struct language_server *s)
{
	DL_DELETE(s->d->language_servers, s);
	api_forget(s->d->api, s);
	if (s->follower)
		follower_free(s->follower);
	while (s->asks)
		leave(s->asks);
	buf_done(&s->in);
	buf_done(&s->out);
	buf_done(&s->words);
	json_decref(s->open);
	free(s->sandbox);
	free(s->language);
	free(s->project);
	free(s->run);
	free(s->base);
	free(s->root);
	free(s);
}

static void give(struct language_server *s)
{
	while (s->out.len) {
		struct err e;
		ssize_t n = api_run_write(s->d->api, &s->caller, s->sandbox, s->run, buf_str(&s->out), &e);
		if (n <= 0)
			return;
		buf_consume(&s->out, (size_t)n);
	}
}

/* Sends a request or, with id 0, a notification. */
static void tell(struct language_server *s, json_int_t id, const char *method, json_t *take_params)
{
	json_t *o = json_object();
	if (s->kind == LSP_TSSERVER) {
		put(o, "seq", json_integer(id ? id : ++s->serial));
		put(o, "type", json_string("request"));
		put(o, "command", json_string(method));
		put(o, "arguments", take_params);
	} else {
		put(o, "jsonrpc", json_string("2.0"));
		if (id)
			put(o, "id", json_integer(id));
		put(o, "method", json_string(method));
		put(o, "params", take_params);
	}
	lsp_frame(&s->out, s->kind, o);
	give(s);
}

static void answer_waiting(struct language_server *s)
{
	struct ask *a, *next;
	s->state = READY;
	DL_FOREACH_SAFE (s->asks, a, next) {
		if (a->what == ASK_START) {
			leave(a);
			call_empty(&a->call, 200);
		}
	}
}

static const char *missing(const struct language_server *s)
{
	return s->kind == LSP_TSSERVER ? "no language server for typescript and javascript is in this image: install the npm package typescript (tsserver)" :
	                                 "no language server for python is in this image: install one of python-lsp-server (pylsp), jedi-language-server, pyright";
}

/* Everybody is told, and it is forgotten. */
static void server_ended(struct language_server *s, const struct run_view *r)
{
	auto_free char *text = NULL;
	bool none = s->state == STARTING && r && r->exit_code == 127, gone = s->state == STARTING && r && r->exit_code == 126;
	int status = none ? 422 : gone ? 404 : 410;
	const char *code = none ? "UNPROCESSABLE_ENTITY" : gone ? "NOT_FOUND" : "GONE";
	while (s->words.len && s->words.data[s->words.len - 1] == '\n')
		s->words.data[--s->words.len] = '\0';
	const char *words = s->words.len ? s->words.data : "";
	if (none)
		text = xstrdup(missing(s));
	else if (gone)
		text = xasprintf("the project's directory cannot be entered: %.128s", s->project);
	else
		text = xasprintf("the language server has ended%s%.300s", *words ? ": " : "", words);
	s->state = DEAD;
	while (s->asks) {
		struct ask *a = s->asks;
		leave(a);
		fail_ask(a, status, code, text);
	}
	forget_server(s);
}

/* --- what a server says --- */

static void initialize(struct language_server *s)
{
	if (s->kind == LSP_TSSERVER) {
		answer_waiting(s);
		return;
	}
	auto_free char *uri = lsp_uri(s->root);
	json_t *capabilities = json_pack("{s:{s:{s:b}, s:{s:b}}}", "textDocument", "documentSymbol", "hierarchicalDocumentSymbolSupport", 1, "synchronization",
	                                 "didSave", 0);
	tell(s, ++s->serial, "initialize",
	     json_pack("{s:n, s:s, s:s, s:[{s:s, s:s}], s:o}", "processId", "rootUri", uri, "rootPath", s->root, "workspaceFolders", "uri", uri, "name",
	               "project", "capabilities", capabilities));
}

/* The launcher's two lines, then what the server complains about. */
static void heard_words(struct language_server *s, struct str bytes)
{
	size_t room = s->words.max - s->words.len;
	buf_add(&s->words, bytes.p, MIN(bytes.n, room));
	while (s->state == STARTING && !s->root) {
		char *nl = s->words.len ? memchr(s->words.data, '\n', s->words.len) : NULL;
		if (!nl)
			return;
		size_t n = (size_t)(nl - s->words.data);
		char *line = xstrndup(s->words.data, n);
		if (*line != '/' || !utf8_valid(str_of(line))) { /* no launcher of ours says that */
			free(line);
			return;
		}
		buf_consume(&s->words, n + 1);
		if (!s->base)
			s->base = line;
		else
			s->root = line;
		if (s->root)
			initialize(s);
	}
}

static void answer(struct ask *a, const struct language_server *s, const json_t *result)
{
	leave(a);
	switch (a->what) {
	case ASK_COMPLETIONS:
		call_json(&a->call, 200, lsp_completions(s->kind, result));
		break;
	case ASK_SYMBOLS:
	case ASK_WORKSPACE:
		call_json(&a->call, 200, lsp_symbols(s->kind, result, a->uri, a->what == ASK_WORKSPACE ? s->root : NULL));
		break;
	case ASK_START:
	case ASK_OPEN:
	case ASK_CLOSE:
		call_empty(&a->call, 200);
		break;
	}
}

static void refuse_ask(struct ask *a, const json_t *error)
{
	const char *text = json_string_value(json_object_get(error, "message"));
	bool unknown = json_integer_value(json_object_get(error, "code")) == -32601;
	auto_free char *message = xasprintf("the language server %s: %.300s", unknown ? "cannot do that" : "refused", text ? text : "no reason given");
	leave(a);
	fail_ask(a, unknown ? 422 : 400, unknown ? "UNPROCESSABLE_ENTITY" : "BAD_REQUEST", message);
}

static struct ask *ask_of(struct language_server *s, json_int_t id)
{
	struct ask *a;
	DL_FOREACH (s->asks, a)
		if (a->id && a->id == id)
			return a;
	return NULL;
}

static void heard_message(struct language_server *s, const json_t *o)
{
	bool ts = s->kind == LSP_TSSERVER;
	json_t *id = json_object_get(o, ts ? "request_seq" : "id");
	if (ts && !streq(json_string_value(json_object_get(o, "type")), "response"))
		return; /* an event */
	if (!ts && json_object_get(o, "method")) {
		if (id) { /* it asks us: settings, a progress bar. There is nothing to be had, but it must not wait */
			json_t *reply = json_pack("{s:s, s:O, s:n}", "jsonrpc", "2.0", "id", id, "result");
			lsp_frame(&s->out, s->kind, reply);
			give(s);
		}
		return;
	}
	if (!ts && s->state == STARTING && json_integer_value(id) == 1) {
		tell(s, 0, "initialized", json_object());
		answer_waiting(s);
		return;
	}
	struct ask *a = ask_of(s, json_integer_value(id));
	if (a && json_is_object(json_object_get(o, "error")))
		refuse_ask(a, json_object_get(o, "error"));
	else if (a) /* tsserver has "No content available." for an empty answer: it has no body then */
		answer(a, s, json_object_get(o, ts ? "body" : "result"));
}

static void end_server(struct language_server *s)
{
	struct err quiet;
	if (s->run)
		api_run_cancel(s->d->api, &s->caller, s->sandbox, s->run, &quiet);
}

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	struct language_server *s = ctx;
	struct str body;
	size_t n;
	int rc = 0;
	if (stream == 2) {
		heard_words(s, bytes);
		return;
	}
	s->heard = offset + bytes.n;
	if (buf_add(&s->in, bytes.p, bytes.n) < 0 || s->heard > OUTPUT_MAX)
		rc = -EBADMSG;
	while (rc >= 0 && (rc = lsp_next(&s->in, &body, &n)) == 1) {
		json_t *o = json_loadb(body.p, body.n, 0, NULL);
		buf_consume(&s->in, n);
		heard_message(s, o);
		json_decref(o);
	}
	if (rc < 0) {
		buf_reset(&s->in);
		end_server(s);
	}
}

static void on_room(void *ctx)
{
	give(ctx);
}

static void on_end(void *ctx, const struct run_view *r)
{
	server_ended(ctx, r);
}

/* --- starting --- */

/* "$1" is the project. What follows is tried in turn; programs of the project itself come first. */
#define LAUNCH                                                                                                                          \
	"pwd >&2; cd -- \"$1\" 2>/dev/null || exit 126; pwd >&2; PATH=\"$PWD/.venv/bin:$PWD/venv/bin:$PWD/node_modules/.bin:$PATH:$HOME/.local/bin\"; " \
	"t() { command -v \"$1\" >/dev/null 2>&1 && exec \"$@\"; }; "
static const char launch_python[] = LAUNCH "t pylsp; t jedi-language-server; t pyright-langserver --stdio; t basedpyright-langserver --stdio; exit 127";
static const char launch_typescript[] = LAUNCH "t tsserver --disableAutomaticTypingAcquisition; exit 127";

static void on_started(void *ctx, const struct err *e, const struct run_view *r)
{
	static const struct follower_events events = { .on_output = on_output, .on_stdin_room = on_room, .on_end = on_end };
	struct language_server *s = ctx;
	struct err why = { 0 };
	if (!e) {
		s->run = xstrdup(r->id);
		s->follower = api_run_follow(s->d->api, &s->caller, s->sandbox, s->run, 0, 0, &events, s, &why);
		if (s->follower)
			return;
	}
	while (s->asks) {
		struct ask *a = s->asks;
		leave(a);
		call_fail(&a->call, e ? e : &why);
	}
	forget_server(s);
}

static struct language_server *add_server(struct daytona *d, const struct caller *c, const char *sandbox, const char *language, const char *project)
{
	struct language_server *s = xcalloc(1, sizeof(*s));
	s->d = d;
	s->caller = *c;
	s->sandbox = xstrdup(sandbox);
	s->language = xstrdup(language);
	s->project = xstrdup(project);
	s->kind = streq(language, "python") ? LSP_SERVER : LSP_TSSERVER;
	s->open = json_object();
	buf_init(&s->in, LSP_BODY_MAX + LSP_HEAD_MAX + (1U << 20));
	buf_init(&s->out, 64U << 20);
	buf_init(&s->words, 2 * SPEC_PATH_MAX + WORDS_MAX);
	DL_APPEND(d->language_servers, s);
	return s;
}

static void launch(struct language_server *s)
{
	struct run_spec spec;
	const char *const argv[] = { "/bin/sh", "-c", s->kind == LSP_SERVER ? launch_python : launch_typescript, "sh", s->project, NULL };
	run_spec_init(&spec);
	spec.argv = strv_copy((char *const *)(uintptr_t)argv);
	spec.display = xasprintf("language server: %s", s->language);
	spec.stdin_open = spec.detach = true;
	api_run_start(s->d->api, &s->caller, s->sandbox, &spec, on_started, s);
	run_spec_done(&spec);
}

/* --- requests --- */

struct target { /* of every call */
	const char *language, *project, *uri, *query;
	json_int_t line, character;
};

static int check_target(const struct target *t, bool file, struct err *e)
{
	if (!t->language || (!streq(t->language, "python") && !streq(t->language, "typescript") && !streq(t->language, "javascript")))
		return err_set(e, ERR_INVALID, EINVAL, "languageId must be python, typescript or javascript");
	if (!t->project || !*t->project || strlen(t->project) > SPEC_PATH_MAX)
		return err_set(e, ERR_INVALID, EINVAL, "pathToProject is required");
	if (file && (!t->uri || !*t->uri || strlen(t->uri) > SPEC_PATH_MAX))
		return err_set(e, ERR_INVALID, EINVAL, "uri is required");
	return 0;
}

/* The request's body; strings stay in it. NULL and answered when it will not do. */
static json_t *decode(struct request *r, struct target *t, bool file)
{
	struct err e = { 0 };
	const json_t *at = NULL;
	int64_t line = 0, character = 0;
	json_t *body = body_object(r, &e);
	if (body && want_text(body, "languageId", &t->language, &e) >= 0 && want_text(body, "pathToProject", &t->project, &e) >= 0 &&
	    want_text(body, "uri", &t->uri, &e) >= 0 && check_target(t, file, &e) == 0) {
		at = json_object_get(body, "position");
		if (!at || (want_int(at, "line", 0, INT32_MAX, &line, &e) >= 0 && want_int(at, "character", 0, INT32_MAX, &character, &e) >= 0)) {
			t->line = line;
			t->character = character;
			return body;
		}
	}
	json_decref(body);
	fail(r, &e);
	return NULL;
}

/* The running server of the target, or an answer and NULL. */
static struct language_server *ready(struct daytona *d, struct request *r, const char *sandbox, const struct target *t)
{
	struct language_server *s = find(d, sandbox, t->language, t->project);
	if (s && s->state == READY)
		return s;
	fail_code(r, 400, "LSP_SERVER_NOT_INITIALIZED", "no language server for %s runs in %.128s: start it first", t->language, t->project);
	return NULL;
}

static void handle_start(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	struct target t = { 0 };
	struct language_server *s;
	size_t n = 0;
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = decode(r, &t, false);
	if (!body)
		return;
	DL_FOREACH (d->language_servers, s)
		n += streq(s->sandbox, v.id);
	s = find(d, v.id, t.language, t.project);
	if (s && s->state == READY) {
		req_reply_empty(r, 200);
	} else if (!s && n >= SERVERS_MAX) {
		fail_code(r, 429, "LIMIT", "%d language servers run in this sandbox already: stop some", SERVERS_MAX);
	} else {
		bool anew = !s;
		struct ask *a = ask_new(d, r, ASK_START);
		if (anew)
			s = add_server(d, &a->call.caller, v.id, t.language, t.project);
		wait_at(a, s);
		if (anew)
			launch(s);
	}
	json_decref(body);
}

static void handle_stop(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	struct target t = { 0 };
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = decode(r, &t, false);
	if (!body)
		return;
	struct language_server *s = ready(d, r, v.id, &t);
	if (s) {
		end_server(s);
		server_ended(s, NULL);
		req_reply_empty(r, 200);
	}
	json_decref(body);
}

/* --- files --- */

static void show_file(struct language_server *s, const char *path, json_t *take_text)
{
	auto_free char *uri = lsp_uri(path);
	json_int_t version = json_integer_value(json_object_get(s->open, path)) + 1;
	json_object_set_new(s->open, path, json_integer(version));
	if (s->kind == LSP_TSSERVER) { /* it reads the file itself; the text that we have read is newer than what it may still hold */
		tell(s, 0, "open", json_pack("{s:s, s:o}", "file", path, "fileContent", take_text));
	} else if (version == 1) {
		tell(s, 0, "textDocument/didOpen",
		     json_pack("{s:{s:s, s:s, s:I, s:o}}", "textDocument", "uri", uri, "languageId", s->language, "version", version, "text", take_text));
	} else {
		tell(s, 0, "textDocument/didChange",
		     json_pack("{s:{s:s, s:I}, s:[{s:o}]}", "textDocument", "uri", uri, "version", version, "contentChanges", "text", take_text));
	}
}

static void on_file(void *ctx, struct str bytes)
{
	struct ask *a = ctx;
	buf_add(&a->text, bytes.p, bytes.n);
}

static void on_file_end(void *ctx, const struct err *e)
{
	struct ask *a = ctx;
	struct language_server *s = a->server;
	a->op = NULL;
	if (e) {
		leave(a);
		call_fail(&a->call, e);
	} else if (a->text.overflow) {
		leave(a);
		fail_ask(a, 413, "PAYLOAD_TOO_LARGE", "files of up to 8 MiB can be opened");
	} else {
		show_file(s, a->path, text_json(buf_str(&a->text)));
		answer(a, s, NULL);
	}
}

static void handle_open(struct request *r, void *daytona)
{
	static const struct op_events events = { .on_data = on_file, .on_end = on_file_end };
	struct daytona *d = daytona;
	struct sandbox_view v;
	struct target t = { 0 };
	struct err e = { 0 };
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = decode(r, &t, true);
	struct language_server *s = body ? ready(d, r, v.id, &t) : NULL;
	char *path = s ? lsp_path(t.uri, s->base) : NULL;
	if (s && !path) {
		fail_code(r, 400, "BAD_REQUEST", "uri: file://...");
	} else if (s) {
		struct ask *a = ask_new(d, r, ASK_OPEN);
		struct op_spec spec = { .kind = OP_READ, .path = path };
		a->path = path;
		wait_at(a, s);
		a->op = api_op_open(d->api, &a->call.caller, v.id, &spec, &events, a, &e);
		if (!a->op)
			call_fail(&a->call, &e);
	}
	json_decref(body);
}

static void handle_close(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct sandbox_view v;
	struct target t = { 0 };
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = decode(r, &t, true);
	struct language_server *s = body ? ready(d, r, v.id, &t) : NULL;
	if (s) {
		auto_free char *path = lsp_path(t.uri, s->base), *uri = path ? lsp_uri(path) : NULL;
		if (path && json_object_del(s->open, path) == 0)
			tell(s, 0, s->kind == LSP_TSSERVER ? "close" : "textDocument/didClose",
			     s->kind == LSP_TSSERVER ? json_pack("{s:s}", "file", path) : json_pack("{s:{s:s}}", "textDocument", "uri", uri));
		req_reply_empty(r, 200);
	}
	json_decref(body);
}

/* --- questions --- */

static void question(struct daytona *d, struct request *r, enum what what, const char *sandbox, const struct target *t)
{
	struct language_server *s = ready(d, r, sandbox, t);
	if (!s)
		return;
	bool ts = s->kind == LSP_TSSERVER;
	auto_free char *path = t->uri ? lsp_path(t->uri, s->base) : NULL, *uri = path ? lsp_uri(path) : NULL;
	if (what != ASK_WORKSPACE && !path) {
		fail_code(r, 400, "BAD_REQUEST", "uri: file://...");
		return;
	}
	struct ask *a = ask_new(d, r, what);
	a->uri = take_ptr(&uri);
	a->id = ++s->serial;
	wait_at(a, s);
	if (what == ASK_COMPLETIONS)
		tell(s, a->id, ts ? "completionInfo" : "textDocument/completion",
		     ts ? json_pack("{s:s, s:I, s:I}", "file", path, "line", t->line + 1, "offset", t->character + 1) :
		          json_pack("{s:{s:s}, s:{s:I, s:I}}", "textDocument", "uri", a->uri, "position", "line", t->line, "character", t->character));
	else if (what == ASK_SYMBOLS)
		tell(s, a->id, ts ? "navtree" : "textDocument/documentSymbol",
		     ts ? json_pack("{s:s}", "file", path) : json_pack("{s:{s:s}}", "textDocument", "uri", a->uri));
	else
		tell(s, a->id, ts ? "navto" : "workspace/symbol",
		     ts ? json_pack("{s:o, s:i}", "searchValue", textz_json(t->query), "maxResultCount", 1000) : json_pack("{s:o}", "query", textz_json(t->query)));
}

static void handle_completions(struct request *r, void *daytona)
{
	struct sandbox_view v;
	struct target t = { 0 };
	json_t *body = toolbox_sandbox(daytona, r, &v) ? decode(r, &t, true) : NULL;
	if (body)
		question(daytona, r, ASK_COMPLETIONS, v.id, &t);
	json_decref(body);
}

static void by_query(struct request *r, struct daytona *d, enum what what)
{
	struct sandbox_view v;
	struct err e = { 0 };
	struct target t = { req_query(r, "languageId"), req_query(r, "pathToProject"), req_query(r, "uri"), req_query(r, "query"), 0, 0 };
	if (!toolbox_sandbox(d, r, &v))
		return;
	if (what == ASK_WORKSPACE)
		t.uri = NULL;
	if (!t.query)
		t.query = "";
	if (check_target(&t, what == ASK_SYMBOLS, &e) < 0)
		fail(r, &e);
	else
		question(d, r, what, v.id, &t);
}

static void handle_symbols(struct request *r, void *daytona)
{
	by_query(r, daytona, ASK_SYMBOLS);
}

static void handle_workspace(struct request *r, void *daytona)
{
	by_query(r, daytona, ASK_WORKSPACE);
}

void language_servers_done(struct daytona *d)
{
	while (d->language_servers)
		forget_server(d->language_servers);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "/lsp/start", .body = BODY_BUFFER, .handle = handle_start },
	{ .method = "POST", .pattern = "/lsp/stop", .body = BODY_BUFFER, .handle = handle_stop },
	{ .method = "POST", .pattern = "/lsp/did-open", .body = BODY_BUFFER, .handle = handle_open },
	{ .method = "POST", .pattern = "/lsp/did-close", .body = BODY_BUFFER, .handle = handle_close },
	{ .method = "POST", .pattern = "/lsp/completions", .body = BODY_BUFFER, .handle = handle_completions },
	{ .method = "GET", .pattern = "/lsp/document-symbols", .handle = handle_symbols },
	{ .method = "GET", .pattern = "/lsp/workspacesymbols", .handle = handle_workspace },
};
const struct route_table lsp_routes = { routes, ARRAY_LEN(routes) };
