/* Whom a call's credentials are for: the host of the address in the call, or of the remote that it names. The helper that gives them
 * (gitrun.c) answers for that host only, so that a redirect, a submodule or a proxy never gets them.
 *
 * A clone has the address in the request. A push or pull names a remote or none, so git is asked first which address it will use. */
#include "dialect/daytona/git.h"

char *git_origin(struct str url)
{
	const char *mark = url.n ? memmem(url.p, url.n, "://", 3) : NULL;
	if (!mark)
		return NULL; /* a path or ssh: no helper is asked there */
	const char *host = mark + 3, *end = url.p + url.n;
	for (const char *c = host; c < end; c++) {
		if (*c == '/' || *c == '?' || *c == '#') {
			end = c;
			break;
		}
	}
	const char *at = memrchr(host, '@', (size_t)(end - host));
	if (at)
		host = at + 1;
	for (const char *c = url.p; c < end; c++)
		if ((unsigned char)*c <= ' ' || *c == '%' || *c == '\\') /* what git and we might read differently is nobody's */
			return NULL;
	if (host == end || mark == url.p)
		return NULL;
	return xasprintf("%.*s://%.*s", (int)(mark - url.p), url.p, (int)(end - host), host);
}

static struct str first_line(struct str out)
{
	const char *nl = out.n ? memchr(out.p, '\n', out.n) : NULL;
	return (struct str){ out.p, nl ? (size_t)(nl - out.p) : out.n };
}

/* The answer of one step becomes the last argument of the next. */
static void hand_on(struct git_call *g, struct str line, const char *otherwise)
{
	struct git_step *next = &g->step[g->at + 1];
	free(next->argv[next->n - 1]);
	next->argv[next->n - 1] = line.n ? xstrndup(line.p, line.n) : xstrdup(otherwise);
}

static int read_address(struct git_call *g, struct str out)
{
	struct str line = first_line(out);
	if (g->at + 1 == g->address_steps) {
		struct git_step *s = &g->step[g->at];
		g->origin = git_origin(line.n ? line : str_of(s->argv[s->n - 1])); /* no remote of that name: it may be an address itself */
	} else if (g->at < g->address_steps) {
		bool branch = g->at == 0;
		if (line.n && line.p[0] == '-')
			return -1;
		hand_on(g, line, branch ? "refs/none" : "origin");
	}
	return 0;
}

void git_find_origin(struct git_call *g, bool push, const char *remote)
{
	if (!g->username && !g->password)
		return;
	g->read = read_address;
	if (push && !remote) {
		git_step_add(g, "symbolic-ref", "--quiet", "HEAD")->ok_exit = 1; /* detached */
		git_step_add(g, "for-each-ref", "--format=%(push:remotename)", "refs/none");
	}
	if (push)
		git_step_add(g, "remote", "get-url", "--push", "--", remote ? remote : "origin")->ok_exit = 2;
	else if (remote)
		git_step_add(g, "ls-remote", "--get-url", "--", remote);
	else
		git_step_add(g, "ls-remote", "--get-url");
	g->address_steps = g->n_steps;
}
