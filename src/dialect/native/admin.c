/* Images, keys, and what the server says about itself. */
#include "dialect/native/native_int.h"
#include "wire/urlencode.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/* --- images --- */

static void add_image(void *ctx, const struct image_view *v)
{
	encode_image(ctx, NULL, v);
}

void native_image_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	auto_items struct items l;
	items_begin(&l);
	if (api_image_list(n->api, req_caller(r), add_image, &l.j, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	answer_items(n, r, 200, &l);
}

/* The reference in the path (the rest of it: references have slashes), as a create would take it. Heap, or NULL and e. */
static char *image_ref(const struct request *r, struct err *e)
{
	struct str raw = str_of(req_path_arg(r, "image"));
	auto_free char *ref = xmalloc(raw.n + 1);
	if (url_decode(raw, URL_PERCENT, ref) < 0) {
		err_set(e, ERR_INVALID, EINVAL, "the image reference in the path holds a broken escape");
		return NULL;
	}
	struct sandbox_spec s = { .image = ref };
	return spec_validate(&s, e) < 0 ? NULL : take_ptr(&ref);
}

void native_image_get(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct image_view v;
	struct err e;
	auto_free char *ref = image_ref(r, &e);
	if (!ref || api_image_get(n->api, req_caller(r), ref, &v, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	struct jout j = { .b = &b };
	encode_image(&j, NULL, &v);
	answer_json(n, r, 200, &b);
}

void native_image_delete(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	auto_free char *ref = image_ref(r, &e);
	if (!ref || api_image_remove(n->api, req_caller(r), ref, &e) < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
}

/* --- pools --- */

static void add_pool(void *ctx, const struct pool_view *v)
{
	struct jout *j = ctx;

	jout_object(j, NULL);
	jout_z(j, "image_digest", v->image_digest);
	jout_z(j, "boundary", v->boundary);
	encode_resources(j, "resources", v->resources);
	jout_bool(j, "sudo", v->sudo);
	jout_bool(j, "ephemeral", v->ephemeral);
	jout_z(j, "user", v->user);
	jout_z(j, "workdir", v->workdir);
	jout_bool(j, "network", v->network);
	jout_z(j, "error", v->error);
	jout_u64(j, "size", v->size);
	jout_u64(j, "standing", v->standing);
	jout_u64(j, "ready", v->ready);
	jout_end_object(j);
}

static void answer_pools(struct native *n, struct request *r)
{
	struct err e;
	auto_items struct items l;
	items_begin(&l);
	if (api_pool_list(n->api, req_caller(r), add_pool, &l.j, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	answer_items(n, r, 200, &l);
}

void native_pool_list(struct request *r, void *dialect)
{
	answer_pools(dialect, r);
}

void native_pool_set(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct sandbox_spec spec;
	size_t size;
	struct err e;
	int rc = native_pool_decode(n, r, &spec, &size, &e);
	if (rc >= 0)
		rc = api_pool_set(n->api, req_caller(r), &spec, size, &e);
	spec_done(&spec);
	if (rc < 0)
		answer_err(n, r, &e);
	else
		answer_pools(n, r);
}

/* --- keys --- */

struct key_body {
	char *name, *tenant;
	bool operator_;
};

static const struct field key_fields[] = {
	{ .name = "name", .kind = FIELD_STRING, .offset = offsetof(struct key_body, name), .required = true },
	{ .name = "tenant", .kind = FIELD_STRING, .offset = offsetof(struct key_body, tenant) },
	{ .name = "operator", .kind = FIELD_BOOL, .offset = offsetof(struct key_body, operator_) },
	{ 0 },
};

static int key_body_check(const struct key_body *k, struct err *e)
{
	struct { const char *field, *value; size_t max; } texts[] = { { "name", k->name, 64 }, { "tenant", k->tenant, sizeof ((struct caller *)0)->tenant - 1 } };
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		const char *v = texts[i].value;
		if (!v)
			continue;
		bool ok = *v && strlen(v) <= texts[i].max;
		for (const char *p = v; *p; p++)
			ok = ok && (unsigned char)*p >= 0x20 && *p != 0x7f;
		if (!ok)
			return err_set(e, ERR_INVALID, EINVAL, "field \"%s\" must have 1 to %zu bytes without control characters", texts[i].field, texts[i].max);
	}
	return 0;
}

void native_key_create(struct request *r, void *dialect)
{
	struct native *n = dialect;
	const struct caller *c = req_caller(r);
	struct key_body k = { 0 };
	struct err e;
	char key[48], id[40];
	int rc = decode_body(req_body(r), key_fields, &k, &e);
	if (rc >= 0)
		rc = key_body_check(&k, &e);
	if (rc >= 0)
		rc = api_key_create(n->api, c, k.name, k.tenant, k.operator_, key, id, &e);
	if (rc < 0) {
		answer_err(n, r, &e);
	} else {
		auto_buf struct buf b;
		buf_init(&b, 4096);
		struct jout j = { .b = &b };
		jout_object(&j, NULL);
		jout_z(&j, "id", id);
		jout_z(&j, "key", key);
		jout_z(&j, "name", k.name);
		jout_z(&j, "tenant", k.tenant ? k.tenant : c->tenant);
		jout_bool(&j, "operator", k.operator_);
		jout_end_object(&j);
		answer_json(n, r, 201, &b);
	}
	free(k.name);
	free(k.tenant);
}

static void add_key(void *ctx, const struct key_view *v)
{
	encode_key(ctx, NULL, v);
}

void native_key_list(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	auto_items struct items l;
	items_begin(&l);
	if (api_key_list(n->api, req_caller(r), add_key, &l.j, &e) < 0) {
		answer_err(n, r, &e);
		return;
	}
	answer_items(n, r, 200, &l);
}

void native_key_revoke(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct err e;
	if (api_key_revoke(n->api, req_caller(r), req_path_arg(r, "key"), &e) < 0)
		answer_err(n, r, &e);
	else
		answer_empty(n, r, 204);
}

/* --- server --- */

static void encode_capabilities(struct jout *j, unsigned caps)
{
	static const struct { const char *name; unsigned bit; } names[] = {
		{ "pause", BOUNDARY_CAN_PAUSE },
		{ "suspend", BOUNDARY_CAN_SUSPEND },
		{ "resize", BOUNDARY_CAN_RESIZE },
		{ "volumes", BOUNDARY_CAN_VOLUMES },
		{ "snapshot_disk", BOUNDARY_CAN_SNAPSHOT_DISK },
		{ "snapshot_memory", BOUNDARY_CAN_SNAPSHOT_MEMORY },
		{ "strong", BOUNDARY_STRONG },
	};
	jout_object(j, "capabilities");
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		jout_bool(j, names[i].name, caps & names[i].bit);
	jout_end_object(j);
}

void native_server_info_get(struct request *r, void *dialect)
{
	struct native *n = dialect;
	struct server_info info = { 0 };
	struct err e;
	if (api_info(n->api, req_caller(r), &info) < 0) {
		err_set(&e, ERR_INTERNAL, EIO, "the server cannot say what it is");
		answer_err(n, r, &e);
		return;
	}
	auto_buf struct buf b;
	buf_init(&b, 1 << 20);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	jout_z(&j, "version", info.version);
	jout_z(&j, "api", "v1");
	jout_z(&j, "default_boundary", info.default_boundary);
	jout_array(&j, "boundaries");
	for (const char *const *name = info.boundaries; name && *name; name++)
		jout_z(&j, NULL, *name);
	jout_end_array(&j);
	encode_capabilities(&j, info.caps);
	jout_z(&j, "accelerator", info.accelerator);
	jout_z(&j, "accelerator_reason", info.accelerator_reason);
	jout_u64(&j, "sandboxes", info.sandboxes);
	jout_u64(&j, "running", info.running);
	encode_resources(&j, "defaults", info.defaults ? info.defaults : &(struct resources){ 0 });
	jout_end_object(&j);
	answer_json(n, r, 200, &b);
}

void native_server_health(struct request *r, void *dialect)
{
	auto_buf struct buf b;
	buf_init(&b, 64);
	buf_addz(&b, "{\"status\":\"ok\"}");
	answer_json(dialect, r, 200, &b);
}

/* Resident memory of this process in bytes; 0 when /proc does not say. */
static uint64_t resident_bytes(void)
{
	unsigned long long pages = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	if (!f)
		return 0;
	if (fscanf(f, "%llu %llu", &pages, &resident) != 2)
		resident = 0;
	(void)fclose(f);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void metric(struct buf *b, const char *name, const char *type, const char *help, uint64_t value)
{
	buf_addf(b, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type, name, value);
}

void native_server_metrics(struct request *r, void *dialect)
{
	struct native *n = dialect;
	const struct caller *c = req_caller(r);
	struct server_info info = { 0 };
	struct err e;
	if (c->key_id[0] && !c->operator_ && !req_is_loopback(r)) {
		err_set(&e, ERR_DENIED, EPERM, "metrics cover every tenant: from another machine an operator's key is needed");
		answer_err(n, r, &e);
		return;
	}
	(void)api_info(n->api, NULL, &info);
	auto_buf struct buf b;
	buf_init(&b, 64 << 10);
	buf_addf(&b, "# HELP caisson_build_info Version of the server.\n# TYPE caisson_build_info gauge\ncaisson_build_info{version=\"%s\"} 1\n",
	         info.version ? info.version : "");
	metric(&b, "caisson_sandboxes", "gauge", "Sandboxes that exist.", info.sandboxes);
	metric(&b, "caisson_sandboxes_running", "gauge", "Sandboxes that are running.", info.running);
	metric(&b, "process_resident_memory_bytes", "gauge", "Resident memory of the daemon.", resident_bytes());
	metric(&b, "process_start_time_seconds", "gauge", "Start of the daemon, unix time.", n->started_ms / 1000);
	buf_addz(&b, "# HELP caisson_native_answers_total Answers of the native API by class of status.\n# TYPE caisson_native_answers_total counter\n");
	for (unsigned i = 1; i < ARRAY_LEN(n->answers); i++)
		buf_addf(&b, "caisson_native_answers_total{class=\"%uxx\"} %" PRIu64 "\n", i, n->answers[i]);
	n->answers[2]++;
	req_reply(r, 200, NULL, 0, "text/plain; version=0.0.4; charset=utf-8", buf_str(&b));
}
