#include "model/spec.h"

#include "base/buf.h"

#include <assert.h>
#include <errno.h>

/* --- pairs --- */

static struct pair *pairs_find(const struct pairs *p, const char *key)
{
	for (size_t i = 0; i < p->n; i++)
		if (streq(p->v[i].key, key))
			return &p->v[i];
	return NULL;
}

void pairs_add(struct pairs *p, const char *key, const char *value)
{
	struct pair *old = p->n <= SPEC_ENV_MAX ? pairs_find(p, key) : NULL;
	char *copy = xstrdup(value ? value : "");
	if (old) {
		free(old->value);
		old->value = copy;
		return;
	}
	/* The capacity is the next power of two, so it need not be stored. */
	if ((p->n & (p->n - 1)) == 0)
		p->v = xreallocarray(p->v, p->n ? p->n * 2 : 1, sizeof *p->v);
	p->v[p->n++] = (struct pair){ xstrdup(key), copy };
}

const char *pairs_get(const struct pairs *p, const char *key)
{
	const struct pair *found = pairs_find(p, key);
	return found ? found->value : NULL;
}

bool pairs_remove(struct pairs *p, const char *key)
{
	struct pair *found = pairs_find(p, key);
	if (!found)
		return false;
	free(found->key);
	free(found->value);
	size_t at = (size_t)(found - p->v);
	memmove(found, found + 1, (p->n - at - 1) * sizeof *found);
	p->n--;
	return true;
}

void pairs_copy(struct pairs *to, const struct pairs *from)
{
	assert(to->n == 0);
	for (size_t i = 0; i < from->n; i++)
		pairs_add(to, from->v[i].key, from->v[i].value);
}

void pairs_done(struct pairs *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->v[i].key);
		free(p->v[i].value);
	}
	free(p->v);
	*p = (struct pairs){ 0 };
}

/* --- vectors of strings --- */

char **strv_copy(char *const *v)
{
	if (!v)
		return NULL;
	size_t n = 0;
	while (v[n])
		n++;
	char **copy = xcalloc(n + 1, sizeof *copy);
	for (size_t i = 0; i < n; i++)
		copy[i] = xstrdup(v[i]);
	return copy;
}

bool strv_equal(char *const *a, char *const *b)
{
	static char *const empty[] = { NULL };

	for (a = a ? a : empty, b = b ? b : empty; *a && *b && streq(*a, *b); a++)
		b++;
	return !*a && !*b;
}

void strv_free(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

/* --- words --- */

static const char *const network_modes[] = {
	[NETWORK_NONE] = "none",
	[NETWORK_PUBLIC] = "public",
	[NETWORK_ALLOW] = "allow",
};

const char *network_mode_name(enum network_mode m)
{
	return (unsigned)m < ARRAY_LEN(network_modes) ? network_modes[m] : "unknown";
}

int network_mode_parse(struct str name, enum network_mode *ret)
{
	for (unsigned i = 0; i < ARRAY_LEN(network_modes); i++)
		if (str_eqz(name, network_modes[i])) {
			*ret = (enum network_mode)i;
			return 0;
		}
	return -EINVAL;
}

/* The first name of a language is the one we write. */
static const struct {
	const char *name;
	enum code_language language;
} languages[] = {
	{ "python", CODE_PYTHON },
	{ "py", CODE_PYTHON },
	{ "python3", CODE_PYTHON },
	{ "javascript", CODE_JAVASCRIPT },
	{ "js", CODE_JAVASCRIPT },
	{ "node", CODE_JAVASCRIPT },
	{ "nodejs", CODE_JAVASCRIPT },
	{ "typescript", CODE_TYPESCRIPT },
	{ "ts", CODE_TYPESCRIPT },
	{ "bash", CODE_BASH },
	{ "sh", CODE_BASH },
	{ "shell", CODE_BASH },
};

int code_language_parse(struct str name, enum code_language *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(languages); i++)
		if (str_eq_nocase(name, str_of(languages[i].name))) {
			*ret = languages[i].language;
			return 0;
		}
	return -EINVAL;
}

const char *code_language_name(enum code_language l)
{
	for (size_t i = 0; i < ARRAY_LEN(languages); i++)
		if (languages[i].language == l)
			return languages[i].name;
	return "none";
}

/* --- sandbox --- */

void resources_fill(struct resources *r, bool ephemeral)
{
	if (r->cpus == 0)
		r->cpus = RESOURCES_CPUS_DEFAULT;
	if (r->memory_mib == 0)
		r->memory_mib = RESOURCES_MEMORY_MIB_DEFAULT;
	if (r->disk_mib == 0)
		r->disk_mib = ephemeral ? MAX(r->memory_mib / 2, 1) : RESOURCES_DISK_MIB_DEFAULT;
	if (r->pids == 0)
		r->pids = RESOURCES_PIDS_DEFAULT;
}

void spec_init(struct sandbox_spec *s)
{
	*s = (struct sandbox_spec){
		.image = xstrdup("default"),
		.network = NETWORK_NONE,
		.lifetime = { .delete_after_s = -1 },
	};
}

struct volume_mount *volume_mounts_add(struct volume_mounts *m)
{
	m->v = xreallocarray(m->v, m->n + 1, sizeof *m->v);
	m->v[m->n] = (struct volume_mount){ 0 };
	return &m->v[m->n++];
}

void volume_mounts_copy(struct volume_mounts *to, const struct volume_mounts *from)
{
	for (size_t i = 0; i < from->n; i++) {
		const struct volume_mount *one = &from->v[i];
		*volume_mounts_add(to) = (struct volume_mount){ xstrdup(one->volume), xstrdup(one->path), xstrdup(one->subpath), one->read_only };
	}
}

void volume_mounts_done(struct volume_mounts *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->v[i].volume);
		free(m->v[i].path);
		free(m->v[i].subpath);
	}
	free(m->v);
	*m = (struct volume_mounts){ 0 };
}

struct publication *publications_add(struct publications *p)
{
	p->v = xreallocarray(p->v, p->n + 1, sizeof *p->v);
	p->v[p->n] = (struct publication){ 0 };
	return &p->v[p->n++];
}

void publications_copy(struct publications *to, const struct publications *from)
{
	for (size_t i = 0; i < from->n; i++) {
		struct publication *one = publications_add(to);
		*one = from->v[i];
		one->address = xstrdup(from->v[i].address);
	}
}

void publications_remove(struct publications *p, size_t i)
{
	free(p->v[i].address);
	memmove(p->v + i, p->v + i + 1, (p->n - i - 1) * sizeof *p->v);
	p->n--;
}

void publications_done(struct publications *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->v[i].address);
	free(p->v);
	*p = (struct publications){ 0 };
}

void spec_done(struct sandbox_spec *s)
{
	free(s->name);
	free(s->image);
	free(s->boundary);
	free(s->from_snapshot);
	pairs_done(&s->env);
	pairs_done(&s->labels);
	free(s->user);
	free(s->workdir);
	free(s->hostname);
	strv_free(s->network_allow);
	strv_free(s->host_answers);
	strv_free(s->permissions);
	strv_free(s->network_deny);
	volume_mounts_done(&s->volumes);
	publications_done(&s->publish);
	pairs_done(&s->secret_env);
	pairs_done(&s->secret_files);
	free(s->idempotency_key);
	free(s->extra);
	*s = (struct sandbox_spec){ 0 };
}

void spec_copy(struct sandbox_spec *to, const struct sandbox_spec *from)
{
	struct sandbox_spec copy = *from; /* the plain values; every pointer is replaced below */
	copy.name = xstrdup(from->name);
	copy.image = xstrdup(from->image);
	copy.boundary = xstrdup(from->boundary);
	copy.from_snapshot = xstrdup(from->from_snapshot);
	copy.env = (struct pairs){ 0 };
	pairs_copy(&copy.env, &from->env);
	copy.labels = (struct pairs){ 0 };
	pairs_copy(&copy.labels, &from->labels);
	copy.user = xstrdup(from->user);
	copy.workdir = xstrdup(from->workdir);
	copy.hostname = xstrdup(from->hostname);
	copy.host_answers = strv_copy(from->host_answers);
	copy.permissions = strv_copy(from->permissions);
	copy.network_allow = strv_copy(from->network_allow);
	copy.network_deny = strv_copy(from->network_deny);
	copy.volumes = (struct volume_mounts){ 0 };
	volume_mounts_copy(&copy.volumes, &from->volumes);
	copy.publish = (struct publications){ 0 };
	publications_copy(&copy.publish, &from->publish);
	copy.secret_env = copy.secret_files = (struct pairs){ 0 };
	pairs_copy(&copy.secret_env, &from->secret_env);
	pairs_copy(&copy.secret_files, &from->secret_files);
	copy.idempotency_key = xstrdup(from->idempotency_key);
	copy.extra = xstrdup(from->extra);
	*to = copy;
}

void hostname_from_name(const char *name, char ret_text[static SPEC_HOSTNAME_MAX + 1])
{
	size_t n = 0;
	for (; n < SPEC_HOSTNAME_MAX && name[n]; n++)
		ret_text[n] = name[n] == '_' || name[n] == '.' ? '-' : name[n];
	ret_text[n] = 0;
}

/* --- run --- */

void run_spec_init(struct run_spec *r)
{
	*r = (struct run_spec){ 0 };
}

void run_spec_done(struct run_spec *r)
{
	strv_free(r->argv);
	free(r->shell);
	free(r->code);
	strv_free(r->code_argv);
	pairs_done(&r->env);
	free(r->cwd);
	free(r->user);
	free(r->session);
	free(r->stdin_bytes);
	free(r->idempotency_key);
	free(r->display);
	*r = (struct run_spec){ 0 };
}

void run_spec_copy(struct run_spec *to, const struct run_spec *from)
{
	struct run_spec copy = *from; /* the plain values; every pointer is replaced below */
	copy.argv = strv_copy(from->argv);
	copy.shell = xstrdup(from->shell);
	copy.code = xstrdup(from->code);
	copy.code_argv = strv_copy(from->code_argv);
	copy.env = (struct pairs){ 0 };
	pairs_copy(&copy.env, &from->env);
	copy.cwd = xstrdup(from->cwd);
	copy.user = xstrdup(from->user);
	copy.session = xstrdup(from->session);
	copy.stdin_bytes = from->stdin_bytes ? xmemdup(from->stdin_bytes, from->stdin_len) : NULL;
	copy.idempotency_key = xstrdup(from->idempotency_key);
	copy.display = xstrdup(from->display);
	*to = copy;
}

/* As much of text as fits in max bytes without cutting a UTF-8 character in two. */
static char *cut_text(const char *text, size_t max)
{
	size_t n = strnlen(text, max + 1);
	if (n > max) {
		n = max;
		while (n > 0 && n > max - 3 && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--;
	}
	return xstrndup(text, n);
}

static bool plain_word(const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
	return *s && s[strspn(s, plain)] == 0;
}

static void add_word(struct buf *b, const char *word)
{
	if (plain_word(word)) {
		buf_addz(b, word);
		return;
	}
	buf_addc(b, '\'');
	for (const char *p = word; *p && !b->overflow; p++)
		if (*p == '\'')
			buf_addz(b, "'\\''");
		else
			buf_addc(b, *p);
	buf_addc(b, '\'');
}

char *run_spec_display(const struct run_spec *r)
{
	const char *text = r->display ? r->display : r->shell ? r->shell : r->code;
	if (text)
		return cut_text(text, RUN_DISPLAY_MAX);
	auto_buf struct buf b;
	/* Validation bounds argv by RUN_ARGV_TOTAL_MAX; quoting makes it four times longer at worst, plus quotes and blanks. */
	buf_init(&b, (size_t)RUN_ARGV_TOTAL_MAX * 8);
	for (char **p = r->argv; p && *p && b.len <= RUN_DISPLAY_MAX; p++) {
		if (p != r->argv)
			buf_addc(&b, ' ');
		add_word(&b, *p);
	}
	return cut_text(b.data ? b.data : "", RUN_DISPLAY_MAX);
}
