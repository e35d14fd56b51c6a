/* Bodies to specifications: the tables of what a sandbox and a run may be asked to be. */
#include "dialect/native/native_int.h"

#include <errno.h>

/* --- fields that need a word of their own --- */

static int set_network_mode(void *into, const char *where, const json_t *v, struct err *e)
{
	static const enum network_mode modes[] = { NETWORK_NONE, NETWORK_PUBLIC, NETWORK_ALLOW };
	const char *name = json_string_value(v);
	for (size_t i = 0; name && i < ARRAY_LEN(modes); i++)
		if (streq(name, network_mode_name(modes[i]))) {
			((struct sandbox_spec *)into)->network = modes[i];
			((struct sandbox_spec *)into)->network_unasked = false;
			return 0;
		}
	return err_set(e, ERR_INVALID, EINVAL, "%s must be \"none\", \"public\" or \"allow\"", where);
}

static int set_sudo(void *into, const char *where, const json_t *v, struct err *e)
{
	if (!json_is_boolean(v))
		return err_set(e, ERR_INVALID, EINVAL, "%s must be true or false", where);
	((struct sandbox_spec *)into)->sudo = json_is_true(v) ? WANT_YES : WANT_NO;
	return 0;
}

static int set_language(void *into, const char *where, const json_t *v, struct err *e)
{
	struct run_spec *s = into;
	if (json_is_string(v) && code_language_parse(str_of(json_string_value(v)), &s->language) == 0)
		return 0;
	return err_set(e, ERR_INVALID, EINVAL, "%s must be \"python\", \"javascript\", \"typescript\" or \"bash\"", where);
}

static int stdin_twice(const struct run_spec *s, struct err *e)
{
	return s->stdin_bytes ? err_set(e, ERR_INVALID, EINVAL, "give one of \"stdin\" and \"stdin_base64\", not both") : 0;
}

static int set_stdin(void *into, const char *where, const json_t *v, struct err *e)
{
	struct run_spec *s = into;
	if (!json_is_string(v))
		return err_set(e, ERR_INVALID, EINVAL, "%s must be a string (bytes that are not UTF-8 go into \"stdin_base64\")", where);
	if (stdin_twice(s, e) < 0)
		return -EINVAL;
	s->stdin_len = json_string_length(v);
	s->stdin_bytes = xmemdup(json_string_value(v), s->stdin_len);
	return 0;
}

static int set_stdin_base64(void *into, const char *where, const json_t *v, struct err *e)
{
	struct run_spec *s = into;
	if (!json_is_string(v))
		return err_set(e, ERR_INVALID, EINVAL, "%s must be a string of base64", where);
	if (stdin_twice(s, e) < 0)
		return -EINVAL;
	size_t n = json_string_length(v);
	s->stdin_bytes = xmalloc(n / 4 * 3 + 1);
	ssize_t got = base64_decode((struct str){ json_string_value(v), n }, s->stdin_bytes);
	if (got < 0)
		return err_set(e, ERR_INVALID, EINVAL, "%s is not valid base64 (with padding, no line breaks)", where);
	s->stdin_len = (size_t)got;
	return 0;
}

/* The whole of it anew: what is left out is no limit. */
static int set_network_limits(void *into, const char *where, const json_t *v, struct err *e);

/* --- tables --- */

static const struct field resources_fields[] = {
	{ .name = "cpus", .kind = FIELD_NUMBER, .offset = offsetof(struct resources, cpus), .min = RESOURCES_CPUS_MIN, .max = RESOURCES_CPUS_MAX },
	{ .name = "memory_mib", .kind = FIELD_U64, .offset = offsetof(struct resources, memory_mib), .min = RESOURCES_MEMORY_MIB_MIN, .max = RESOURCES_MEMORY_MIB_MAX },
	{ .name = "disk_mib", .kind = FIELD_U64, .offset = offsetof(struct resources, disk_mib), .min = RESOURCES_DISK_MIB_MIN, .max = RESOURCES_DISK_MIB_MAX },
	{ .name = "pids", .kind = FIELD_U64, .offset = offsetof(struct resources, pids), .min = RESOURCES_PIDS_MIN, .max = RESOURCES_PIDS_MAX },
	{ 0 },
};
#define LIMIT(field) offsetof(struct sandbox_spec, network_limits.field)
#define BYTES_MAX    ((double)NETWORK_BYTES_MAX)
static const struct field limit_fields[] = {
	{ .name = "bytes_per_second", .kind = FIELD_U64, .offset = LIMIT(bytes_per_second), .min = NETWORK_RATE_MIN, .max = BYTES_MAX },
	{ .name = "bytes", .kind = FIELD_U64, .offset = LIMIT(bytes), .min = 1, .max = BYTES_MAX },
	{ .name = "connections", .kind = FIELD_U64, .offset = LIMIT(connections), .min = 1, .max = NETWORK_CONNECTIONS_MAX },
	{ .name = "connections_per_second", .kind = FIELD_U64, .offset = LIMIT(connections_per_second), .min = 1, .max = NETWORK_CONNECTIONS_RATE_MAX },
	{ 0 },
};
static const struct field network_fields[] = {
	{ .name = "mode", .kind = FIELD_CUSTOM, .set = set_network_mode },
	{ .name = "allow", .kind = FIELD_STRINGS, .offset = offsetof(struct sandbox_spec, network_allow) },
	{ .name = "deny", .kind = FIELD_STRINGS, .offset = offsetof(struct sandbox_spec, network_deny) },
	{ .name = "limits", .kind = FIELD_CUSTOM, .set = set_network_limits },
	{ 0 },
};
static const struct field lifetime_fields[] = {
	{ .name = "idle_s", .kind = FIELD_U64, .offset = offsetof(struct lifetime, idle_s), .max = LIFETIME_MAX_S },
	{ .name = "max_s", .kind = FIELD_U64, .offset = offsetof(struct lifetime, max_s), .max = LIFETIME_MAX_S },
	{ .name = "delete_after_s", .kind = FIELD_I64, .offset = offsetof(struct lifetime, delete_after_s), .min = -1, .max = LIFETIME_MAX_S },
	{ 0 },
};
static const struct field secrets_fields[] = {
	{ .name = "env", .kind = FIELD_PAIRS, .offset = offsetof(struct sandbox_spec, secret_env) },
	{ .name = "files", .kind = FIELD_PAIRS, .offset = offsetof(struct sandbox_spec, secret_files) },
	{ 0 },
};
static const struct field sandbox_fields[] = {
	{ .name = "name", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, name) },
	{ .name = "image", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, image) },
	{ .name = "boundary", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, boundary) },
	{ .name = "from_snapshot", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, from_snapshot) },
	{ .name = "resources", .kind = FIELD_OBJECT, .offset = offsetof(struct sandbox_spec, resources), .sub = resources_fields },
	{ .name = "env", .kind = FIELD_PAIRS, .offset = offsetof(struct sandbox_spec, env) },
	{ .name = "labels", .kind = FIELD_PAIRS, .offset = offsetof(struct sandbox_spec, labels) },
	{ .name = "user", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, user) },
	{ .name = "workdir", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, workdir) },
	{ .name = "hostname", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, hostname) },
	{ .name = "network", .kind = FIELD_OBJECT, .sub = network_fields },
	{ .name = "secrets", .kind = FIELD_OBJECT, .sub = secrets_fields },
	{ .name = "permissions", .kind = FIELD_STRINGS, .offset = offsetof(struct sandbox_spec, permissions) },
	{ .name = "lifetime", .kind = FIELD_OBJECT, .offset = offsetof(struct sandbox_spec, lifetime), .sub = lifetime_fields },
	{ .name = "volumes", .kind = FIELD_CUSTOM, .set = set_volumes },
	{ .name = "publish", .kind = FIELD_CUSTOM, .set = set_publish },
	{ .name = "sudo", .kind = FIELD_CUSTOM, .set = set_sudo },
	{ .name = "ephemeral", .kind = FIELD_BOOL, .offset = offsetof(struct sandbox_spec, ephemeral) },
	{ .name = "idempotency_key", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, idempotency_key) },
	{ 0 },
};
/* A pool's sandboxes have a network or none; the rules come with the create. */
static const struct field pool_network_fields[] = {
	{ .name = "mode", .kind = FIELD_CUSTOM, .set = set_network_mode },
	{ 0 },
};
struct pool_body {
	struct sandbox_spec spec; /* first, so that the offsets of a sandbox's fields hold */
	uint64_t size;
};
static const struct field pool_fields[] = {
	{ .name = "image", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, image) },
	{ .name = "boundary", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, boundary) },
	{ .name = "resources", .kind = FIELD_OBJECT, .offset = offsetof(struct sandbox_spec, resources), .sub = resources_fields },
	{ .name = "user", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, user) },
	{ .name = "workdir", .kind = FIELD_STRING, .offset = offsetof(struct sandbox_spec, workdir) },
	{ .name = "sudo", .kind = FIELD_CUSTOM, .set = set_sudo },
	{ .name = "ephemeral", .kind = FIELD_BOOL, .offset = offsetof(struct sandbox_spec, ephemeral) },
	{ .name = "network", .kind = FIELD_OBJECT, .sub = pool_network_fields },
	{ .name = "size", .kind = FIELD_U64, .offset = offsetof(struct pool_body, size), .required = true, .max = POOL_SIZE_MAX },
	{ 0 },
};
static const struct field run_fields[] = {
	{ .name = "argv", .kind = FIELD_STRINGS, .offset = offsetof(struct run_spec, argv) },
	{ .name = "shell", .kind = FIELD_STRING, .offset = offsetof(struct run_spec, shell) },
	{ .name = "code", .kind = FIELD_STRING, .offset = offsetof(struct run_spec, code) },
	{ .name = "language", .kind = FIELD_CUSTOM, .set = set_language },
	{ .name = "code_argv", .kind = FIELD_STRINGS, .offset = offsetof(struct run_spec, code_argv) },
	{ .name = "env", .kind = FIELD_PAIRS, .offset = offsetof(struct run_spec, env) },
	{ .name = "cwd", .kind = FIELD_STRING, .offset = offsetof(struct run_spec, cwd) },
	{ .name = "user", .kind = FIELD_STRING, .offset = offsetof(struct run_spec, user) },
	{ .name = "session", .kind = FIELD_STRING, .offset = offsetof(struct run_spec, session) },
	{ .name = "stdin", .kind = FIELD_CUSTOM, .set = set_stdin },
	{ .name = "stdin_base64", .kind = FIELD_CUSTOM, .set = set_stdin_base64 },
	{ .name = "stdin_open", .kind = FIELD_BOOL, .offset = offsetof(struct run_spec, stdin_open) },
	{ .name = "pty", .kind = FIELD_BOOL, .offset = offsetof(struct run_spec, pty) },
	{ .name = "merge_stderr", .kind = FIELD_BOOL, .offset = offsetof(struct run_spec, merge_stderr) },
	{ .name = "rows", .kind = FIELD_U16, .offset = offsetof(struct run_spec, rows), .min = 1 },
	{ .name = "cols", .kind = FIELD_U16, .offset = offsetof(struct run_spec, cols), .min = 1 },
	{ .name = "timeout_ms", .kind = FIELD_U64, .offset = offsetof(struct run_spec, timeout_ms), .min = 1, .max = RUN_TIMEOUT_MAX_MS },
	{ .name = "output_max", .kind = FIELD_U64, .offset = offsetof(struct run_spec, output_max), .min = 1, .max = RUN_OUTPUT_MAX_MAX },
	{ .name = "detach", .kind = FIELD_BOOL, .offset = offsetof(struct run_spec, detach) },
	{ .name = "kill_on_disconnect", .kind = FIELD_BOOL, .offset = offsetof(struct run_spec, kill_on_disconnect) },
	{ .name = "idempotency_key", .kind = FIELD_STRING, .offset = offsetof(struct run_spec, idempotency_key) },
	{ 0 },
};

int resources_decode(struct str body, struct resources *ret, struct err *e)
{
	return decode_body(body, resources_fields, ret, e);
}

int take_idempotency(const struct request *r, char **field, struct err *e)
{
	struct str h = req_header(r, "Idempotency-Key");
	if (!h.p)
		return 0;
	if (h.n == 0 || memchr(h.p, 0, h.n) || !utf8_valid(h))
		return err_set(e, ERR_INVALID, EINVAL, "the header Idempotency-Key is empty or not text");
	if (*field && !str_eqz(h, *field))
		return err_set(e, ERR_INVALID, EINVAL, "the header Idempotency-Key and the field \"idempotency_key\" differ; give one of them");
	free(*field);
	*field = xstrndup(h.p, h.n);
	return 0;
}

int native_sandbox_decode(const struct native *n, const struct request *r, struct sandbox_spec *ret, struct err *e)
{
	int rc;
	spec_init(ret);
	ret->network = n->network;
	ret->network_unasked = true;
	if ((rc = decode_body(req_body(r), sandbox_fields, ret, e)) < 0 || (rc = take_idempotency(r, &ret->idempotency_key, e)) < 0)
		return rc;
	return spec_validate(ret, e);
}

int native_pool_decode(const struct native *n, const struct request *r, struct sandbox_spec *ret, size_t *ret_size, struct err *e)
{
	struct pool_body body = { 0 };

	spec_init(&body.spec);
	body.spec.network = n->network;
	body.spec.network_unasked = true;
	int rc = decode_body(req_body(r), pool_fields, &body, e);
	*ret = body.spec;
	*ret_size = body.size;
	return rc < 0 ? rc : spec_validate(ret, e);
}

int native_run_decode(const struct request *r, struct run_spec *ret, struct err *e)
{
	int rc;
	run_spec_init(ret);
	if ((rc = decode_body(req_body(r), run_fields, ret, e)) < 0 || (rc = take_idempotency(r, &ret->idempotency_key, e)) < 0)
		return rc;
	if ((ret->rows || ret->cols) && !ret->pty)
		return err_set(e, ERR_INVALID, EINVAL, "field \"%s\" is the size of a terminal: give it together with \"pty\": true",
		               ret->rows ? "rows" : "cols");
	return run_spec_validate(ret, e);
}

/* --- changes to a sandbox --- */

static int set_env_changes(void *into, const char *where, const json_t *v, struct err *e)
{
	struct sandbox_changes *c = into;
	const char *key;
	json_t *value;
	size_t n = 0;
	if (!json_is_object(v))
		return err_set(e, ERR_INVALID, EINVAL, "%s must be an object of strings and nulls", where);
	if (json_object_size(v) > SPEC_ENV_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "%s has %zu entries; at most %d are allowed", where, json_object_size(v), SPEC_ENV_MAX);
	c->env_unset = xcalloc(json_object_size(v) + 1, sizeof *c->env_unset);
	json_object_foreach((json_t *)(uintptr_t)v, key, value) {
		if (json_is_null(value))
			c->env_unset[n++] = xstrdup(key);
		else if (json_is_string(value))
			pairs_add(&c->env_set, key, json_string_value(value));
		else
			return err_set(e, ERR_INVALID, EINVAL, "%s: the value of \"%.80s\" must be a string, or null to remove it", where, key);
	}
	for (size_t i = 0; i < n; i++)
		if (!env_name_valid(str_of(c->env_unset[i])))
			return err_set(e, ERR_INVALID, EINVAL, "%s: \"%.80s\" is not a variable name", where, c->env_unset[i]);
	return env_validate(&c->env_set, e);
}

static int set_label_changes(void *into, const char *where, const json_t *v, struct err *e)
{
	struct sandbox_changes *c = into;
	const struct field as_pairs = { .name = "labels", .kind = FIELD_PAIRS, .offset = offsetof(struct sandbox_changes, labels) };
	(void)where;
	c->has_labels = true;
	int rc = decode_one(&as_pairs, v, into, e);
	return rc < 0 ? rc : labels_validate(&c->labels, e);
}

static int set_lifetime_changes(void *into, const char *where, const json_t *v, struct err *e)
{
	struct sandbox_changes *c = into;
	const struct field as_object = { .name = "lifetime", .kind = FIELD_OBJECT, .offset = offsetof(struct sandbox_changes, lifetime),
		                         .sub = lifetime_fields };
	(void)where;
	c->has_lifetime = true;
	int rc = decode_one(&as_object, v, into, e);
	return rc < 0 ? rc : lifetime_validate(&c->lifetime, e);
}

static int set_network_limits(void *into, const char *where, const json_t *v, struct err *e)
{
	struct sandbox_spec *s = into;
	const struct field as_object = { .name = "limits", .kind = FIELD_OBJECT, .sub = limit_fields };
	(void)where;
	s->network_limits = (struct network_limits){ 0 };
	return decode_one(&as_object, v, into, e);
}

/* The whole of it anew; what is left out of it is empty, but for the mode and the limits. */
static int set_network_changes(void *into, const char *where, const json_t *v, struct err *e)
{
	struct sandbox_changes *c = into;
	const struct field as_object = { .name = "network", .kind = FIELD_OBJECT, .offset = offsetof(struct sandbox_changes, network),
		                         .sub = network_fields };
	(void)where;
	c->has_network = true;
	int rc = decode_one(&as_object, v, into, e);
	return rc < 0 ? rc : policy_check(c->network.network, c->network.network_allow, c->network.network_deny, false, e);
}

/* The whole of it anew. */
static int set_secret_changes(void *into, const char *where, const json_t *v, struct err *e)
{
	struct sandbox_changes *c = into;
	const struct field as_object = { .name = "secrets", .kind = FIELD_OBJECT, .offset = offsetof(struct sandbox_changes, network),
		                         .sub = secrets_fields };
	(void)where;
	c->has_secrets = true;
	return decode_one(&as_object, v, into, e);
}

static int set_permission_changes(void *into, const char *where, const json_t *v, struct err *e)
{
	struct sandbox_changes *c = into;
	const struct field as_list = { .name = "permissions", .kind = FIELD_STRINGS, .offset = offsetof(struct sandbox_changes, network.permissions) };
	(void)where;
	c->has_permissions = true;
	return decode_one(&as_list, v, into, e);
}

int changes_decode(struct str body, struct sandbox_changes *c, struct err *e)
{
	static const struct field fields[] = {
		{ .name = "labels", .kind = FIELD_CUSTOM, .set = set_label_changes },
		{ .name = "env", .kind = FIELD_CUSTOM, .set = set_env_changes },
		{ .name = "lifetime", .kind = FIELD_CUSTOM, .set = set_lifetime_changes },
		{ .name = "network", .kind = FIELD_CUSTOM, .set = set_network_changes },
		{ .name = "secrets", .kind = FIELD_CUSTOM, .set = set_secret_changes },
		{ .name = "permissions", .kind = FIELD_CUSTOM, .set = set_permission_changes },
		{ 0 },
	};
	return decode_body(body, fields, c, e);
}

void changes_done(struct sandbox_changes *c)
{
	pairs_done(&c->labels);
	pairs_done(&c->env_set);
	strv_free(c->env_unset);
	spec_done(&c->network);
}
