#include "core/ahead.h"

enum { WAITS_MS = 600000 /* then its memory is worth more */ };

/* What core/command.c starts for Python code that does not want its input. */
static const char *const program[] = { "python3", "-u", "-c", script_program, NULL };

void ahead_start(struct link *l, const char *user, bool merge_stderr)
{
	struct pairs none = { 0 };

	link_run_start(l, AHEAD_RUN, &(struct link_run_spec){ .argv = program, .env = &none, .user = user, .stdin_open = true,
	                                                         .merge_stderr = merge_stderr });
}

static bool same_program(char *const *argv)
{
	size_t i = 0;

	for (; argv[i] && program[i]; i++)
		if (!streq(argv[i], program[i]))
			return false;
	return !argv[i] && !program[i];
}

static bool suits(const struct sandbox *s, const struct run_spec *spec, const struct command *cmd, const struct pairs *env)
{
	if (spec->language != CODE_PYTHON || spec->session || spec->pty || spec->stdin_open || spec->cwd || s->row.spec.workdir)
		return false;
	return env->n == 0 && (!spec->user || streq(spec->user, s->row.user)) && same_program(cmd->argv) && cmd->stdin_bytes.n > 0;
}

bool ahead_take(struct sandbox *s, const struct run_spec *spec, const struct command *cmd, const struct pairs *env)
{
	bool first = s->ahead_ms || s->row.next_run == AHEAD_RUN, good = first && suits(s, spec, cmd, env);

	if (good)
		pool_wants_ahead(s->core, s->shape, spec->merge_stderr); /* whether there is one or not */
	if (!s->ahead_ms)
		return false;
	if (!good || s->ahead_merged != spec->merge_stderr || cmd->stdin_bytes.n > link_run_stdin_room(s->link, AHEAD_RUN)) {
		ahead_drop(s);
		return false;
	}
	s->ahead_ms = 0;
	return true;
}

void ahead_run(struct sandbox *s, const struct command *cmd, uint64_t timeout_ms)
{
	link_run_take(s->link, AHEAD_RUN, timeout_ms);
	(void)link_run_stdin(s->link, AHEAD_RUN, cmd->stdin_bytes); /* ended by itself: its end is on its way */
	link_run_stdin_eof(s->link, AHEAD_RUN);
}

void ahead_drop(struct sandbox *s)
{
	if (s->ahead_ms && s->link)
		link_run_release(s->link, AHEAD_RUN);
	s->ahead_ms = 0;
}

void ahead_drop_for(struct sandbox *s, const struct op_spec *spec)
{
	switch (spec->kind) {
	case OP_WRITE:
	case OP_MKDIR:
	case OP_REMOVE:
	case OP_MOVE:
	case OP_CHMOD:
	case OP_REPLACE:
		ahead_drop(s);
		break;
	case OP_STAT:
	case OP_LIST:
	case OP_READ:
	case OP_FIND:
	case OP_SEARCH:
	case OP_CONNECT:
	case OP_PORTS:
	case OP_USERINFO:
	case OP_DISK:
	case OP_SYNC:
		break;
	}
}

void ahead_sweep(struct sandbox *s)
{
	if (s->ahead_ms && now_ms() - s->ahead_ms > WAITS_MS)
		ahead_drop(s);
}
