/* JSON of the server to the structs of caisson.h. Unknown members are ignored: a newer server may send more. */
#include "client/client.h"

static char *path_of(const char *const *parts, size_t n, const char *suffix)
{
	static const char *const heads[] = { "/v1/sandboxes/", "/runs/" };
	struct bytes b = { .max = 1 << 20 };

	for (size_t i = 0; i < n; i++) {
		bytes_addz(&b, heads[i]);
		bytes_escape(&b, parts[i]);
	}
	bytes_addz(&b, suffix);
	if (b.failed)
		bytes_done(&b);
	return b.p;
}

char *sandbox_path(const char *sandbox, const char *suffix)
{
	return path_of((const char *const[]){ sandbox }, 1, suffix);
}

char *run_path(const char *sandbox, const char *run, const char *suffix)
{
	return path_of((const char *const[]){ sandbox, run }, 2, suffix);
}

json_t *pairs_json(const struct caisson_pair *v, size_t n)
{
	json_t *o = json_object();

	for (size_t i = 0; o && i < n; i++) {
		if (json_object_set_new(o, v[i].key, json_string(v[i].value)) < 0) {
			json_decref(o);
			return NULL;
		}
	}
	return o;
}

char *json_text(const json_t *o, const char *name, bool *ok)
{
	const char *text = json_string_value(json_object_get(o, name));
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		*ok = false;
	return copy;
}

int64_t json_i64(const json_t *o, const char *name, int64_t otherwise)
{
	const json_t *v = json_object_get(o, name);

	return json_is_integer(v) ? (int64_t)json_integer_value(v) : otherwise;
}

uint64_t json_u64(const json_t *o, const char *name)
{
	int64_t v = json_i64(o, name, 0);

	return v > 0 ? (uint64_t)v : 0;
}

bool json_flag(const json_t *o, const char *name)
{
	return json_is_true(json_object_get(o, name));
}

static int bad_object(struct caisson_error *e, const char *what)
{
	return error_set(e, CAISSON_ERR_PROTOCOL, "the server's answer is not a %s: is it of the same version as this client?", what);
}

/* --- sandboxes --- */

static bool decode_labels(json_t *labels, struct caisson_sandbox *s)
{
	size_t n = json_object_size(labels), i = 0;
	const char *key;
	json_t *value;

	if (n == 0)
		return true;
	s->labels = calloc(n, sizeof *s->labels);
	if (!s->labels)
		return false;
	json_object_foreach(labels, key, value) {
		const char *text = json_string_value(value);
		s->labels[i].key = strdup(key);
		s->labels[i].value = strdup(text ? text : "");
		if (!s->labels[i].key || !s->labels[i].value) {
			s->n_labels = i + 1;
			return false;
		}
		i++;
	}
	s->n_labels = n;
	return true;
}

int sandbox_decode(json_t *o, struct caisson_sandbox **ret, struct caisson_error *e)
{
	bool ok = true;

	if (!json_is_string(json_object_get(o, "id")) || !json_is_string(json_object_get(o, "state")))
		return bad_object(e, "sandbox");
	struct caisson_sandbox *s = calloc(1, sizeof *s);
	if (!s)
		return error_memory(e);
	s->id = json_text(o, "id", &ok);
	s->name = json_text(o, "name", &ok);
	s->state = json_text(o, "state", &ok);
	s->error = json_text(o, "error", &ok);
	s->image = json_text(o, "image", &ok);
	s->boundary = json_text(o, "boundary", &ok);
	s->created_at = json_text(o, "created_at", &ok);
	const json_t *r = json_object_get(o, "resources");
	s->cpus = json_number_value(json_object_get(r, "cpus"));
	s->memory_mib = json_u64(r, "memory_mib");
	s->disk_mib = json_u64(r, "disk_mib");
	s->pids = json_u64(r, "pids");
	s->json = json_dumps(o, JSON_COMPACT);
	if (!ok || !s->json || !decode_labels(json_object_get(o, "labels"), s)) {
		caisson_sandbox_free(s);
		return error_memory(e);
	}
	*ret = s;
	return 0;
}

void caisson_sandbox_free(struct caisson_sandbox *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_labels; i++) {
		free((void *)(uintptr_t)s->labels[i].key);
		free((void *)(uintptr_t)s->labels[i].value);
	}
	free(s->labels);
	free(s->id);
	free(s->name);
	free(s->state);
	free(s->error);
	free(s->image);
	free(s->boundary);
	free(s->created_at);
	free(s->json);
	free(s);
}

/* --- runs --- */

/* One stream of a result: text, or base64 when it is not UTF-8. Removed from o, so that run->json stays small. */
static int decode_stream(json_t *o, const char *name, const char *name64, uint8_t **ret, size_t *ret_len, struct caisson_error *e)
{
	const json_t *text = json_object_get(o, name), *coded = json_object_get(o, name64);
	const char *from = json_string_value(text ? text : coded);
	size_t n = json_string_length(text ? text : coded);
	uint8_t *to = malloc(n + 1);

	if (!to)
		return error_memory(e);
	if (from && json_is_string(text)) {
		memcpy(to, from, n);
	} else if (from) {
		ssize_t got = base64_decode((struct str){ from, n }, to);
		if (got < 0) {
			free(to);
			return error_set(e, CAISSON_ERR_PROTOCOL, "%s of the server is not base64", name64);
		}
		n = (size_t)got;
	}
	to[n] = 0;
	*ret = to;
	*ret_len = n;
	json_object_del(o, name);
	json_object_del(o, name64);
	return 0;
}

int run_decode(json_t *o, struct caisson_run **ret, struct caisson_error *e)
{
	bool ok = true;

	if (!json_is_string(json_object_get(o, "id")) || !json_is_string(json_object_get(o, "state")))
		return bad_object(e, "run");
	struct caisson_run *r = calloc(1, sizeof *r);
	if (!r)
		return error_memory(e);
	if (decode_stream(o, "stdout", "stdout_base64", &r->out, &r->out_len, e) < 0 ||
	    decode_stream(o, "stderr", "stderr_base64", &r->err, &r->err_len, e) < 0) {
		caisson_run_free(r);
		return -1;
	}
	r->id = json_text(o, "id", &ok);
	r->state = json_text(o, "state", &ok);
	r->message = json_text(o, "message", &ok);
	r->ended = r->state && (streq(r->state, "exited") || streq(r->state, "failed") || streq(r->state, "lost"));
	r->exit_code = (int)json_i64(o, "exit_code", -1);
	r->signal = (int)json_i64(o, "signal", 0);
	r->timed_out = json_flag(o, "timed_out");
	r->canceled = json_flag(o, "canceled");
	r->oom = json_flag(o, "oom");
	r->truncated = json_flag(o, "truncated");
	r->duration_ms = json_u64(o, "duration_ms");
	r->out_bytes = json_u64(o, "stdout_bytes");
	r->err_bytes = json_u64(o, "stderr_bytes");
	r->json = json_dumps(o, JSON_COMPACT);
	if (!ok || !r->json) {
		caisson_run_free(r);
		return error_memory(e);
	}
	*ret = r;
	return 0;
}

void caisson_run_free(struct caisson_run *r)
{
	if (!r)
		return;
	free(r->id);
	free(r->state);
	free(r->message);
	free(r->out);
	free(r->err);
	free(r->json);
	free(r);
}

/* --- files --- */

/* A name: from name_base64 when it is not UTF-8. One that holds a NUL is cut there, which no file's can. */
static char *file_text(const json_t *o, const char *name, const char *name64, bool *ok)
{
	const json_t *coded = json_object_get(o, name64);

	if (!json_is_string(coded))
		return json_text(o, name, ok);
	size_t n = json_string_length(coded);
	char *to = malloc(n + 1);
	if (!to) {
		*ok = false;
		return NULL;
	}
	ssize_t got = base64_decode((struct str){ json_string_value(coded), n }, to);
	to[got > 0 ? got : 0] = '\0';
	return to;
}

static uint32_t octal_mode(const json_t *o)
{
	const char *text = json_string_value(o);
	uint32_t mode = 0;

	for (; text && *text >= '0' && *text <= '7'; text++)
		mode = mode << 3 | (uint32_t)(*text - '0');
	return mode & 07777;
}

int file_decode(json_t *o, struct caisson_file **ret, struct caisson_error *e)
{
	bool ok = true;

	if (!json_is_string(json_object_get(o, "type")))
		return bad_object(e, "file");
	struct caisson_file *f = calloc(1, sizeof *f);
	if (!f)
		return error_memory(e);
	f->path = file_text(o, "path", "path_base64", &ok);
	f->name = file_text(o, "name", "name_base64", &ok);
	f->type = json_text(o, "type", &ok);
	f->owner = json_text(o, "owner", &ok);
	f->group = json_text(o, "group", &ok);
	f->target = file_text(o, "target", "target_base64", &ok);
	f->is_dir = json_flag(o, "is_dir");
	f->size = json_u64(o, "size");
	f->uid = (uint32_t)json_u64(o, "uid");
	f->gid = (uint32_t)json_u64(o, "gid");
	f->mtime_ms = json_i64(o, "mtime_ms", 0);
	f->mode = octal_mode(json_object_get(o, "mode"));
	f->json = json_dumps(o, JSON_COMPACT);
	if (!ok || !f->json || !f->name || !f->path) {
		bool malformed = ok && f->json;
		caisson_file_free(f);
		return malformed ? bad_object(e, "file") : error_memory(e);
	}
	*ret = f;
	return 0;
}

void caisson_file_free(struct caisson_file *f)
{
	if (!f)
		return;
	free(f->path);
	free(f->name);
	free(f->type);
	free(f->owner);
	free(f->group);
	free(f->target);
	free(f->json);
	free(f);
}

void caisson_file_list_free(struct caisson_file_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		caisson_file_free(l->items[i]);
	free(l->items);
	free(l);
}
