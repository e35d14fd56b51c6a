/* How a shell line or a piece of source text becomes an argv: the one place that knows the interpreters.
 *
 * Small texts travel in the argv; larger ones than the kernel lets one argument be go by a descriptor ("{script}" in the
 * guest protocol). "{shell}" is bash where the image has it, else sh: the guest knows. Python gets its source on stdin, where script.py runs
 * it as `python3 -` would: sys.path[0] is the working directory, and the arguments follow "-". When the caller wants stdin
 * for itself, the source goes into -c instead. */
#include "core/core_int.h"

#include <errno.h>

#define TEXT_IN_ARGV_MAX (96U << 10)
/* With -e the caller's first argument is process.argv[1]; with "-" or a file the name of that stands there: taken out, so that
 * it is the same every way. On the first line, so that line numbers stay. */
#define NODE_PRELUDE "process.argv.splice(1,1);"

struct argv_builder {
	char **v;
	size_t n;
};

static void arg(struct argv_builder *b, const char *text)
{
	b->v = xreallocarray(b->v, b->n + 2, sizeof *b->v);
	b->v[b->n++] = xstrdup(text);
	b->v[b->n] = NULL;
}

static void args(struct argv_builder *b, char *const *list)
{
	for (; list && *list; list++)
		arg(b, *list);
}

static bool wants_stdin(const struct run_spec *spec)
{
	return spec->stdin_open || spec->stdin_bytes || spec->pty;
}

static int too_long(struct err *e)
{
	return err_set(e, ERR_TOO_LARGE, E2BIG, "code: at most %u bytes when the run also takes stdin", TEXT_IN_ARGV_MAX);
}

static void build_shell(const struct run_spec *spec, const char *text, struct argv_builder *b, struct command *ret)
{
	arg(b, "{shell}");
	if (strlen(text) <= TEXT_IN_ARGV_MAX) {
		arg(b, "-c");
		arg(b, text);
		if (spec->code_argv && spec->code_argv[0])
			arg(b, "bash");
	} else {
		arg(b, "{script}");
		ret->script = str_of(text);
	}
	args(b, spec->code_argv);
}

static int build_python(const struct run_spec *spec, struct argv_builder *b, struct command *ret, struct err *e)
{
	arg(b, "python3");
	arg(b, "-u");
	if (wants_stdin(spec)) {
		if (strlen(spec->code) > TEXT_IN_ARGV_MAX)
			return too_long(e);
		arg(b, "-c");
		arg(b, spec->code);
	} else {
		arg(b, "-c");
		arg(b, script_program);
		ret->stdin_bytes = str_of(spec->code);
	}
	args(b, spec->code_argv);
	return 0;
}

static int build_javascript(const struct run_spec *spec, struct argv_builder *b, struct command *ret, struct err *e)
{
	arg(b, "node");
	if (strlen(spec->code) <= TEXT_IN_ARGV_MAX) {
		arg(b, "-e");
		arg(b, spec->code);
		arg(b, "--");
	} else if (wants_stdin(spec)) {
		return too_long(e);
	} else {
		arg(b, "-");
		ret->prefixed = xasprintf(NODE_PRELUDE "%s", spec->code);
		ret->stdin_bytes = str_of(ret->prefixed);
	}
	args(b, spec->code_argv);
	return 0;
}

static void build_typescript(const struct run_spec *spec, struct argv_builder *b, struct command *ret)
{
	arg(b, "sucrase-node"); /* the image's pinned runner (images/default): strips types only, in a fifth of ts-node's time */
	arg(b, "{script}");
	ret->prefixed = xasprintf(NODE_PRELUDE "%s", spec->code);
	ret->script = str_of(ret->prefixed);
	ret->script_suffix = ".ts";
	args(b, spec->code_argv);
}

int command_build(const struct run_spec *spec, struct command *ret, struct err *e)
{
	struct argv_builder b = { 0 };
	int rc = 0;

	*ret = (struct command){ .stdin_bytes = { (const char *)spec->stdin_bytes, spec->stdin_len } };
	if (spec->session) {
		arg(&b, spec->shell); /* the session's shell is there already */
	} else if (spec->shell) {
		build_shell(spec, spec->shell, &b, ret);
	} else if (spec->argv) {
		args(&b, spec->argv);
	} else {
		switch (spec->language) {
		case CODE_PYTHON:
			rc = build_python(spec, &b, ret, e);
			break;
		case CODE_JAVASCRIPT:
			rc = build_javascript(spec, &b, ret, e);
			break;
		case CODE_TYPESCRIPT:
			build_typescript(spec, &b, ret);
			break;
		case CODE_BASH:
			build_shell(spec, spec->code, &b, ret);
			break;
		case CODE_NONE:
			rc = err_set(e, ERR_INVALID, EINVAL, "language: say which one 'code' is in");
			break;
		}
	}
	ret->argv = b.v;
	if (rc < 0)
		command_done(ret);
	return rc;
}

void command_done(struct command *c)
{
	for (char **a = c->argv; a && *a; a++)
		free(*a);
	free(c->argv);
	free(c->prefixed);
	*c = (struct command){ 0 };
}
