/* Runs the commands of one git call one after another, and turns a failure into an error of the API.
 *
 * Secrets never stand in an argument, where every process of the sandbox could read them and a listing would keep them: they
 * are in the environment of that one git, and a credential helper given on its command line prints them when git asks for the host of
 * the call (gitorigin.c). */
#include "dialect/daytona/git.h"

#include <assert.h>

/* Only for the host of the call: git asks for that of a redirect or of a submodule, too. */
#define HELPER                                                                                                                              \
	"credential.helper=!f() { test \"$1\" = get || return 0; p= h=; while IFS='=' read -r k v && test \"$k\"; do case $k in protocol) p=$v ;; " \
	"host) h=$v ;; esac; done; test \"$p://$h\" = \"$CAISSON_GIT_ORIGIN\" || return 0; printf 'username=%s\\npassword=%s\\n' "             \
	"\"$CAISSON_GIT_USERNAME\" \"$CAISSON_GIT_PASSWORD\"; }; f"

static void git_run(struct git_call *g);

static void git_drop(struct execution *x)
{
	struct git_call *g = container_of(x, struct git_call, x);
	for (size_t i = 0; i < g->n_steps; i++) {
		strv_free(g->step[i].argv);
		free(g->step[i].input);
	}
	free(g->cwd);
	free(g->username);
	free(g->password);
	free(g->origin);
	json_decref(g->reply);
}

void git_arg(struct git_step *s, const char *text)
{
	s->argv = xreallocarray(s->argv, s->n + 2, sizeof(*s->argv));
	s->argv[s->n++] = xstrdup(text);
	s->argv[s->n] = NULL;
}

void git_args(struct git_step *s, char *const *texts)
{
	for (size_t i = 0; texts && texts[i]; i++)
		git_arg(s, texts[i]);
}

struct git_step *git_step_of(struct git_call *g, const char *const *args)
{
	assert(g->n_steps < GIT_STEPS_MAX);
	struct git_step *s = &g->step[g->n_steps++];
	s->ok_exit = -1;
	for (; *args; args++)
		git_arg(s, *args);
	return s;
}

static void fail_git(struct git_call *g)
{
	struct request *r = g->x.call.r;
	const struct collector *o = &g->x.output;
	int status;
	const char *code;
	/* A merge and an empty commit give their reason on stdout. */
	auto_buf struct buf all;
	buf_init(&all, 2U * REPLY_OUTPUT_MAX + 1);
	buf_add(&all, o->err.data, o->err.len);
	buf_add(&all, o->out.data, o->out.len);
	auto_free char *message = git_message(buf_str(&all), g->password);
	git_classify(message, &status, &code);
	if (g->x.end.exit_code == 127) { /* what a guest says of a program that is not there */
		status = 422;
		code = "UNPROCESSABLE_ENTITY";
	}
	call_detach(&g->x.call);
	if (*message)
		fail_code(r, status, code, "git %s: %s", g->verb, message);
	else
		fail_code(r, status, code, "git %s ended with %d", g->verb, g->x.end.exit_code);
	call_free(&g->x.call);
}

static void fail_plain(struct git_call *g, int status, const char *code, const char *what)
{
	struct request *r = g->x.call.r;
	call_detach(&g->x.call);
	fail_code(r, status, code, "git %s: %s", g->verb, what);
	call_free(&g->x.call);
}

static bool tolerated(const struct git_call *g, const struct git_step *s)
{
	const struct buf *err = &g->x.output.err;
	return g->x.end.exit_code == s->ok_exit && (!s->ok_text || (err->len && memmem(err->data, err->len, s->ok_text, strlen(s->ok_text))));
}

static void git_answer(struct execution *x)
{
	struct git_call *g = container_of(x, struct git_call, x);
	const struct git_step *s = &g->step[g->at];
	if (execution_failed(x))
		return;
	if (x->end.state == RUN_FAILED) { /* of all that a run needs, the directory is what a client chooses */
		fail_plain(g, 404, "GIT_REPO_NOT_FOUND", x->message);
		return;
	}
	if (x->end.oom) {
		fail_plain(g, 507, "INSUFFICIENT_STORAGE", "killed: out of memory");
		return;
	}
	if (x->end.exit_code != 0 && !tolerated(g, s)) {
		fail_git(g);
		return;
	}
	if (g->read && (x->output.truncated || x->end.truncated)) {
		fail_plain(g, 413, "PAYLOAD_TOO_LARGE", "the answer is too long");
		return;
	}
	if (g->read && g->read(g, buf_str(&x->output.out)) < 0) {
		fail_plain(g, 502, "BAD_GATEWAY", "printed something that can't be read");
		return;
	}
	g->at += 1 + (x->end.exit_code == 0 ? (size_t)s->skip : 0);
	if (g->at < g->n_steps) {
		execution_again(x);
		git_run(g);
	} else if (g->reply) {
		call_json(&x->call, g->status, json_incref(g->reply));
	} else {
		call_empty(&x->call, g->status);
	}
}

struct git_call *git_call_new(struct daytona *d, struct request *r, const char *verb, int status)
{
	struct git_call *g = execution_new_sized(sizeof(*g), d, r, false, git_answer);
	g->x.drop = git_drop;
	g->verb = verb;
	g->status = status;
	return g;
}

/* The step that speaks to the remote gets them, those that find out which it is do not. */
static bool given(const struct git_call *g)
{
	return (g->username || g->password) && g->at >= g->address_steps;
}

/* The whole command: git, what holds for every call, the step's own arguments. */
static char **command_of(const struct git_call *g, const struct git_step *s)
{
	struct git_step whole = { 0 };
	git_arg(&whole, "git");
	if (given(g)) {
		git_arg(&whole, "-c");
		git_arg(&whole, "credential.helper="); /* forgets those of the configuration: they would be told our secret to keep */
		git_arg(&whole, "-c");
		git_arg(&whole, HELPER);
	}
	if (g->insecure_tls) {
		git_arg(&whole, "-c");
		git_arg(&whole, "http.sslVerify=false");
	}
	git_args(&whole, s->argv);
	return whole.argv;
}

static void git_run(struct git_call *g)
{
	const struct git_step *s = &g->step[g->at];
	struct run_spec *spec = &g->x.spec;
	spec->argv = command_of(g, s);
	spec->cwd = xstrdup(g->cwd);
	spec->display = xasprintf("git %s", g->verb);
	pairs_add(&spec->env, "LC_ALL", "C"); /* errors are told by their text */
	pairs_add(&spec->env, "GIT_TERMINAL_PROMPT", "0");
	if (given(g)) {
		pairs_add(&spec->env, "CAISSON_GIT_ORIGIN", g->origin ? g->origin : "");
		pairs_add(&spec->env, "CAISSON_GIT_USERNAME", g->username ? g->username : "");
		pairs_add(&spec->env, "CAISSON_GIT_PASSWORD", g->password ? g->password : "");
	}
	if (s->input) {
		spec->stdin_len = strlen(s->input);
		spec->stdin_bytes = xmemdup(s->input, spec->stdin_len);
	}
	execution_start(&g->x);
}

void git_start(struct git_call *g)
{
	git_run(g);
}
