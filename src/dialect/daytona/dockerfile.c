#include "dialect/daytona/dockerfile.h"

#include "base/buf.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>

#define LINE_MAX_BYTES (64U << 10)

static void step_done(struct dockerfile_step *s)
{
	free(s->line);
	free(s->text);
	strv_free(s->argv);
	free(s->chown);
	pairs_done(&s->env);
}

void dockerfile_done(struct dockerfile *f)
{
	free(f->image);
	free(f->user);
	free(f->workdir);
	pairs_done(&f->env);
	for (size_t i = 0; i < f->n_steps; i++)
		step_done(&f->steps[i]);
	free(f->steps);
	strv_free(f->entrypoint);
	strv_free(f->cmd);
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

/* Cuts the next shell-like word off: quotes may stand around any part of it; a backslash keeps the next byte. A dollar that is not to
 * be expanded (in single quotes, or behind a backslash) stays behind a backslash. all: blanks belong to it, too. */
static int quoted_word(struct str *s, bool all, struct buf *to, struct err *e)
{
	char quote = 0;
	*s = trim(*s);
	while (s->n && (all || quote || !isspace((unsigned char)*s->p))) {
		char c = *s->p;
		s->p++, s->n--;
		if (c == quote) {
			quote = 0;
			continue;
		}
		if (!quote && (c == '\'' || c == '"')) {
			quote = c;
			continue;
		}
		bool literal = quote == '\'';
		if (c == '\\' && !literal && s->n) {
			literal = true;
			c = *s->p;
			s->p++, s->n--;
		}
		if (literal && (c == '$' || c == '\\'))
			buf_addc(to, '\\');
		buf_addc(to, c);
	}
	return quote ? err_set(e, ERR_INVALID, EINVAL, "Dockerfile: a quote is not closed") : 0;
}

/* --- expansion --- */

static bool name_byte(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

char *dockerfile_expand(const char *text, const struct pairs *first, const struct pairs *second)
{
	auto_buf struct buf b;
	buf_init(&b, LINE_MAX_BYTES);
	for (const char *p = text; *p;) {
		if (*p == '\\' && (p[1] == '$' || p[1] == '\\')) {
			buf_addc(&b, p[1]);
			p += 2;
			continue;
		}
		bool braces = *p == '$' && p[1] == '{';
		const char *name = p + (braces ? 2 : 1), *end = name;
		while (*p == '$' && name_byte(*end))
			end++;
		const char *close = braces ? strchr(end, '}') : end;
		if (*p != '$' || end == name || !close) {
			buf_addc(&b, *p++);
			continue;
		}
		auto_free char *key = xstrndup(name, (size_t)(end - name));
		const char *value = pairs_get(first, key);
		if (!value && second)
			value = pairs_get(second, key);
		bool set = value && *value;
		if (braces && end[0] == ':' && (end[1] == '-' || end[1] == '+')) {
			if (set == (end[1] == '+'))
				buf_add(&b, end + 2, (size_t)(close - end - 2));
			else if (end[1] == '-')
				buf_addz(&b, value);
		} else if (value) {
			buf_addz(&b, value);
		}
		p = close + (braces ? 1 : 0);
	}
	return b.overflow ? NULL : xstrndup(b.data ? b.data : "", b.len);
}

/* --- instructions --- */

struct parser {
	struct dockerfile *f;
	struct pairs known; /* ENV and ARG so far, expanded as far as the text goes */
	struct err *e;
};

static struct dockerfile_step *add_step(struct parser *p, enum step_kind kind, struct str line)
{
	struct dockerfile *f = p->f;
	f->steps = xreallocarray(f->steps, f->n_steps + 1, sizeof *f->steps);
	struct dockerfile_step *s = &f->steps[f->n_steps++];
	*s = (struct dockerfile_step){ .kind = kind, .line = xstrndup(line.p, line.n) };
	return s;
}

/* ["a", "b"] as a vector, or NULL when it is not one. */
static char **json_form(struct str text)
{
	json_t *o = text.n && text.p[0] == '[' ? json_loadb(text.p, text.n, 0, NULL) : NULL;
	size_t n = json_array_size(o);
	char **v = o ? xcalloc(n + 1, sizeof *v) : NULL;
	for (size_t i = 0; i < n; i++) {
		if (!json_is_string(json_array_get(o, i))) {
			strv_free(v);
			v = NULL;
			break;
		}
		v[i] = xstrdup(json_string_value(json_array_get(o, i)));
	}
	json_decref(o);
	return v;
}

static char **shell_form(struct str text)
{
	char **v = xcalloc(4, sizeof *v);
	v[0] = xstrdup("/bin/sh");
	v[1] = xstrdup("-c");
	v[2] = xstrndup(text.p, text.n);
	return v;
}

/* Is there a dollar in it that means something? */
static bool refers(const char *value)
{
	for (; *value; value++)
		if (*value == '$')
			return true;
		else if (*value == '\\' && value[1])
			value++;
	return false;
}

static int add_variable(struct parser *p, struct dockerfile_step *s, const char *name, const char *value)
{
	if (!env_name_valid(str_of(name)))
		return err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: %.64s is not the name of a variable", name);
	if (s->env.n >= SPEC_ENV_MAX || p->known.n >= SPEC_ENV_MAX)
		return err_set(p->e, ERR_TOO_LARGE, E2BIG, "Dockerfile: more than %d variables", SPEC_ENV_MAX);
	auto_free char *expanded = dockerfile_expand(value, &p->known, NULL);
	if (!expanded)
		return err_set(p->e, ERR_TOO_LARGE, E2BIG, "Dockerfile: the value of %.64s is too long", name);
	pairs_add(&s->env, name, value);
	pairs_add(&p->known, name, expanded);
	if (s->kind == STEP_ENV)
		pairs_add(&p->f->env, name, expanded);
	if (refers(value))
		p->f->needs_build = true;
	return 0;
}

static int take_env(struct parser *p, struct str line, struct str rest, enum step_kind kind)
{
	struct dockerfile_step *s = add_step(p, kind, line);
	struct str probe = rest, first = word(&probe);
	if (!memchr(first.p, '=', first.n)) { /* the old form: ENV NAME the rest of the line */
		if (first.n == 0 || (kind == STEP_ENV && probe.n == 0))
			return err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: ENV needs NAME=value");
		auto_free char *name = xstrndup(first.p, first.n);
		auto_buf struct buf value;
		buf_init(&value, LINE_MAX_BYTES);
		int rc = quoted_word(&probe, true, &value, p->e);
		return kind == STEP_ARG || rc < 0 ? rc : add_variable(p, s, name, value.data ? value.data : "");
	}
	while ((rest = trim(rest)).n) {
		auto_buf struct buf b;
		buf_init(&b, LINE_MAX_BYTES);
		int rc = quoted_word(&rest, false, &b, p->e);
		char *eq = rc == 0 && b.len ? strchr(b.data, '=') : NULL;
		if (rc == 0 && (!eq || eq == b.data))
			rc = err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: ENV needs NAME=value");
		if (rc < 0)
			return rc;
		*eq = '\0';
		if ((rc = add_variable(p, s, b.data, eq + 1)) < 0)
			return rc;
	}
	return 0;
}

static int take_from(struct parser *p, struct str rest)
{
	struct str image = word(&rest);
	while (image.n > 2 && image.p[0] == '-' && image.p[1] == '-') /* --platform=... */
		image = word(&rest);
	if (p->f->image)
		return err_set(p->e, ERR_UNSUPPORTED, 0, "Dockerfile: more than one FROM (a build in stages) is not supported");
	if (image.n == 0)
		return err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: FROM needs an image");
	auto_free char *raw = xstrndup(image.p, image.n);
	p->f->image = dockerfile_expand(raw, &p->known, NULL);
	return p->f->image && *p->f->image ? 0 : err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: FROM needs an image");
}

static int take_run(struct parser *p, struct str line, struct str rest)
{
	if (rest.n >= 2 && rest.p[0] == '-' && rest.p[1] == '-') {
		struct str option = word(&rest);
		return err_set(p->e, ERR_UNSUPPORTED, 0, "Dockerfile: RUN with %.*s is not supported", (int)MIN(option.n, 40), option.p);
	}
	if (rest.n == 0 || (rest.n >= 2 && memcmp(rest.p, "<<", 2) == 0))
		return err_set(p->e, rest.n ? ERR_UNSUPPORTED : ERR_INVALID, EINVAL, "Dockerfile: RUN needs a command in its line");
	struct dockerfile_step *s = add_step(p, STEP_RUN, line);
	s->argv = json_form(rest);
	if (!s->argv)
		s->text = xstrndup(rest.p, rest.n);
	p->f->needs_build = true;
	return 0;
}

static int copy_option(struct parser *p, struct dockerfile_step *s, struct str option)
{
	static const char chown[] = "--chown=";
	if (option.n > sizeof chown - 1 && memcmp(option.p, chown, sizeof chown - 1) == 0) {
		free(s->chown);
		s->chown = xstrndup(option.p + sizeof chown - 1, option.n - (sizeof chown - 1));
		if (user_valid(str_of(s->chown)) || strchr(s->chown, ':'))
			return 0;
	}
	return err_set(p->e, ERR_UNSUPPORTED, 0, "Dockerfile: COPY with %.*s is not supported", (int)MIN(option.n, 64), option.p);
}

static int take_copy(struct parser *p, struct str line, struct str rest)
{
	struct dockerfile_step *s = add_step(p, STEP_COPY, line);
	while (rest.n >= 2 && rest.p[0] == '-' && rest.p[1] == '-') {
		int rc = copy_option(p, s, word(&rest));
		if (rc < 0)
			return rc;
	}
	char **v = json_form(rest);
	size_t n = 0;
	int rc = 0;
	while (v && v[n])
		n++;
	while (!(v && n && rest.p[0] == '[') && rc == 0 && (rest = trim(rest)).n > 0) {
		auto_buf struct buf b;
		buf_init(&b, LINE_MAX_BYTES);
		rc = quoted_word(&rest, false, &b, p->e);
		v = xreallocarray(v, n + 2, sizeof *v);
		v[n++] = xstrndup(b.data ? b.data : "", b.len);
		v[n] = NULL;
	}
	for (size_t i = 0; rc == 0 && i < n; i++) {
		char *expanded = dockerfile_expand(v[i], &p->known, NULL);
		free(v[i]);
		v[i] = expanded ? expanded : xstrdup("");
		if (strstr(v[i], "://"))
			rc = err_set(p->e, ERR_UNSUPPORTED, 0, "Dockerfile: only files of the context can be copied, not %.100s", v[i]);
	}
	s->argv = v;
	if (rc == 0 && n < 2)
		rc = err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: COPY needs a source and a destination");
	p->f->needs_build = p->f->needs_context = true;
	return rc;
}

static int take_place(struct parser *p, struct str line, struct str rest, enum step_kind kind)
{
	auto_free char *raw = xstrndup(rest.p, rest.n), *text = dockerfile_expand(raw, &p->known, NULL);
	char **to = kind == STEP_USER ? &p->f->user : &p->f->workdir;
	if (!text || !*text)
		return err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: %s", kind == STEP_USER ? "USER needs a user" : "WORKDIR needs a path");
	if (kind == STEP_WORKDIR && *text != '/') {
		if (!p->f->workdir)
			return err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: the first WORKDIR must be an absolute path");
		char *joined = xasprintf("%s/%s", streq(p->f->workdir, "/") ? "" : p->f->workdir, text);
		free(text);
		text = joined;
	}
	struct dockerfile_step *s = add_step(p, kind, line);
	s->text = xstrdup(text);
	free(*to);
	*to = take_ptr(&text);
	return 0;
}

bool command_only_waits(char *const *argv)
{
	if (!argv || !argv[0])
		return true;
	if (streq(argv[0], "/bin/sh") && argv[1] && streq(argv[1], "-c") && argv[2] && !argv[3]) {
		struct str text = str_of(argv[2]), program = word(&text);
		return str_eqz(program, "sleep") || (str_eqz(program, "tail") && strstr(argv[2], "/dev/null"));
	}
	const char *slash = strrchr(argv[0], '/'), *program = slash ? slash + 1 : argv[0];
	bool shell = streq(program, "sh") || streq(program, "bash") || streq(program, "python3") || streq(program, "python") || streq(program, "node");
	size_t n = 0;
	while (argv[n])
		n++;
	return streq(program, "sleep") || (shell && n == 1) || (streq(program, "tail") && streq(argv[n - 1], "/dev/null"));
}

/* True: in the form of a line for a shell. */
static bool take_command(struct str rest, char ***to)
{
	strv_free(*to);
	*to = json_form(rest);
	bool is_text = !*to;
	if (is_text)
		*to = shell_form(rest);
	return is_text;
}

static size_t length(char *const *v)
{
	size_t n = 0;
	while (v && v[n])
		n++;
	return n;
}

char **dockerfile_command(const struct dockerfile *f)
{
	size_t n = length(f->entrypoint), more = f->entrypoint_is_text ? 0 : length(f->cmd);
	char **v = xcalloc(n + more + 1, sizeof *v);
	for (size_t i = 0; i < n; i++)
		v[i] = xstrdup(f->entrypoint[i]);
	for (size_t i = 0; i < more; i++)
		v[n + i] = xstrdup(f->cmd[i]);
	if (!command_only_waits(v))
		return v;
	strv_free(v);
	return NULL;
}

static bool is(struct str name, const char *what)
{
	return str_eq_nocase(name, str_of(what));
}

static int instruction(struct parser *p, struct str line)
{
	static const char *const nothing[] = { "LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK" };
	struct str rest = line, name = word(&rest);
	if (p->f->n_steps >= DOCKERFILE_STEPS_MAX)
		return err_set(p->e, ERR_TOO_LARGE, E2BIG, "Dockerfile: more than %d steps", DOCKERFILE_STEPS_MAX);
	if (is(name, "ARG"))
		return take_env(p, line, rest, STEP_ARG);
	if (is(name, "FROM"))
		return take_from(p, rest);
	if (!p->f->image)
		return err_set(p->e, ERR_INVALID, EINVAL, "Dockerfile: the first instruction must be FROM");
	if (is(name, "ENV"))
		return take_env(p, line, rest, STEP_ENV);
	if (is(name, "USER") || is(name, "WORKDIR"))
		return take_place(p, line, rest, is(name, "USER") ? STEP_USER : STEP_WORKDIR);
	if (is(name, "RUN"))
		return take_run(p, line, rest);
	if (is(name, "COPY") || is(name, "ADD"))
		return take_copy(p, line, rest);
	if (is(name, "CMD")) {
		(void)take_command(rest, &p->f->cmd);
		return 0;
	}
	if (is(name, "ENTRYPOINT")) {
		p->f->entrypoint_is_text = take_command(rest, &p->f->entrypoint);
		return 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(nothing); i++)
		if (is(name, nothing[i]))
			return 0;
	return err_set(p->e, ERR_UNSUPPORTED, 0, "Dockerfile: the instruction %.*s is not supported", (int)MIN(name.n, 32), name.p);
}

int dockerfile_parse(struct str text, struct dockerfile *ret, struct err *e)
{
	struct parser p = { .f = ret, .e = e };
	int rc = 0;
	while (rc == 0 && text.n) {
		auto_buf struct buf joined;
		buf_init(&joined, LINE_MAX_BYTES);
		bool more = true;
		while (more && text.n) { /* lines that end in a backslash go on; comments between them are dropped */
			const char *nl = memchr(text.p, '\n', text.n);
			struct str line = { text.p, nl ? (size_t)(nl - text.p) : text.n };
			text.p += line.n + (nl ? 1 : 0);
			text.n -= line.n + (nl ? 1 : 0);
			struct str t = trim(line);
			if (t.n ? t.p[0] == '#' : joined.len > 0) /* an empty line does not end what goes on either */
				continue;
			more = t.n && t.p[t.n - 1] == '\\';
			buf_add(&joined, t.p, t.n - more);
			buf_addc(&joined, ' ');
		}
		if (joined.overflow)
			rc = err_set(e, ERR_TOO_LARGE, E2BIG, "Dockerfile: an instruction is longer than %u bytes", LINE_MAX_BYTES);
		struct str line = trim(buf_str(&joined));
		if (rc == 0 && line.n)
			rc = memchr(line.p, '\0', line.n) ? err_set(e, ERR_INVALID, EINVAL, "Dockerfile: a NUL byte") : instruction(&p, line);
	}
	pairs_done(&p.known);
	if (rc == 0 && !ret->image)
		rc = err_set(e, ERR_INVALID, EINVAL, "Dockerfile: there is no FROM");
	return rc;
}
