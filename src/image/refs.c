#include "image/refs.h"

#include "image/ref.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void decref_ptr(json_t **j)
{
	json_decref(*j);
}
#define auto_json __attribute__((cleanup(decref_ptr))) json_t *

void refs_done(struct refs *r)
{
	pairs_done(&r->names);
	pairs_done(&r->map);
}

char **strings_copy(const char *const *v)
{
	if (!v)
		return NULL;
	size_t n = 0;
	while (v[n])
		n++;
	char **to = xcalloc(n + 1, sizeof *to);
	for (size_t i = 0; i < n; i++)
		to[i] = xstrdup(v[i]);
	return to;
}

void strings_free(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

void image_config_done(struct image_config *c)
{
	free(c->user);
	free(c->workdir);
	pairs_done(&c->env);
	strings_free(c->entrypoint);
	strings_free(c->cmd);
	strings_free(c->privileged);
	*c = (struct image_config){ 0 };
}

void image_folder_name(const char *digest, char ret_name[static 72])
{
	snprintf(ret_name, 72, "%s", digest);
	ret_name[6] = '-';
}

/* --- reading --- */

int image_read_file(int dir, const char *name, struct buf *to, struct err *e)
{
	auto_fd int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return err_sys(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_UNAVAILABLE, errno, "can't open %s", name);
	for (;;) {
		char *room = buf_reserve(to, 65536);
		if (!room)
			return err_set(e, ERR_INVALID, EFBIG, "%s is larger than %zu bytes", name, to->max);
		ssize_t n = read(fd, room, 65536);
		if (n < 0)
			return err_sys(e, ERR_UNAVAILABLE, errno, "can't read %s", name);
		if (n == 0)
			return 0;
		buf_grew(to, (size_t)n);
	}
}

static int read_json(int dir, const char *name, json_t **ret, struct err *e)
{
	auto_buf struct buf b;
	buf_init(&b, IMAGE_JSON_MAX);
	int r = image_read_file(dir, name, &b, e);
	if (r < 0)
		return r;
	json_error_t je;
	json_t *j = json_loadb(b.data ? b.data : "", b.len, JSON_REJECT_DUPLICATES, &je);
	if (!j)
		return err_set(e, ERR_INTERNAL, EBADMSG, "%s is damaged: %s (line %d)", name, je.text, je.line);
	*ret = j;
	return 0;
}

/* The pairs of an object whose values are strings; other values are an error. */
static int pairs_from(const json_t *object, struct pairs *to)
{
	const char *key;
	json_t *value;
	if (object && !json_is_object(object))
		return -EBADMSG;
	json_object_foreach((json_t *)(uintptr_t)object, key, value) {
		if (!json_is_string(value))
			return -EBADMSG;
		pairs_add(to, key, json_string_value(value));
	}
	return 0;
}

int refs_load(int folder, struct refs *ret, struct err *e)
{
	*ret = (struct refs){ 0 };
	auto_json j = NULL;
	int r = read_json(folder, "refs.json", &j, e);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (pairs_from(json_object_get(j, "refs"), &ret->names) < 0 || pairs_from(json_object_get(j, "map"), &ret->map) < 0) {
		refs_done(ret);
		return err_set(e, ERR_INTERNAL, EBADMSG, "refs.json is damaged: a name must have a text as its value");
	}
	for (size_t i = 0; i < ret->names.n; i++)
		if (!image_digest_valid(ret->names.v[i].value)) {
			err_set(e, ERR_INTERNAL, EBADMSG, "refs.json is damaged: '%.100s' does not point to a digest", ret->names.v[i].key);
			refs_done(ret);
			return -EBADMSG;
		}
	return 0;
}

static char *string_of(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));
	return s && *s ? xstrdup(s) : NULL;
}

static char **strings_of(const json_t *array)
{
	size_t n = json_array_size(array), used = 0;
	if (n == 0)
		return NULL;
	char **v = xcalloc(n + 1, sizeof *v);
	for (size_t i = 0; i < n; i++)
		if (json_is_string(json_array_get(array, i)))
			v[used++] = xstrdup(json_string_value(json_array_get(array, i)));
	return v;
}

static uint64_t number_of(const json_t *object, const char *key)
{
	json_int_t v = json_integer_value(json_object_get(object, key));
	return v > 0 ? (uint64_t)v : 0;
}

int image_json_load(int dir, const char *digest, struct image *ret, struct err *e)
{
	auto_json j = NULL;
	int r = read_json(dir, "image.json", &j, e);
	if (r < 0)
		return r;
	struct pairs env = { 0 };
	if (!streq(json_string_value(json_object_get(j, "digest")), digest) || pairs_from(json_object_get(j, "env"), &env) < 0) {
		pairs_done(&env);
		return err_set(e, ERR_INTERNAL, EBADMSG, "image.json of %s is damaged: remove the image and add it again", digest);
	}
	snprintf(ret->digest, sizeof ret->digest, "%s", digest);
	ret->user = string_of(j, "user");
	ret->workdir = string_of(j, "workdir");
	ret->env = env;
	ret->size_bytes = number_of(j, "size_bytes");
	ret->created_ms = number_of(j, "created_ms");
	return 0;
}

int image_json_privileged(int dir, char ***ret, struct err *e)
{
	auto_json j = NULL;
	int r = read_json(dir, "image.json", &j, e);

	if (r == 0)
		*ret = strings_of(json_object_get(j, "privileged"));
	return r;
}

/* "NAME=value" of an OCI list; what is no valid name is left out: nothing could read it. */
static void env_from_oci(const json_t *list, struct pairs *to)
{
	size_t n = MIN(json_array_size(list), (size_t)SPEC_ENV_MAX);
	for (size_t i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(list, i));
		const char *eq = text ? strchr(text, '=') : NULL;
		if (!eq || !env_name_valid((struct str){ text, (size_t)(eq - text) }))
			continue;
		auto_free char *key = xstrndup(text, (size_t)(eq - text));
		pairs_add(to, key, eq + 1);
	}
}

static int load_text(struct str text, json_t **ret, struct err *e)
{
	json_error_t je;
	json_t *j = json_loadb(text.p ? text.p : "", text.n, 0, &je);
	if (json_is_object(j)) {
		*ret = j;
		return 0;
	}
	const char *why = j ? "not an object" : je.text;
	json_decref(j);
	return err_set(e, ERR_INVALID, EBADMSG, "the image's configuration is not valid JSON: %s", why);
}

int image_config_from_oci(struct str text, struct image_config *ret, struct err *e)
{
	auto_json j = NULL;
	int r = load_text(text, &j, e);
	if (r < 0)
		return r;
	const json_t *c = json_object_get(j, "config");
	*ret = (struct image_config){
		.user = string_of(c, "User"),
		.workdir = string_of(c, "WorkingDir"),
		.entrypoint = strings_of(json_object_get(c, "Entrypoint")),
		.cmd = strings_of(json_object_get(c, "Cmd")),
	};
	env_from_oci(json_object_get(c, "Env"), &ret->env);
	return 0;
}

int image_config_from_recipe(struct str text, struct image_config *ret, struct err *e)
{
	auto_json j = NULL;
	int r = load_text(text, &j, e);
	if (r < 0)
		return r;
	*ret = (struct image_config){ .user = string_of(j, "user"), .workdir = string_of(j, "workdir") };
	if (pairs_from(json_object_get(j, "env"), &ret->env) == 0)
		return 0;
	image_config_done(ret);
	return err_set(e, ERR_INVALID, EBADMSG, "env of the recipe must be an object of texts");
}

/* --- writing --- */

static json_t *json_of_pairs(const struct pairs *p)
{
	json_t *o = json_object();
	for (size_t i = 0; i < p->n; i++)
		json_object_set_new(o, p->v[i].key, json_string(p->v[i].value));
	return o;
}

static json_t *json_of_strings(char *const *v)
{
	json_t *a = json_array();
	for (; v && *v; v++)
		json_array_append_new(a, json_string(*v));
	return a;
}

static json_t *json_of_config(const struct image_config *c)
{
	json_t *o = json_object();
	json_object_set_new(o, "user", c->user ? json_string(c->user) : json_null());
	json_object_set_new(o, "workdir", c->workdir ? json_string(c->workdir) : json_null());
	json_object_set_new(o, "env", json_of_pairs(&c->env));
	json_object_set_new(o, "entrypoint", json_of_strings(c->entrypoint));
	json_object_set_new(o, "cmd", json_of_strings(c->cmd));
	return o;
}

char *image_config_text(const struct image_config *c)
{
	auto_json j = json_of_config(c);
	char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text)
		abort(); /* only for lack of memory: every text in it was checked to be UTF-8 by the parser */
	return text;
}

/* Written beside and renamed, and on the disk before the rename: a reader sees the old file or the new one, whole. */
static int write_json(int dir, const char *name, const json_t *j, struct err *e)
{
	auto_free char *text = json_dumps(j, JSON_INDENT(2) | JSON_SORT_KEYS);
	auto_free char *beside = xasprintf(".%s.new", name);
	if (!text)
		return err_set(e, ERR_INTERNAL, EINVAL, "%s can't be written as JSON", name);
	auto_fd int fd = openat(dir, beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "can't write %s", name);
	size_t n = strlen(text);
	bool ok = write(fd, text, n) == (ssize_t)n && write(fd, "\n", 1) == 1 && fchmod(fd, 0644) == 0 && fsync(fd) == 0 &&
		  renameat(dir, beside, dir, name) == 0;
	int cause = errno;
	if (ok)
		return 0;
	unlinkat(dir, beside, 0);
	return err_sys(e, ERR_UNAVAILABLE, cause ? cause : ENOSPC, "can't write %s", name);
}

int refs_save(int folder, const struct refs *r, struct err *e)
{
	auto_json j = json_object();
	json_object_set_new(j, "refs", json_of_pairs(&r->names));
	json_object_set_new(j, "map", json_of_pairs(&r->map));
	return write_json(folder, "refs.json", j, e);
}

int image_json_save(int dir, const char *digest, uint64_t created_ms, uint64_t size, const struct image_config *c, struct err *e)
{
	auto_json j = json_of_config(c);
	json_object_set_new(j, "digest", json_string(digest));
	json_object_set_new(j, "created_ms", json_integer((json_int_t)created_ms));
	json_object_set_new(j, "size_bytes", json_integer((json_int_t)size));
	json_object_set_new(j, "privileged", json_of_strings(c->privileged));
	return write_json(dir, "image.json", j, e);
}
