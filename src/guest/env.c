#include "guest/run.h"

#include <stdio.h>

struct env {
	char **v;
	size_t n;
};

/* The first of a name wins. */
static void add(struct env *e, const char *pair)
{
	size_t name = (size_t)(strchr(pair, '=') - pair) + 1;

	for (size_t i = 0; i < e->n; i++)
		if (strncmp(e->v[i], pair, name) == 0)
			return;
	e->v = xreallocarray(e->v, e->n + 2, sizeof *e->v);
	e->v[e->n++] = xstrdup(pair);
	e->v[e->n] = NULL;
}

static void add_value(struct env *e, const char *name, const char *value)
{
	char *pair = xasprintf("%s=%s", name, value);

	add(e, pair);
	free(pair);
}

char **env_build(const struct guest *g, const struct user *u, const char *const *env, const struct group *mark, bool pty)
{
	struct env e = { xcalloc(1, sizeof *e.v), 0 };

	if (!mark->made)
		add_value(&e, GROUP_MARK, mark->name);
	for (; *env; env++)
		add(&e, *env);
	for (size_t i = 0; i < g->opt.env_n; i++)
		add(&e, g->opt.env[i]);
	add_value(&e, "PATH", u->uid == 0 ? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" :
	                                    "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games");
	add_value(&e, "HOME", u->home);
	if (u->name[0]) {
		add_value(&e, "USER", u->name);
		add_value(&e, "LOGNAME", u->name);
	}
	add_value(&e, "SHELL", u->shell);
	if (pty)
		add_value(&e, "TERM", "xterm-256color");
	return e.v;
}

void env_free(char **env)
{
	for (size_t i = 0; env[i]; i++)
		free(env[i]);
	free(env);
}
