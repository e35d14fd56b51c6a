/* Theory of operation: which of the host's package sources are the distribution's own?
 *
 * apt keeps, for every source, the signed Release file it fetched, and `apt-get indextargets` tells its Origin. So nothing has to
 * parse the host's source files, in whichever of apt's formats they are, and no mirror is named here: what the host uses is used. A
 * third-party source has another Origin and stays out; so do suites that are not of the host's release (backports and such). */
#include "image/child.h"
#include "image/work.h"

#include "base/buf.h"

#include <errno.h>
#include <stdio.h>

/* Settings of the host's apt without which its mirror can't be reached or trusted. */
static const char *const kept_options[] = {
	"Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::https::CAInfo", "Acquire::Check-Valid-Until", "Acquire::Check-Date",
};

void host_sources_done(struct host_sources *h)
{
	free(h->list);
	free(h->suite);
	strings_free(h->apt_options);
	*h = (struct host_sources){ 0 };
}

static int os_release(const char *key, char **ret, struct err *e)
{
	FILE *f = fopen("/etc/os-release", "re");
	char line[512];
	size_t n = strlen(key);
	char *value = NULL;
	while (f && !value && fgets(line, sizeof line, f)) {
		if (strncmp(line, key, n) != 0 || line[n] != '=')
			continue;
		char *p = line + n + 1;
		p += *p == '"' || *p == '\'';
		value = xstrndup(p, strcspn(p, "\"'\n"));
	}
	if (f)
		fclose(f);
	if (!value)
		return err_set(e, ERR_UNSUPPORTED, ENOENT,
			       "this host is not Debian or Ubuntu (no %s in /etc/os-release): the default image is made from its packages; "
			       "add an image from a file instead, with 'caisson image add default FILE'",
			       key);
	*ret = value;
	return 0;
}

static bool of_release(const char *codename, const char *suite)
{
	size_t n = strlen(suite);
	if (strncmp(codename, suite, n) != 0)
		return false;
	return streq(codename + n, "") || streq(codename + n, "-updates") || streq(codename + n, "-security");
}

/* origin|address|release|component|keyring */
static void take_target(char *line, const char *suite, struct buf *list)
{
	char *field[5], *p = line;
	for (size_t i = 0; i < ARRAY_LEN(field); i++) {
		field[i] = p;
		p = p + strcspn(p, "|");
		if (*p)
			*p++ = 0;
	}
	if ((!streq(field[0], "Debian") && !streq(field[0], "Ubuntu")) || !of_release(field[2], suite))
		return;
	bool keyring = field[4][0] == '/';
	buf_addf(list, "deb %s%s%s%s %s %s\n", keyring ? "[signed-by=" : "", keyring ? field[4] : "", keyring ? "] " : "", field[1], field[2], field[3]);
}

static void read_options(char ***ret)
{
	const char *argv[3 + ARRAY_LEN(kept_options)] = { "apt-config", "dump" };
	for (size_t i = 0; i < ARRAY_LEN(kept_options); i++)
		argv[2 + i] = kept_options[i];
	auto_free char *text = NULL;
	if (child_output(&(struct child_spec){ .argv = argv, .in = -1, .out = -1 }, 65536, &text, "apt-config", NULL) < 0)
		return;
	char **v = xcalloc(ARRAY_LEN(kept_options) + 1, sizeof *v);
	size_t n = 0;
	char *rest = text;
	for (char *line; (line = strsep(&rest, "\n")) && n < ARRAY_LEN(kept_options);)
		if (strncmp(line, "Acquire::", 9) == 0 && !strstr(line, "\"\""))
			v[n++] = xstrdup(line);
	*ret = v;
}

int host_sources_find(struct host_sources *ret, struct err *e)
{
	struct host_sources h = { 0 };
	int r = os_release("VERSION_CODENAME", &h.suite, e);
	if (r < 0)
		return r;
	static const char *const argv[] = { "apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)",
					    "Created-By: Packages", NULL };
	auto_free char *text = NULL;
	r = child_output(&(struct child_spec){ .argv = argv, .in = -1, .out = -1 }, 1 << 20, &text, "can't read this host's package sources", e);
	auto_buf struct buf list;
	buf_init(&list, 65536);
	char *rest = text;
	for (char *line; r == 0 && (line = strsep(&rest, "\n"));)
		take_target(line, h.suite, &list);
	if (r == 0 && list.len == 0)
		r = err_set(e, ERR_UNAVAILABLE, ENOENT,
			    "this host has no package source of its own distribution for '%s' with a fetched index: run 'apt-get update' and look at what "
			    "it says",
			    h.suite);
	if (r < 0) {
		host_sources_done(&h);
		return r;
	}
	h.list = buf_take(&list);
	read_options(&h.apt_options);
	*ret = h;
	return 0;
}
