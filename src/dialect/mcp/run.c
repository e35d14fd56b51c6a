/* Commands and programs. */
#include "dialect/mcp/internal.h"

#include <errno.h>

/* Under the minute after which many clients give up a call. */
enum { TIMEOUT_SECONDS = 55 };
/* Of one stream in an answer: a model's context is dear, and the beginning and the end of an output say most. */
enum { SHOWN = 64 << 10 };

/* Appends [from, to) of a stream, which core may give in pieces. */
static int append(struct tool_call *c, int stream, uint64_t from, uint64_t to, struct buf *b, struct err *e)
{
	while (from < to) {
		size_t before = b->len;
		int rc = api_run_output(c->m->api, &c->caller, c->sandbox, c->run, stream, from, (size_t)(to - from), b, e);
		if (rc < 0)
			return rc;
		if (b->len == before)
			return 0; /* not kept */
		from += b->len - before;
	}
	return 0;
}

/* What is shown of a stream. */
static int shown(struct tool_call *c, int stream, uint64_t bytes, struct buf *b, struct err *e)
{
	if (bytes <= SHOWN)
		return append(c, stream, 0, bytes, b, e);
	int rc = append(c, stream, 0, SHOWN / 2, b, e);
	if (rc < 0)
		return rc;
	c->cut = true;
	buf_addf(b, "\n[... %llu of %llu bytes left out: write to a file and read it in parts ...]\n", (unsigned long long)(bytes - SHOWN),
	         (unsigned long long)bytes);
	return append(c, stream, bytes - SHOWN / 2, bytes, b, e);
}

static void add_remarks(struct buf *b, const struct run_view *v, uint64_t timeout_s)
{
	const char *gap = b->len && b->data[b->len - 1] != '\n' ? "\n" : "";
	if (v->timed_out)
		buf_addf(b, "%s[ended after its time limit of %llu s]\n", gap, (unsigned long long)timeout_s);
	else if (v->oom)
		buf_addf(b, "%s[killed: out of memory]\n", gap);
	else if (v->signal)
		buf_addf(b, "%s[ended by signal %d]\n", gap, v->signal);
	else if (v->exit_code)
		buf_addf(b, "%s[exit code %d]\n", gap, v->exit_code);
}

static void answer(struct tool_call *c, const struct run_view *v)
{
	struct run_view end = *v; /* reading output may touch what the view points to */
	auto_buf struct buf out, err, all;
	struct err e = { 0 };
	buf_init(&out, SHOWN + 256);
	buf_init(&err, SHOWN + 256);
	buf_init(&all, 2 * SHOWN + 1024);
	if (shown(c, 1, end.stdout_bytes, &out, &e) < 0 || shown(c, 2, end.stderr_bytes, &err, &e) < 0) {
		tool_fail(c, &e);
		return;
	}
	buf_add(&all, "", 0);
	buf_add(&all, out.data, out.len);
	if (err.len)
		buf_addf(&all, "%s[stderr]\n", all.len && all.data[all.len - 1] != '\n' ? "\n" : "");
	buf_add(&all, err.data, err.len);
	add_remarks(&all, &end, (uint64_t)arg_int(c, "timeout_s", TIMEOUT_SECONDS));
	json_t *s = json_pack("{s:s, s:i, s:o, s:o, s:b, s:b, s:b}", "sandbox", c->sandbox, "exit_code", end.exit_code, "stdout",
	                      text_value(buf_str(&out)), "stderr", text_value(buf_str(&err)), "timed_out", end.timed_out, "out_of_memory", end.oom,
	                      "cut", c->cut || end.truncated);
	json_t *content = json_pack("[{s:s, s:o}]", "type", "text", "text", text_value(buf_str(&all)));
	tool_content(c, content, s);
}

static void on_ended(void *ctx, const struct err *e, const struct run_view *v)
{
	struct tool_call *c = ctx;
	struct err why = { 0 };
	if (e) {
		tool_fail(c, e);
		return;
	}
	if (v->state == RUN_EXITED) {
		answer(c, v);
		return;
	}
	err_set(&why, v->state == RUN_LOST ? ERR_GONE : ERR_INVALID, 0, "%s%s%s", v->state == RUN_LOST ? "the sandbox ended, and the command with it" : "it could not be started",
	        v->message ? ": " : "", v->message ? v->message : "");
	tool_fail(c, &why);
}

static void on_started(void *ctx, const struct err *e, const struct run_view *v)
{
	struct tool_call *c = ctx;
	if (e) {
		tool_fail(c, e);
		return;
	}
	c->run = xstrdup(v->id);
	api_run_wait(c->m->api, &c->caller, c->sandbox, c->run, on_ended, c);
}

static void start(struct tool_call *c, struct run_spec *spec)
{
	const char *cwd = arg_text(c, "cwd");
	spec->cwd = xstrdup(cwd);
	spec->timeout_ms = (uint64_t)arg_int(c, "timeout_s", TIMEOUT_SECONDS) * 1000;
	arg_pairs(c, "env", &spec->env);
	api_run_start(c->m->api, &c->caller, c->sandbox, spec, on_started, c);
	run_spec_done(spec);
}

void tool_run(struct tool_call *c)
{
	struct run_spec spec;
	const char *input = arg_text(c, "stdin");
	run_spec_init(&spec);
	spec.shell = xstrdup(arg_text(c, "command"));
	if (input) {
		spec.stdin_len = strlen(input);
		spec.stdin_bytes = xmemdup(input, spec.stdin_len);
	}
	start(c, &spec);
}

/* Python keeps its variables; a directory of one's own, or the wish for it, makes it a program like those of the other languages. */
void tool_run_code(struct tool_call *c)
{
	struct run_spec spec;
	const char *language = arg_text(c, "language");
	if ((!language || streq(language, "python")) && !arg_text(c, "cwd") && !arg_flag(c, "fresh")) {
		code_run(c);
		return;
	}
	run_spec_init(&spec);
	spec.code = xstrdup(arg_text(c, "code"));
	spec.language = CODE_PYTHON;
	if (language)
		code_language_parse(str_of(language), &spec.language);
	start(c, &spec);
}
