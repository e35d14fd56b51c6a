/* What a caller may ask for. Each message names the field, shows the value (escaped, cut) and says what would be right.
 *
 * Form only: no table of images, no host limits, no clock. The values of environment variables may be secrets, so a
 * message shows their length and never their text. */
#include "model/permission.h"
#include "model/publish.h"
#include "model/reach.h"
#include "model/secret.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define QUOTE(z) str_quote(str_of(z), &(struct quoted){ 0 })

static int invalid(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int invalid(struct err *e, const char *fmt, ...)
{
	char text[sizeof e->message];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	return err_set(e, ERR_INVALID, EINVAL, "%s", text);
}

static int too_large(struct err *e, const char *field, size_t size, size_t max)
{
	return err_set(e, ERR_TOO_LARGE, EMSGSIZE, "%s: %zu bytes; at most %zu are allowed", field, size, max);
}

/* --- alphabets; ASCII whatever the locale --- */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_alnum(char c)
{
	return is_alpha(c) || is_digit(c);
}

static bool has_control(struct str s)
{
	for (size_t i = 0; i < s.n; i++)
		if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f)
			return true;
	return false;
}

bool env_name_valid(struct str name)
{
	if (name.n == 0 || is_digit(name.p[0]))
		return false;
	for (size_t i = 0; i < name.n; i++)
		if (!is_alnum(name.p[i]) && name.p[i] != '_')
			return false;
	return true;
}

bool sandbox_name_valid(struct str name)
{
	if (name.n == 0 || name.n > SPEC_NAME_MAX || !is_alnum(name.p[0]) || !is_alnum(name.p[name.n - 1]))
		return false;
	for (size_t i = 0; i < name.n; i++)
		if (!is_alnum(name.p[i]) && !memchr("_.-", name.p[i], 3))
			return false;
	return true;
}

bool hostname_valid(struct str name)
{
	if (name.n == 0 || name.n > SPEC_HOSTNAME_MAX)
		return false;
	char before = '.';
	for (size_t i = 0; i < name.n; i++) {
		char c = name.p[i];
		if (c == '.' || c == '-') {
			if (before == '.' || (c == '.' && before == '-'))
				return false; /* an empty label, or one with '-' at an end */
		} else if (!is_alnum(c)) {
			return false;
		}
		before = c;
	}
	return is_alnum(before);
}

static bool id_number_valid(struct str s)
{
	uint64_t id;
	return parse_u64(s, UINT32_MAX - 1, &id) == 0; /* UINT32_MAX is (uid_t)-1: "no change" to the kernel */
}

bool user_valid(struct str user)
{
	if (user.n == 0 || user.n > SPEC_USER_MAX)
		return false;
	if (is_digit(user.p[0])) {
		const char *colon = memchr(user.p, ':', user.n);
		if (!colon)
			return id_number_valid(user);
		size_t at = (size_t)(colon - user.p);
		return id_number_valid((struct str){ user.p, at }) && id_number_valid((struct str){ colon + 1, user.n - at - 1 });
	}
	if (!is_alpha(user.p[0]) && user.p[0] != '_')
		return false;
	for (size_t i = 1; i < user.n; i++)
		if (!is_alnum(user.p[i]) && !memchr("_.-", user.p[i], 3))
			return false;
	return true;
}

bool session_id_valid(struct str id)
{
	return id.n > 0 && id.n <= 128 && !memchr(id.p, '/', id.n) && !str_eqz(id, ".") && !str_eqz(id, "..") && utf8_valid(id) &&
	       !has_control(id);
}

/* --- fields that sandbox and run share --- */

static int check_user(const char *user, struct err *e)
{
	if (user && !user_valid(str_of(user)))
		return invalid(e, "user: %s is not a user; give a name, a uid, or uid:gid, of at most %d bytes", QUOTE(user), SPEC_USER_MAX);
	return 0;
}

static int check_key(const char *key, struct err *e)
{
	struct str s = str_of(key);
	if (!key)
		return 0;
	if (s.n > SPEC_KEY_MAX)
		return too_large(e, "idempotency_key", s.n, SPEC_KEY_MAX);
	if (s.n == 0 || !utf8_valid(s) || has_control(s))
		return invalid(e, "idempotency_key: %s; give 1 to %d bytes of UTF-8 without control characters", QUOTE(key), SPEC_KEY_MAX);
	return 0;
}

int env_validate(const struct pairs *env, struct err *e)
{
	size_t total = 0;
	if (env->n > SPEC_ENV_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "env: %zu variables; at most %d are allowed", env->n, SPEC_ENV_MAX);
	for (size_t i = 0; i < env->n; i++) {
		const struct pair *p = &env->v[i];
		struct str name = str_of(p->key);
		if (!env_name_valid(name))
			return invalid(e, "env: %s is not a variable name; use letters, digits and '_', and no digit first", QUOTE(p->key));
		size_t size = name.n + strlen(p->value) + 2;
		total += size;
		if (size > SPEC_ENV_VALUE_MAX)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "env: %s takes %zu bytes with its name; at most %u are allowed", QUOTE(p->key), size,
			               SPEC_ENV_VALUE_MAX);
		if (!utf8_valid(str_of(p->value)))
			return invalid(e, "env: the value of %s is not valid UTF-8", QUOTE(p->key));
	}
	if (total > SPEC_ENV_TOTAL_MAX)
		return too_large(e, "env", total, SPEC_ENV_TOTAL_MAX);
	return 0;
}

int labels_validate(const struct pairs *labels, struct err *e)
{
	if (labels->n > SPEC_LABELS_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "labels: %zu labels; at most %d are allowed", labels->n, SPEC_LABELS_MAX);
	for (size_t i = 0; i < labels->n; i++) {
		struct str key = str_of(labels->v[i].key), value = str_of(labels->v[i].value);
		if (key.n == 0 || key.n > 128 || !utf8_valid(key) || has_control(key))
			return invalid(e, "labels: the key %s; give 1 to 128 bytes of UTF-8 without control characters", QUOTE(key.p));
		if (value.n > 1024 || !utf8_valid(value) || has_control(value))
			return invalid(e, "labels: the value %s of %s; give at most 1024 bytes of UTF-8 without control characters", QUOTE(value.p),
			               QUOTE(key.p));
	}
	return 0;
}

/* --- sandbox --- */

static int check_range(const char *field, uint64_t value, uint64_t min, uint64_t max, struct err *e)
{
	if (value != 0 && (value < min || value > max))
		return invalid(e, "%s: %" PRIu64 " is out of range; give %" PRIu64 " to %" PRIu64 ", or 0 for the default", field, value, min, max);
	return 0;
}

int resources_validate(const struct resources *r, struct err *e)
{
	int rc;
	/* Written so that a NaN fails as well. */
	if (r->cpus != 0 && !(r->cpus >= RESOURCES_CPUS_MIN && r->cpus <= RESOURCES_CPUS_MAX))
		return invalid(e, "resources.cpus: %g is out of range; give %g to %d, or 0 for the default", r->cpus, RESOURCES_CPUS_MIN, RESOURCES_CPUS_MAX);
	if ((rc = check_range("resources.memory_mib", r->memory_mib, RESOURCES_MEMORY_MIB_MIN, RESOURCES_MEMORY_MIB_MAX, e)) < 0 ||
	    (rc = check_range("resources.disk_mib", r->disk_mib, RESOURCES_DISK_MIB_MIN, RESOURCES_DISK_MIB_MAX, e)) < 0)
		return rc;
	return check_range("resources.pids", r->pids, RESOURCES_PIDS_MIN, RESOURCES_PIDS_MAX, e);
}

int lifetime_validate(const struct lifetime *l, struct err *e)
{
	if (l->idle_s > LIFETIME_MAX_S)
		return invalid(e, "lifetime.idle_s: %" PRIu64 " is out of range; give seconds up to %llu, or 0 for never", l->idle_s, LIFETIME_MAX_S);
	if (l->max_s > LIFETIME_MAX_S)
		return invalid(e, "lifetime.max_s: %" PRIu64 " is out of range; give seconds up to %llu, or 0 for never", l->max_s, LIFETIME_MAX_S);
	if (l->delete_after_s < -1 || l->delete_after_s > (int64_t)LIFETIME_MAX_S)
		return invalid(e, "lifetime.delete_after_s: %" PRId64 " is out of range; give seconds up to %llu, 0 for at once, or -1 for never",
		               l->delete_after_s, LIFETIME_MAX_S);
	return 0;
}

/* A reference as docker, OCI layouts or our own digests write it: printable, no blanks, nothing that a tool takes for an option. */
static int check_image(const char *image, struct err *e)
{
	struct str s = str_of(image);
	if (!image)
		return 0;
	bool ok = s.n > 0 && s.n <= SPEC_IMAGE_MAX && s.p[0] != '-';
	for (size_t i = 0; ok && i < s.n; i++)
		ok = s.p[i] > 0x20 && s.p[i] < 0x7f;
	if (!ok)
		return invalid(e, "image: %s is not an image reference; give something like \"default\" or \"python:3.12\", of at most %d characters",
		               QUOTE(image), SPEC_IMAGE_MAX);
	return 0;
}

static int check_boundary(const char *boundary, struct err *e)
{
	struct str s = str_of(boundary);
	if (!boundary)
		return 0;
	bool ok = s.n > 0 && s.n <= 16;
	for (size_t i = 0; ok && i < s.n; i++)
		ok = s.p[i] >= 'a' && s.p[i] <= 'z';
	if (!ok)
		return invalid(e, "boundary: %s is not a boundary; give \"process\" or \"vm\", or leave it out", QUOTE(boundary));
	return 0;
}

static int check_workdir(const char *path, struct err *e)
{
	struct str s = str_of(path);
	if (!path)
		return 0;
	if (s.n > SPEC_PATH_MAX)
		return too_large(e, "workdir", s.n, SPEC_PATH_MAX);
	if (s.n == 0 || s.p[0] != '/' || !utf8_valid(s))
		return invalid(e, "workdir: %s is not usable; give an absolute path in UTF-8", QUOTE(path));
	return 0;
}

bool snapshot_name_valid(struct str name)
{
	if (name.n == 0 || name.n > SNAPSHOT_NAME_MAX || !isalnum((unsigned char)name.p[0]))
		return false;
	for (size_t i = 0; i < name.n; i++)
		if (!isalnum((unsigned char)name.p[i]) && !strchr("._:/@+-", name.p[i]))
			return false;
	return !memchr(name.p, '\0', name.n);
}

bool volume_name_valid(struct str name)
{
	if (name.n == 0 || name.n > VOLUME_NAME_MAX || !is_alnum(name.p[0]))
		return false;
	for (size_t i = 0; i < name.n; i++)
		if (!is_alnum(name.p[i]) && !memchr("._-", name.p[i], 3))
			return false;
	return true;
}

/* Names with a '/' between them, none of them empty, "." or "..": what is written is where it goes. */
static bool plain_path(const char *p)
{
	size_t total = strlen(p);

	if (total == 0 || total > SPEC_VOLUME_PATH_MAX || !utf8_valid(str_of(p)) || has_control(str_of(p)))
		return false;
	for (;; p++) {
		size_t n = strcspn(p, "/");
		if (n == 0 || n > 255 || (n <= 2 && strspn(p, ".") >= n))
			return false;
		p += n;
		if (!*p)
			return true;
	}
}

static bool is_or_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);
	return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static int check_volume(const struct volume_mounts *m, size_t i, struct err *e)
{
	static const char *const taken[] = { "/proc", "/sys", "/dev" };
	const struct volume_mount *v = &m->v[i];

	if (!v->volume || !volume_name_valid(str_of(v->volume)))
		return invalid(e, "volumes: %s is not the name or id of a volume", QUOTE(v->volume ? v->volume : ""));
	if (!v->path || v->path[0] != '/' || !plain_path(v->path + 1))
		return invalid(e, "volumes: %s is no path to mount on; give an absolute one of at most %d bytes, without \"//\", \".\", \"..\" or a '/' at the end",
		               QUOTE(v->path ? v->path : ""), SPEC_VOLUME_PATH_MAX);
	for (size_t k = 0; k < ARRAY_LEN(taken); k++)
		if (is_or_below(v->path, taken[k]))
			return invalid(e, "volumes: nothing can be mounted on %s", QUOTE(v->path));
	if (v->subpath && !plain_path(v->subpath))
		return invalid(e, "volumes: the subpath %s; give a relative one of at most %d bytes, without \"//\", \".\" or \"..\"", QUOTE(v->subpath),
		               SPEC_VOLUME_PATH_MAX);
	for (size_t k = 0; k < i; k++)
		if (streq(m->v[k].path, v->path))
			return invalid(e, "volumes: two of them are to be at %s", QUOTE(v->path));
	return 0;
}

static int check_volumes(const struct volume_mounts *m, struct err *e)
{
	int rc = 0;

	if (m->n > SPEC_VOLUMES_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "volumes: %zu; at most %d can be mounted into a sandbox", m->n, SPEC_VOLUMES_MAX);
	for (size_t i = 0; rc == 0 && i < m->n; i++)
		rc = check_volume(m, i, e);
	return rc;
}

/* Which secrets there are is core's to say. */
int spec_check_secrets(const struct sandbox_spec *s, struct err *e)
{
	const struct pairs *lists[] = { &s->secret_env, &s->secret_files };

	if (s->secret_env.n + s->secret_files.n > SECRETS_OF_SANDBOX_MAX)
		return invalid(e, "secrets: %zu are asked for; at most %d are possible", s->secret_env.n + s->secret_files.n, SECRETS_OF_SANDBOX_MAX);
	for (size_t l = 0; l < ARRAY_LEN(lists); l++)
		for (size_t i = 0; i < lists[l]->n; i++) {
			const char *key = lists[l]->v[i].key, *name = lists[l]->v[i].value;
			if (!sandbox_name_valid(str_of(name)))
				return invalid(e, "secrets: %s is not the name of a secret", QUOTE(name));
			if (l == 0 && !env_name_valid(str_of(key)))
				return invalid(e, "secrets.env: %s is not a variable name; use letters, digits and '_', and no digit first", QUOTE(key));
			if (l == 0 && pairs_get(&s->env, key))
				return invalid(e, "secrets.env: %s is in env, too: a variable has one value, so leave one of them out", QUOTE(key));
			if (l == 1 && (key[0] != '/' || !key[1] || strlen(key) > SPEC_PATH_MAX || !utf8_valid(str_of(key))))
				return invalid(e, "secrets.files: %s is not usable; give an absolute path in UTF-8", QUOTE(key));
		}
	return 0;
}

int spec_validate(const struct sandbox_spec *s, struct err *e)
{
	int rc;
	if (s->name && !sandbox_name_valid(str_of(s->name)))
		return invalid(e, "name: %s is not a sandbox name; use 1 to %d letters, digits, '_', '.' and '-', with a letter or digit at both ends",
		               QUOTE(s->name), SPEC_NAME_MAX);
	if (s->hostname && !hostname_valid(str_of(s->hostname)))
		return invalid(e, "hostname: %s is not a host name; use 1 to %d letters, digits, '-' and '.', with a letter or digit at the ends of each label",
		               QUOTE(s->hostname), SPEC_HOSTNAME_MAX);
	if (s->from_snapshot && !snapshot_name_valid(str_of(s->from_snapshot)))
		return invalid(e, "from_snapshot: %s is not the name or id of a snapshot", QUOTE(s->from_snapshot));
	if ((rc = check_image(s->image, e)) < 0 || (rc = check_boundary(s->boundary, e)) < 0 || (rc = resources_validate(&s->resources, e)) < 0 ||
	    (rc = env_validate(&s->env, e)) < 0 || (rc = labels_validate(&s->labels, e)) < 0 || (rc = check_user(s->user, e)) < 0 ||
	    (rc = check_workdir(s->workdir, e)) < 0 || (rc = lifetime_validate(&s->lifetime, e)) < 0 || (rc = check_key(s->idempotency_key, e)) < 0)
		return rc;
	if ((rc = policy_check(s->network, s->network_allow, s->network_deny, false, e)) < 0 || (rc = check_volumes(&s->volumes, e)) < 0)
		return rc;
	if ((rc = spec_check_secrets(s, e)) < 0 || (rc = permissions_validate(s->permissions, e)) < 0 || (rc = reach_check(s, e)) < 0 || (rc = publications_validate(&s->publish, e)) < 0)
		return rc;
	struct str extra = str_of(s->extra);
	if (extra.n > SPEC_EXTRA_MAX)
		return too_large(e, "extra", extra.n, SPEC_EXTRA_MAX);
	if (s->extra && !utf8_valid(extra))
		return invalid(e, "extra: not valid UTF-8");
	return 0;
}

/* --- run --- */

/* Adds the sizes of v's elements to *total and checks both bounds. */
static int check_argv(const char *field, char *const *v, size_t *total, struct err *e)
{
	for (size_t i = 0; v && v[i]; i++) {
		size_t size = strlen(v[i]) + 1;
		if (size > RUN_ARGV_MAX)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "%s[%zu]: %zu bytes; the kernel takes at most %u in one argument", field, i, size - 1,
			               RUN_ARGV_MAX - 1);
		*total += size;
		if (*total > RUN_ARGV_TOTAL_MAX)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "%s: the arguments take more than %u bytes together; pass them on stdin or in a file", field,
			               RUN_ARGV_TOTAL_MAX);
	}
	return 0;
}

static int check_command(const struct run_spec *r, struct err *e)
{
	size_t total = 0;
	int given = (r->argv != NULL) + (r->shell != NULL) + (r->code != NULL);
	if (given != 1)
		return invalid(e, "%s; give exactly one of argv, shell and code", given ? "more than one command is given" : "no command is given");
	if (r->argv && (!r->argv[0] || !r->argv[0][0]))
		return invalid(e, "argv: the first element must name a program");
	if (r->code_argv && !r->code)
		return invalid(e, "code_argv: allowed only together with code");
	if (r->code && (r->language <= CODE_NONE || r->language > CODE_BASH))
		return invalid(e, "language: missing or unknown; with code, give python, javascript, typescript or bash");
	if (!r->code && r->language != CODE_NONE)
		return invalid(e, "language: %s is given without code", code_language_name(r->language));
	if (r->shell && strlen(r->shell) > RUN_SCRIPT_MAX)
		return too_large(e, "shell", strlen(r->shell), RUN_SCRIPT_MAX);
	if (r->code && strlen(r->code) > RUN_SCRIPT_MAX)
		return too_large(e, "code", strlen(r->code), RUN_SCRIPT_MAX);
	int rc = check_argv("argv", r->argv, &total, e);
	return rc < 0 ? rc : check_argv("code_argv", r->code_argv, &total, e);
}

static int check_session(const struct run_spec *r, struct err *e)
{
	if (!r->session)
		return 0;
	if (!session_id_valid(str_of(r->session)))
		return invalid(e, "session: %s is not a session id; give 1 to 128 bytes of UTF-8 without '/' and control characters", QUOTE(r->session));
	if (!r->shell)
		return invalid(e, "session: a session takes a shell command, not argv or code");
	const char *extra = r->user ? "user" : r->pty ? "pty" : NULL;
	if (extra)
		return invalid(e, "%s: not allowed in a session, which has its own shell", extra);
	return 0;
}

int run_spec_validate(const struct run_spec *r, struct err *e)
{
	int rc;
	if ((rc = check_command(r, e)) < 0 || (rc = check_session(r, e)) < 0 || (rc = env_validate(&r->env, e)) < 0 ||
	    (rc = check_user(r->user, e)) < 0 || (rc = check_key(r->idempotency_key, e)) < 0)
		return rc;
	/* cwd may be relative (to the work directory) and any bytes: it is a path inside, and the guest resolves it. */
	if (r->cwd && (!r->cwd[0] || strlen(r->cwd) > SPEC_PATH_MAX))
		return invalid(e, "cwd: %zu bytes; give a path of 1 to %d", strlen(r->cwd), SPEC_PATH_MAX);
	if (r->stdin_len > RUN_STDIN_INLINE_MAX)
		return too_large(e, "stdin", r->stdin_len, RUN_STDIN_INLINE_MAX);
	if (r->timeout_ms > RUN_TIMEOUT_MAX_MS)
		return invalid(e, "timeout_ms: %" PRIu64 " is out of range; give milliseconds up to %llu, or 0 for none", r->timeout_ms, RUN_TIMEOUT_MAX_MS);
	if (r->output_max > RUN_OUTPUT_MAX_MAX)
		return invalid(e, "output_max: %" PRIu64 " is out of range; give bytes up to %llu, or 0 for the default", r->output_max,
		               RUN_OUTPUT_MAX_MAX);
	if (r->display && strlen(r->display) > RUN_SCRIPT_MAX)
		return too_large(e, "display", strlen(r->display), RUN_SCRIPT_MAX);
	return 0;
}
