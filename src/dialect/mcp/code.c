/* run_code for Python: in the sandbox's interpreter, whose variables stay from call to call. What an agent writes in one step it expects
 * to find in the next, as in a notebook. */
#include "dialect/mcp/internal.h"

#include <errno.h>

enum { TIMEOUT_SECONDS = 55, PICTURES_MAX = 8 };

/* The beginning and the end of a stream of any length. */
static void clip_add(struct clip *k, struct str bytes)
{
	size_t room = CLIP_HALF - MIN(k->head.len, (size_t)CLIP_HALF), n = MIN(room, bytes.n);

	k->total += bytes.n;
	buf_add(&k->head, bytes.p, n);
	bytes.p += n;
	bytes.n -= n;
	if (bytes.n > CLIP_HALF) {
		bytes.p += bytes.n - CLIP_HALF;
		bytes.n = CLIP_HALF;
	}
	if (k->tail.len + bytes.n > CLIP_HALF)
		buf_consume(&k->tail, k->tail.len + bytes.n - CLIP_HALF);
	buf_add(&k->tail, bytes.p, bytes.n);
}

static void clip_show(struct clip *k, struct buf *to, bool *cut)
{
	uint64_t left = k->total - k->head.len - k->tail.len;

	buf_add(to, k->head.data, k->head.len);
	if (left) {
		*cut = true;
		buf_addf(to, "\n[... %llu of %llu bytes left out: write to a file and read it in parts ...]\n", (unsigned long long)left,
		         (unsigned long long)k->total);
	}
	buf_add(to, k->tail.data, k->tail.len);
}

void code_init(struct code *x)
{
	for (size_t i = 0; i < ARRAY_LEN(x->stream); i++) {
		buf_init(&x->stream[i].head, CLIP_HALF);
		buf_init(&x->stream[i].tail, CLIP_HALF);
	}
	buf_init(&x->value, CLIP_HALF);
}

void code_done(struct code *x)
{
	if (x->execution)
		execution_leave(x->execution);
	for (size_t i = 0; i < ARRAY_LEN(x->stream); i++) {
		buf_done(&x->stream[i].head);
		buf_done(&x->stream[i].tail);
	}
	buf_done(&x->value);
	json_decref(x->pictures);
}

static void on_output(void *ctx, int stream, struct str text)
{
	struct tool_call *c = ctx;

	clip_add(&c->code.stream[stream == 2], text);
}

static bool is(struct str mime, const char *name)
{
	return str_eqz(mime, name);
}

static void on_result(void *ctx, bool main, const struct form *forms, size_t n)
{
	struct tool_call *c = ctx;
	const struct form *text = NULL, *picture = NULL;

	for (size_t i = 0; i < n; i++) {
		if (is(forms[i].mime, "text/plain"))
			text = &forms[i];
		else if (is(forms[i].mime, "image/png") || is(forms[i].mime, "image/jpeg"))
			picture = &forms[i];
	}
	if (picture && json_array_size(c->code.pictures) < PICTURES_MAX && picture->text.n < MCP_REPLY_MAX / 4) {
		auto_free char *mime = xstrndup(picture->mime.p, picture->mime.n);
		json_array_append_new(c->code.pictures,
		                      json_pack("{s:s, s:o, s:s}", "type", "image", "data", text_value(picture->text), "mimeType", mime));
	} else if (text && main) {
		buf_add(&c->code.value, text->text.p, MIN(text->text.n, (size_t)CLIP_HALF - 1));
	} else if (text) {
		clip_add(&c->code.stream[0], text->text);
		clip_add(&c->code.stream[0], STR("\n"));
	}
}

static void on_error(void *ctx, struct str name, struct str value, struct str traceback)
{
	struct tool_call *c = ctx;

	(void)name, (void)value;
	c->code.failed = true;
	clip_add(&c->code.stream[1], traceback);
}

static void line(struct buf *b)
{
	if (b->len && b->data[b->len - 1] != '\n')
		buf_addc(b, '\n');
}

static void answer(struct tool_call *c, bool timed_out)
{
	bool cut = false, interrupted = c->code.interrupted && !timed_out;
	auto_buf struct buf out, err, all;

	buf_init(&out, 3 * CLIP_HALF);
	buf_init(&err, 3 * CLIP_HALF);
	buf_init(&all, 8 * CLIP_HALF);
	clip_show(&c->code.stream[0], &out, &cut);
	clip_show(&c->code.stream[1], &err, &cut);
	buf_add(&all, out.data, out.len);
	if (c->code.value.len) {
		line(&all);
		buf_add(&all, c->code.value.data, c->code.value.len);
	}
	if (err.len) {
		line(&all);
		buf_addf(&all, "[stderr]\n");
		buf_add(&all, err.data, err.len);
	}
	if (timed_out || interrupted) {
		line(&all);
		buf_addf(&all, timed_out ? "[interrupted after its time limit of %llu s; variables are kept]\n" : "[interrupted; variables are kept]\n",
		         (unsigned long long)arg_int(c, "timeout_s", TIMEOUT_SECONDS));
	}
	json_t *content = json_pack("[{s:s, s:o}]", "type", "text", "text", text_value(buf_str(&all)));
	json_array_extend(content, c->code.pictures);
	tool_content(c, content,
	             json_pack("{s:s, s:i, s:o, s:o, s:o, s:b, s:b, s:b}", "sandbox", c->sandbox, "exit_code", c->code.failed || timed_out || interrupted,
	                       "stdout", text_value(buf_str(&out)), "stderr", text_value(buf_str(&err)), "result",
	                       c->code.value.len ? text_value(buf_str(&c->code.value)) : json_null(), "timed_out", timed_out, "out_of_memory", 0, "cut",
	                       cut));
}

static void on_end(void *ctx, enum execution_end end, const char *message)
{
	struct tool_call *c = ctx;
	struct err e = { 0 };

	c->code.execution = NULL;
	if (end == EXECUTION_LOST) {
		err_set(&e, ERR_GONE, 0, "the interpreter has ended under it%s%s: its variables are gone, the next call begins a new one", message ? ": " : "",
		        message ? message : "");
		tool_fail(c, &e);
		return;
	}
	c->code.interrupted = end == EXECUTION_INTERRUPTED;
	answer(c, end == EXECUTION_TIMED_OUT);
}

void code_run(struct tool_call *c)
{
	static const struct execution_events events = { .on_output = on_output, .on_result = on_result, .on_error = on_error, .on_end = on_end };
	struct execution_spec spec = { .code = arg_text(c, "code"), .timeout_ms = (uint64_t)arg_int(c, "timeout_s", TIMEOUT_SECONDS) * 1000 };
	struct err e = { 0 };

	c->code.pictures = json_array();
	arg_pairs(c, "env", &spec.env);
	c->code.execution = api_execute(c->m->api, &c->caller, c->sandbox, &spec, &events, c, &e);
	pairs_done(&spec.env);
	if (!c->code.execution)
		tool_fail(c, &e);
}
