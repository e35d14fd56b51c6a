#include "dialect/daytona/dockerfile.h"

#include "base/buf.h"

#include <ctype.h>
#include <errno.h>

#define LINE_MAX_BYTES (64U << 10)

void dockerfile_done(struct dockerfile *f)
{
	free(f->image);
	free(f->user);
	free(f->workdir);
	pairs_done(&f->env);
	*f = (struct dockerfile){ 0 };
}

static struct str trim(struct str s)
{
	while (s.n && isspace((unsigned char)s.p[0]))
		s.p++, s.n--;
	while (s.n && isspace((unsigned char)s.p[s.n - 1]))
		s.n--;
	return s;
}

/* Cuts the next word, without quotes handling, off the front. */
static struct str word(struct str *s)
{
	*s = trim(*s);
	struct str w = { s->p, 0 };
	while (w.n < s->n && !isspace((unsigned char)s->p[w.n]))
		w.n++;
	s->p += w.n;
	s->n -= w.n;
	*s = trim(*s);
	return w;
}

/* Cuts the next shell-like word off: quotes may stand around any part of it; a backslash keeps the next byte. */
static int quoted_word(struct str *s, struct buf *to, struct err *e)
{
	char quote = 0;
	*s = trim(*s);
	while (s->n && (quote || !isspace((unsigned char)*s->p))) {
		char c = *s->p;
		s->p++, s->n--;
		if (c == quote) {
			quote = 0;
		} else if (!quote && (c == '\'' || c == '"')) {
			quote = c;
		} else {
			if (c == '\\' && quote != '\'' && s->n) {
				c = *s->p;
				s->p++, s->n--;
			}
			buf_addc(to, c);
		}
	}
	return quote ? err_set(e, ERR_INVALID, EINVAL, "Dockerfile: a quote is not closed") : 0;
}

static int take_env(struct str rest, struct dockerfile *f, struct err *e)
{
	struct str probe = rest, first = word(&probe);
	if (!memchr(first.p, '=', first.n)) { /* the old form: ENV NAME the rest of the line */
		if (first.n == 0 || probe.n == 0)
			return err_set(e, ERR_INVALID, EINVAL, "Dockerfile: ENV needs NAME=value");
		auto_free char *name = xstrndup(first.p, first.n), *value = xstrndup(probe.p, probe.n);
		pairs_add(&f->env, name, value);
		return 0;
	}
	while ((rest = trim(rest)).n) {
		auto_buf struct buf b;
		buf_init(&b, LINE_MAX_BYTES);
		int rc = quoted_word(&rest, &b, e);
		if (rc < 0)
			return rc;
		char *eq = b.len ? strchr(b.data, '=') : NULL;
		if (!eq || eq == b.data)
			return err_set(e, ERR_INVALID, EINVAL, "Dockerfile: ENV needs NAME=value");
		if (f->env.n >= SPEC_ENV_MAX)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "Dockerfile: more than %d variables", SPEC_ENV_MAX);
		*eq = '\0';
		pairs_add(&f->env, b.data, eq + 1);
	}
	return 0;
}

static int take_from(struct str rest, struct dockerfile *f, struct err *e)
{
	struct str image = word(&rest);
	while (image.n > 2 && image.p[0] == '-' && image.p[1] == '-') /* --platform=... */
		image = word(&rest);
	if (f->image)
		return err_set(e, ERR_UNSUPPORTED, 0, "Dockerfile: more than one FROM needs a build, which is not supported yet");
	if (image.n == 0)
		return err_set(e, ERR_INVALID, EINVAL, "Dockerfile: FROM needs an image");
	f->image = xstrndup(image.p, image.n);
	return 0;
}

/* A container needs some process to stay; a sandbox does not, so a command that only waits can be left out. */
static bool only_waits(struct str rest)
{
	auto_buf struct buf words;
	buf_init(&words, 4096);
	for (size_t i = 0; i < rest.n; i++)
		buf_addc(&words, strchr("[]\",", rest.p[i]) ? ' ' : rest.p[i]);
	struct str s = buf_str(&words), program = word(&s);
	if (words.overflow)
		return false;
	for (size_t i = program.n; i-- > 0;)
		if (program.p[i] == '/') {
			program = (struct str){ program.p + i + 1, program.n - i - 1 };
			break;
		}
	bool shell = str_eqz(program, "sh") || str_eqz(program, "bash") || str_eqz(program, "python3") || str_eqz(program, "node");
	struct str tail = STR("tail");
	return program.n == 0 || str_eqz(program, "sleep") || (shell && s.n == 0) || (str_eq(program, tail) && s.n >= 9 && memcmp(s.p + s.n - 9, "/dev/null", 9) == 0);
}

static int instruction(struct str line, struct dockerfile *f, struct err *e)
{
	struct str rest = line, name = word(&rest);
	if (str_eq_nocase(name, STR("FROM")))
		return take_from(rest, f, e);
	if (!f->image)
		return err_set(e, ERR_INVALID, EINVAL, "Dockerfile: the first instruction must be FROM");
	if (str_eq_nocase(name, STR("ENV")))
		return take_env(rest, f, e);
	if (str_eq_nocase(name, STR("USER")) || str_eq_nocase(name, STR("WORKDIR"))) {
		char **to = str_eq_nocase(name, STR("USER")) ? &f->user : &f->workdir;
		if (rest.n == 0 || (to == &f->workdir && rest.p[0] != '/'))
			return err_set(e, ERR_INVALID, EINVAL, "Dockerfile: USER needs a user, WORKDIR an absolute path");
		free(*to);
		*to = xstrndup(rest.p, rest.n);
		return 0;
	}
	if (str_eq_nocase(name, STR("LABEL")) || str_eq_nocase(name, STR("EXPOSE")) || str_eq_nocase(name, STR("MAINTAINER")))
		return 0;
	if ((str_eq_nocase(name, STR("CMD")) || str_eq_nocase(name, STR("ENTRYPOINT"))) && only_waits(rest))
		return 0;
	return err_set(e, ERR_UNSUPPORTED, 0,
	               "Dockerfile instruction %.*s is not supported yet: only FROM, ENV, USER and WORKDIR are. Prepare an image with "
	               "`caisson image add` and name it in FROM",
	               (int)MIN(name.n, 32), name.p);
}

int dockerfile_parse(struct str text, struct dockerfile *ret, struct err *e)
{
	while (text.n) {
		auto_buf struct buf joined;
		buf_init(&joined, LINE_MAX_BYTES);
		bool more = true;
		while (more && text.n) { /* lines that end in a backslash go on; comments between them are dropped */
			const char *nl = memchr(text.p, '\n', text.n);
			struct str line = { text.p, nl ? (size_t)(nl - text.p) : text.n };
			text.p += line.n + (nl ? 1 : 0);
			text.n -= line.n + (nl ? 1 : 0);
			struct str t = trim(line);
			if (t.n && t.p[0] == '#')
				continue;
			more = t.n && t.p[t.n - 1] == '\\';
			buf_add(&joined, t.p, t.n - more);
			buf_addc(&joined, ' ');
		}
		if (joined.overflow)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "Dockerfile: an instruction is longer than %u bytes", LINE_MAX_BYTES);
		struct str line = trim(buf_str(&joined));
		int rc = line.n ? instruction(line, ret, e) : 0;
		if (rc < 0)
			return rc;
	}
	return ret->image ? 0 : err_set(e, ERR_INVALID, EINVAL, "Dockerfile: there is no FROM");
}
