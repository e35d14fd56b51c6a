#include "client/client.h"

#include <math.h>
#include <stdio.h>

/* Adds a member when there is something to say. False: out of memory, or text that is not UTF-8. */
static bool put_text(json_t *o, const char *name, const char *value)
{
	return !value || json_object_set_new(o, name, json_string(value)) == 0;
}

static bool put_number(json_t *o, const char *name, uint64_t value)
{
	return value == 0 || json_object_set_new(o, name, json_integer((json_int_t)MIN(value, (uint64_t)INT64_MAX))) == 0;
}

static bool put_pairs(json_t *o, const char *name, const struct caisson_pair *v, size_t n)
{
	return n == 0 || json_object_set_new(o, name, pairs_json(v, n)) == 0;
}

static bool put_texts(json_t *o, const char *name, const char *const *v)
{
	json_t *list = v ? json_array() : NULL;

	for (size_t i = 0; v && v[i]; i++)
		if (json_array_append_new(list, json_string(v[i])) < 0) {
			json_decref(list);
			return false;
		}
	return !v || json_object_set_new(o, name, list) == 0;
}

static bool put_publish(json_t *o, const struct caisson_publication *v, size_t n)
{
	json_t *list = n ? json_array() : NULL;

	for (size_t i = 0; i < n; i++) {
		json_t *one = json_object();
		bool ok = put_text(one, "address", v[i].address) && put_number(one, "host_port", v[i].host_port) && put_number(one, "port", v[i].port);
		if (json_array_append_new(list, one) < 0 || !ok) {
			json_decref(list);
			return false;
		}
	}
	return n == 0 || json_object_set_new(o, "publish", list) == 0;
}

static json_t *create_body(const struct caisson_create_options *o)
{
	auto_json json_t *body = json_object(), *resources = json_object(), *network = json_object(), *lifetime = json_object(),
			 *secrets = json_object();
	bool ok = body && resources && network && lifetime && secrets;

	ok = ok && put_text(body, "name", o->name) && put_text(body, "image", o->image) && put_text(body, "boundary", o->boundary) &&
	     put_text(body, "from_snapshot", o->from_snapshot);
	ok = ok && put_text(body, "user", o->user) && put_text(body, "workdir", o->workdir) && put_text(body, "hostname", o->hostname);
	ok = ok && put_text(body, "idempotency_key", o->idempotency_key);
	ok = ok && put_pairs(body, "env", o->env, o->n_env) && put_pairs(body, "labels", o->labels, o->n_labels);
	ok = ok && (o->cpus == 0 || json_object_set_new(resources, "cpus", json_real(o->cpus)) == 0);
	ok = ok && put_number(resources, "memory_mib", o->memory_mib) && put_number(resources, "disk_mib", o->disk_mib) &&
	     put_number(resources, "pids", o->pids);
	ok = ok && put_text(network, "mode", o->network ? o->network : o->network_allow ? "allow" : NULL);
	ok = ok && put_texts(network, "allow", o->network_allow) && put_texts(network, "deny", o->network_deny);
	ok = ok && put_texts(body, "permissions", o->permissions) && put_publish(body, o->publish, o->n_publish);
	ok = ok && put_pairs(secrets, "env", o->secret_env, o->n_secret_env) && put_pairs(secrets, "files", o->secret_files, o->n_secret_files);
	ok = ok && (json_object_size(secrets) == 0 || json_object_set(body, "secrets", secrets) == 0);
	ok = ok && put_number(lifetime, "idle_s", o->idle_s) && put_number(lifetime, "max_s", o->max_s);
	ok = ok && (!o->no_sudo || json_object_set_new(body, "sudo", json_false()) == 0);
	ok = ok && (!o->ephemeral || json_object_set_new(body, "ephemeral", json_true()) == 0);
	ok = ok && (json_object_size(resources) == 0 || json_object_set(body, "resources", resources) == 0);
	ok = ok && (json_object_size(network) == 0 || json_object_set(body, "network", network) == 0);
	ok = ok && (json_object_size(lifetime) == 0 || json_object_set(body, "lifetime", lifetime) == 0);
	return ok ? take_ptr(&body) : NULL;
}

static int one_sandbox(struct caisson *c, const char *method, const char *path, json_t *take_body, struct caisson_sandbox **ret,
                       struct caisson_error *e)
{
	auto_json json_t *o = NULL;

	if (json_exchange(c, method, path, take_body, &o, e) < 0)
		return -1;
	return ret ? sandbox_decode(o, ret, e) : 0;
}

int caisson_create(struct caisson *c, const struct caisson_create_options *o, struct caisson_sandbox **ret, struct caisson_error *e)
{
	static const struct caisson_create_options none;

	if (o && !isfinite(o->cpus))
		return error_set(e, CAISSON_ERR_INVALID, "cpus is not a number");
	json_t *body = create_body(o ? o : &none);
	if (!body)
		return error_set(e, CAISSON_ERR_INVALID, "a text in the request is not UTF-8 (or memory is gone)");
	return one_sandbox(c, "POST", "/v1/sandboxes", body, ret, e);
}

int caisson_get(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e)
{
	auto_free char *path = sandbox_path(sandbox, "");

	return one_sandbox(c, "GET", path, NULL, ret, e);
}

int caisson_stop(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e)
{
	auto_free char *path = sandbox_path(sandbox, "/stop");

	return one_sandbox(c, "POST", path, NULL, ret, e);
}

int caisson_start(struct caisson *c, const char *sandbox, struct caisson_sandbox **ret, struct caisson_error *e)
{
	auto_free char *path = sandbox_path(sandbox, "/start");

	return one_sandbox(c, "POST", path, NULL, ret, e);
}

int caisson_delete(struct caisson *c, const char *sandbox, struct caisson_error *e)
{
	auto_free char *path = sandbox_path(sandbox, "");

	return json_exchange(c, "DELETE", path, NULL, NULL, e);
}

static int decode_list(json_t *o, struct caisson_sandbox_list **ret, struct caisson_error *e)
{
	json_t *items = json_object_get(o, "items");
	bool ok = true;

	if (!json_is_array(items))
		return error_set(e, CAISSON_ERR_PROTOCOL, "the server's answer is not a list of sandboxes");
	struct caisson_sandbox_list *l = calloc(1, sizeof *l);
	if (!l)
		return error_memory(e);
	l->items = calloc(json_array_size(items) + 1, sizeof(struct caisson_sandbox *));
	l->next = json_text(o, "next", &ok);
	if (!l->items || !ok) {
		caisson_sandbox_list_free(l);
		return error_memory(e);
	}
	for (size_t i = 0; i < json_array_size(items); i++) {
		if (sandbox_decode(json_array_get(items, i), &l->items[i], e) < 0) {
			caisson_sandbox_list_free(l);
			return -1;
		}
		l->n = i + 1;
	}
	*ret = l;
	return 0;
}

int caisson_list(struct caisson *c, const struct caisson_pair *labels, size_t n_labels, const char *cursor, size_t limit,
                 struct caisson_sandbox_list **ret, struct caisson_error *e)
{
	auto_bytes struct bytes path = { .max = 1 << 20 };
	auto_json json_t *o = NULL;
	char number[48];

	snprintf(number, sizeof number, "/v1/sandboxes?limit=%zu", limit ? limit : 100);
	bytes_addz(&path, number);
	for (size_t i = 0; i < n_labels; i++) {
		bytes_addz(&path, "&label=");
		bytes_escape(&path, labels[i].key);
		bytes_addz(&path, "%3A");
		bytes_escape(&path, labels[i].value);
	}
	if (cursor) {
		bytes_addz(&path, "&cursor=");
		bytes_escape(&path, cursor);
	}
	if (path.failed)
		return path.over ? error_set(e, CAISSON_ERR_TOO_LARGE, "too many labels to ask for") : error_memory(e);
	if (json_exchange(c, "GET", path.p, NULL, &o, e) < 0)
		return -1;
	return decode_list(o, ret, e);
}

void caisson_sandbox_list_free(struct caisson_sandbox_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; l->items && i < l->n; i++)
		caisson_sandbox_free(l->items[i]);
	free(l->items);
	free(l->next);
	free(l);
}
