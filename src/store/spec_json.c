/* A sandbox's specification as one JSON text. Members that are absent keep the value of spec_init, so an older row reads
 * well, and members we do not know are ignored, so a newer one does too. */
#include "store/store_int.h"

#include <errno.h>
#include <jansson.h>

static void set_text(json_t *o, const char *key, const char *value, bool *ok)
{
	if (value && json_object_set_new(o, key, json_string(value)) < 0)
		*ok = false;
}

static void set_number(json_t *o, const char *key, uint64_t value, bool *ok)
{
	if (json_object_set_new(o, key, json_integer((json_int_t)value)) < 0)
		*ok = false;
}

/* An array of [key, value]: the order is kept, and it is ours to say what a repeated key means. */
static void set_pairs(json_t *o, const char *key, const struct pairs *p, bool *ok)
{
	if (p->n == 0)
		return;
	json_t *list = json_array();
	for (size_t i = 0; i < p->n; i++) {
		json_t *one = json_array();
		if (json_array_append_new(one, json_string(p->v[i].key)) < 0 || json_array_append_new(one, json_string(p->v[i].value)) < 0 ||
		    json_array_append(list, one) < 0)
			*ok = false;
		json_decref(one);
	}
	if (json_object_set_new(o, key, list) < 0)
		*ok = false;
}

static void set_list(json_t *o, const char *key, char *const *v, bool *ok)
{
	if (!v || !v[0])
		return;
	json_t *list = json_array();
	for (; *v; v++)
		if (json_array_append_new(list, json_string(*v)) < 0)
			*ok = false;
	if (json_object_set_new(o, key, list) < 0)
		*ok = false;
}

static void set_volumes(json_t *o, const struct volume_mounts *m, bool *ok)
{
	if (m->n == 0)
		return;
	json_t *list = json_array();
	for (size_t i = 0; i < m->n; i++) {
		json_t *one = json_object();
		set_text(one, "volume", m->v[i].volume, ok);
		set_text(one, "path", m->v[i].path, ok);
		set_text(one, "subpath", m->v[i].subpath, ok);
		if (json_object_set_new(one, "read_only", json_boolean(m->v[i].read_only)) < 0 || json_array_append_new(list, one) < 0)
			*ok = false;
	}
	if (json_object_set_new(o, "volumes", list) < 0)
		*ok = false;
}

static void set_publish(json_t *o, const struct publications *p, bool *ok)
{
	if (p->n == 0)
		return;
	json_t *list = json_array();
	for (size_t i = 0; i < p->n; i++) {
		json_t *one = json_object();
		set_text(one, "address", p->v[i].address, ok);
		set_number(one, "host_port", p->v[i].host_port, ok);
		set_number(one, "port", p->v[i].port, ok);
		if (json_array_append_new(list, one) < 0)
			*ok = false;
	}
	if (json_object_set_new(o, "publish", list) < 0)
		*ok = false;
}

char *spec_to_json(const struct sandbox_spec *spec)
{
	bool ok = true;
	json_t *o = json_object();
	set_text(o, "name", spec->name, &ok);
	set_text(o, "image", spec->image, &ok);
	set_text(o, "boundary", spec->boundary, &ok);
	set_text(o, "from_snapshot", spec->from_snapshot, &ok);
	if (json_object_set_new(o, "cpus", json_real(spec->resources.cpus)) < 0)
		ok = false; /* not a finite number */
	set_number(o, "memory_mib", spec->resources.memory_mib, &ok);
	set_number(o, "disk_mib", spec->resources.disk_mib, &ok);
	set_number(o, "pids", spec->resources.pids, &ok);
	set_pairs(o, "env", &spec->env, &ok);
	set_pairs(o, "labels", &spec->labels, &ok);
	set_text(o, "user", spec->user, &ok);
	set_text(o, "workdir", spec->workdir, &ok);
	set_text(o, "hostname", spec->hostname, &ok);
	set_text(o, "network", network_mode_name(spec->network), &ok);
	set_list(o, "network_allow", spec->network_allow, &ok);
	set_list(o, "network_deny", spec->network_deny, &ok);
	set_number(o, "network_bytes_per_second", spec->network_limits.bytes_per_second, &ok);
	set_number(o, "network_bytes", spec->network_limits.bytes, &ok);
	set_number(o, "network_connections", spec->network_limits.connections, &ok);
	set_number(o, "network_connections_per_second", spec->network_limits.connections_per_second, &ok);
	set_list(o, "permissions", spec->permissions, &ok);
	set_list(o, "host_answers", spec->host_answers, &ok);
	set_volumes(o, &spec->volumes, &ok);
	set_publish(o, &spec->publish, &ok);
	set_pairs(o, "secret_env", &spec->secret_env, &ok);
	set_pairs(o, "secret_files", &spec->secret_files, &ok);
	set_number(o, "idle_s", spec->lifetime.idle_s, &ok);
	set_number(o, "max_s", spec->lifetime.max_s, &ok);
	set_number(o, "delete_after_s", (uint64_t)spec->lifetime.delete_after_s, &ok);
	if (json_object_set_new(o, "ephemeral", json_boolean(spec->ephemeral)) < 0 || json_object_set_new(o, "sudo", json_boolean(spec_sudo(spec))) < 0)
		ok = false;
	set_text(o, "extra", spec->extra, &ok);
	char *text = ok ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

static void get_member(const json_t *o, const char *key, char **value)
{
	const json_t *v = json_object_get(o, key);
	if (!v)
		return;
	free(*value);
	*value = xstrdup(json_string_value(v));
}

static void get_number(const json_t *o, const char *key, uint64_t *value)
{
	const json_t *v = json_object_get(o, key);
	if (json_is_integer(v))
		*value = (uint64_t)json_integer_value(v);
}

static void get_pairs(const json_t *o, const char *key, struct pairs *p)
{
	size_t i;
	json_t *one;
	json_array_foreach(json_object_get(o, key), i, one)
	{
		const char *k = json_string_value(json_array_get(one, 0)), *v = json_string_value(json_array_get(one, 1));
		if (k && v)
			pairs_add(p, k, v);
	}
}

static char **get_list(const json_t *o, const char *key)
{
	const json_t *list = json_object_get(o, key);
	size_t n = json_array_size(list);
	char **v = n ? xcalloc(n + 1, sizeof *v) : NULL;

	/* A text that is none stays in its place as one that no reader takes for a rule: a denial must not get lost. */
	for (size_t i = 0; i < n; i++) {
		const char *text = json_string_value(json_array_get(list, i));
		v[i] = xstrdup(text ? text : "");
	}
	return v;
}

static void get_volumes(const json_t *o, struct volume_mounts *m)
{
	size_t i;
	json_t *one;
	json_array_foreach(json_object_get(o, "volumes"), i, one)
	{
		struct volume_mount *v = volume_mounts_add(m);
		get_member(one, "volume", &v->volume);
		get_member(one, "path", &v->path);
		get_member(one, "subpath", &v->subpath);
		v->read_only = json_is_true(json_object_get(one, "read_only"));
	}
}

static void get_publish(const json_t *o, struct publications *p)
{
	size_t i;
	json_t *one;
	json_array_foreach(json_object_get(o, "publish"), i, one)
	{
		uint64_t host_port = 0, port = 0;
		get_number(one, "host_port", &host_port);
		get_number(one, "port", &port);
		if (host_port == 0 || host_port > UINT16_MAX || port == 0 || port > UINT16_MAX)
			continue;
		struct publication *to = publications_add(p);
		get_member(one, "address", &to->address);
		to->host_port = (uint16_t)host_port;
		to->port = (uint16_t)port;
	}
}

int spec_from_json(const char *json, struct sandbox_spec *ret)
{
	json_t *o = json_loads(json ? json : "", JSON_REJECT_DUPLICATES, NULL);
	const char *network = json_string_value(json_object_get(o, "network"));
	enum network_mode mode = NETWORK_NONE;
	/* An unknown mode is refused, not read as something weaker or stronger than what was asked for. */
	if (!json_is_object(o) || (network && network_mode_parse(str_of(network), &mode) < 0)) {
		json_decref(o);
		return -EINVAL;
	}
	spec_init(ret);
	ret->network = mode;
	ret->network_allow = get_list(o, "network_allow");
	ret->network_deny = get_list(o, "network_deny");
	get_number(o, "network_bytes_per_second", &ret->network_limits.bytes_per_second);
	get_number(o, "network_bytes", &ret->network_limits.bytes);
	get_number(o, "network_connections", &ret->network_limits.connections);
	get_number(o, "network_connections_per_second", &ret->network_limits.connections_per_second);
	ret->permissions = get_list(o, "permissions");
	ret->host_answers = get_list(o, "host_answers");
	get_member(o, "name", &ret->name);
	get_member(o, "image", &ret->image);
	get_member(o, "boundary", &ret->boundary);
	get_member(o, "from_snapshot", &ret->from_snapshot);
	ret->resources.cpus = json_number_value(json_object_get(o, "cpus"));
	get_number(o, "memory_mib", &ret->resources.memory_mib);
	get_number(o, "disk_mib", &ret->resources.disk_mib);
	get_number(o, "pids", &ret->resources.pids);
	get_pairs(o, "env", &ret->env);
	get_pairs(o, "labels", &ret->labels);
	get_pairs(o, "secret_env", &ret->secret_env);
	get_pairs(o, "secret_files", &ret->secret_files);
	get_member(o, "user", &ret->user);
	get_member(o, "workdir", &ret->workdir);
	get_member(o, "hostname", &ret->hostname);
	get_volumes(o, &ret->volumes);
	get_publish(o, &ret->publish);
	get_number(o, "idle_s", &ret->lifetime.idle_s);
	get_number(o, "max_s", &ret->lifetime.max_s);
	const json_t *delete_after = json_object_get(o, "delete_after_s");
	if (json_is_integer(delete_after))
		ret->lifetime.delete_after_s = json_integer_value(delete_after);
	ret->ephemeral = json_is_true(json_object_get(o, "ephemeral"));
	ret->sudo = json_is_false(json_object_get(o, "sudo")) ? WANT_NO : WANT_YES;
	get_member(o, "extra", &ret->extra);
	json_decref(o);
	return 0;
}
