/* What is listed: sandboxes by cursor and by page, the server's own settings. */
#include "dialect/daytona/internal.h"

#include <errno.h>
#include <stdio.h>

/* --- the list's filters --- */

/* Filters that core does not know are applied to each page; a page may then hold fewer than asked for, which the cursor
 * protocol allows. Nothing that was asked is ignored: somebody may delete what a list returns. */
struct filter {
	struct daytona *d;
	struct sandbox_query q;
	char *base;
	json_t *items;
	bool full;         /* whole sandboxes, not list items */
	bool impossible;   /* only states we never have */
	bool any_state;
	int is_public, is_recoverable; /* -1 not asked */
	double min_cpu, max_cpu, min_memory, max_memory, min_disk, max_disk;
	const char *created_after, *created_before, *active_after, *active_before, *destroy_after, *destroy_before;
	json_t *snapshots, *regions; /* arrays of names, NULL = any */
	const char *sort;
	int64_t page;
	struct err e;
	int rc;
};

static bool in_array(const json_t *array, const char *text)
{
	for (size_t i = 0; i < json_array_size(array); i++)
		if (streq(json_string_value(json_array_get(array, i)), text))
			return true;
	return false;
}

static bool within(const json_t *number, double min, double max)
{
	double v = json_number_value(number);
	return v >= min && v <= max;
}

/* ISO 8601 in UTC with the same number of digits compares as text. */
static bool between(const json_t *time, const char *after, const char *before)
{
	const char *t = json_string_value(time);
	if (!after && !before)
		return true;
	return t && (!after || strncmp(t, after, 19) >= 0) && (!before || strncmp(t, before, 19) <= 0);
}

static void add_item(void *ctx, const struct sandbox_view *v)
{
	struct filter *f = ctx;
	json_t *o = sandbox_json(f->d, f->base, v, !f->full);
	bool keep = (f->is_public < 0 || json_is_true(json_object_get(o, "public")) == f->is_public) && f->is_recoverable <= 0 &&
	            within(json_object_get(o, "cpu"), f->min_cpu, f->max_cpu) && within(json_object_get(o, "memory"), f->min_memory, f->max_memory) &&
	            within(json_object_get(o, "disk"), f->min_disk, f->max_disk) &&
	            between(json_object_get(o, "createdAt"), f->created_after, f->created_before) &&
	            between(json_object_get(o, "lastActivityAt"), f->active_after, f->active_before) &&
	            between(json_object_get(o, "autoDestroyAt"), f->destroy_after, f->destroy_before) &&
	            (!f->snapshots || in_array(f->snapshots, json_string_value(json_object_get(o, "snapshot")))) &&
	            (!f->regions || in_array(f->regions, json_string_value(json_object_get(o, "target"))));
	if (keep)
		json_array_append_new(f->items, o);
	else
		json_decref(o);
}

static int add_state(struct filter *f, const char *word)
{
	static const char *const never[] = { "restoring", "build_failed", "pending_build", "building_snapshot", "unknown", "pulling_snapshot", "archived",
		                             "archiving", "resizing", "snapshotting", "forking", "pausing", "resuming" };
	f->any_state = true;
	for (int s = 0; s < SANDBOX_STATE_COUNT; s++)
		if (streq(sandbox_state_word((enum sandbox_state)s), word)) {
			f->q.states |= 1U << s;
			return 0;
		}
	for (size_t i = 0; i < ARRAY_LEN(never); i++)
		if (streq(never[i], word))
			return 0;
	return err_set(&f->e, ERR_INVALID, EINVAL, "states: %.64s is not a state", word);
}

static int add_labels(struct filter *f, const char *text)
{
	json_error_t why;
	json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &why);
	json_t *wrap = json_object();
	put(wrap, "labels", o);
	int rc = json_is_object(o) ? want_pairs(wrap, "labels", &f->q.labels, &f->e) :
	                             err_set(&f->e, ERR_INVALID, EINVAL, "labels must be a JSON object of strings");
	json_decref(wrap);
	return rc;
}

static int add_time(struct filter *f, const char *name, const char *text, const char **to)
{
	int n = 0;
	if (sscanf(text, "%*4d-%*2d-%*2dT%*2d:%*2d:%*2d%n", &n) < 0 || n != 19)
		return err_set(&f->e, ERR_INVALID, EINVAL, "%s must be a time such as 2026-01-02T03:04:05.000Z", name);
	*to = text;
	return 0;
}

static int add_number(struct filter *f, const char *name, const char *text, double *to)
{
	char *end;
	errno = 0;
	double v = strtod(text, &end);
	if (end == text || *end || errno || v != v)
		return err_set(&f->e, ERR_INVALID, EINVAL, "%s must be a number", name);
	*to = v;
	return 0;
}

static int add_flag(struct filter *f, const char *name, const char *text, int *to)
{
	bool v;
	int rc = parse_bool(name, text, &v, &f->e);
	if (rc == 0)
		*to = v;
	return rc;
}

static int add_name(json_t **array, const char *text)
{
	if (!*array)
		*array = json_array();
	json_array_append_new(*array, textz_json(text));
	return 0;
}

static int one_parameter(struct filter *f, const char *name, const char *value)
{
	const struct {
		const char *name;
		double *number;
		const char **time;
	} simple[] = {
		{ "minCpu", &f->min_cpu, NULL }, { "maxCpu", &f->max_cpu, NULL },
		{ "minMemoryGiB", &f->min_memory, NULL }, { "maxMemoryGiB", &f->max_memory, NULL },
		{ "minDiskGiB", &f->min_disk, NULL }, { "maxDiskGiB", &f->max_disk, NULL },
		{ "createdAtAfter", NULL, &f->created_after }, { "createdAtBefore", NULL, &f->created_before },
		{ "lastEventAfter", NULL, &f->active_after }, { "lastEventBefore", NULL, &f->active_before },
		{ "autoDestroyAtAfter", NULL, &f->destroy_after }, { "autoDestroyAtBefore", NULL, &f->destroy_before },
	};
	int64_t n = 0;
	int rc = 0;
	if (*value == '\0')
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(simple); i++)
		if (streq(simple[i].name, name))
			return simple[i].number ? add_number(f, name, value, simple[i].number) : add_time(f, name, value, simple[i].time);
	if (streq(name, "states"))
		return add_state(f, value);
	if (streq(name, "labels"))
		return add_labels(f, value);
	if (streq(name, "snapshots"))
		return add_name(&f->snapshots, value);
	if (streq(name, "regionIds"))
		return add_name(&f->regions, value);
	if (streq(name, "isPublic"))
		return add_flag(f, name, value, &f->is_public);
	if (streq(name, "isRecoverable"))
		return add_flag(f, name, value, &f->is_recoverable);
	if (streq(name, "id"))
		f->q.id_prefix = value;
	else if (streq(name, "name"))
		f->q.name_prefix = value;
	else if (streq(name, "cursor"))
		f->q.cursor = value;
	else if (streq(name, "limit")) {
		rc = parse_int(name, value, 1, 200, &n, &f->e);
		f->q.limit = (size_t)n;
	} else if (streq(name, "page"))
		rc = parse_int(name, value, 1, 1000000000, &f->page, &f->e);
	else if (streq(name, "sort") && !streq(value, "createdAt"))
		rc = err_set(&f->e, ERR_INVALID, EINVAL, "sort: only createdAt is supported");
	else if (streq(name, "order")) {
		f->q.newest_first = streq(value, "desc");
		if (!f->q.newest_first && !streq(value, "asc"))
			rc = err_set(&f->e, ERR_INVALID, EINVAL, "order must be asc or desc");
	}
	return rc;
}

static void each_parameter(void *ctx, const char *name, const char *value)
{
	struct filter *f = ctx;
	if (f->rc >= 0)
		f->rc = one_parameter(f, name, value);
}

static void filter_init(struct filter *f, struct daytona *d, struct request *r)
{
	*f = (struct filter){ .d = d, .is_public = -1, .is_recoverable = -1, .max_cpu = 1e18, .max_memory = 1e18, .max_disk = 1e18, .page = 1 };
	f->min_cpu = f->min_memory = f->min_disk = -1;
	f->q.newest_first = true;
	f->q.limit = 100;
	f->base = base_url(d, r);
	f->items = json_array();
	req_query_each(r, each_parameter, f);
	f->impossible = f->any_state && !f->q.states;
}

static void filter_done(struct filter *f)
{
	free(f->base);
	pairs_done(&f->q.labels);
	json_decref(f->items);
	json_decref(f->snapshots);
	json_decref(f->regions);
}

static void handle_list(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct filter f;
	filter_init(&f, d, r);
	char *next = NULL;
	if (f.rc >= 0 && !f.impossible)
		f.rc = api_sandbox_list(d->api, caller_of(r), &f.q, add_item, &f, &next, NULL, &f.e);
	if (f.rc < 0)
		fail(r, &f.e);
	else {
		json_t *o = json_object();
		put(o, "items", json_incref(f.items));
		put(o, "nextCursor", textz_json(next));
		req_reply_json(r, 200, o);
	}
	free(next);
	filter_done(&f);
}

json_t *page_json(json_t *items, uint64_t total, int64_t page, size_t limit)
{
	json_t *o = json_object();
	put(o, "items", items);
	put(o, "total", json_integer((json_int_t)total));
	put(o, "page", json_integer((json_int_t)page));
	put(o, "totalPages", json_integer((json_int_t)((total + limit - 1) / MAX(limit, 1))));
	return o;
}

/* SDKs before 0.180. */
static void handle_paginated(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct filter f;
	filter_init(&f, d, r);
	f.full = true;
	f.q.skip = (uint64_t)(f.page - 1) * f.q.limit;
	char *next = NULL;
	uint64_t total = 0;
	if (f.rc >= 0 && !f.impossible)
		f.rc = api_sandbox_list(d->api, caller_of(r), &f.q, add_item, &f, &next, &total, &f.e);
	if (f.rc < 0)
		fail(r, &f.e);
	else
		req_reply_json(r, 200, page_json(json_incref(f.items), total, f.page, f.q.limit));
	free(next);
	filter_done(&f);
}

/* --- settings --- */

static void handle_config(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct server_info info = { 0 };
	api_info(d->api, NULL, &info);
	auto_free char *base = base_url(d, r);
	json_t *o = json_object();
	put(o, "version", textz_json(info.version ? info.version : CAISSON_VERSION));
	put(o, "oidc", json_pack("{s:s, s:s, s:s, s:s}", "issuer", "", "clientId", "", "audience", "", "provider", ""));
	put(o, "linkedAccountsEnabled", json_false());
	put(o, "announcements", json_object());
	put(o, "proxyTemplateUrl", json_sprintf("%s" BASE_PATH "/preview/{{sandboxId}}/{{PORT}}", base));
	put(o, "proxyToolboxUrl", json_sprintf("%s" BASE_PATH "/toolbox", base));
	put(o, "defaultSnapshot", json_string("default"));
	put(o, "dashboardUrl", json_string(base));
	put(o, "maxAutoArchiveInterval", json_integer(43200));
	put(o, "maintananceMode", json_false()); /* spelled so on the wire */
	put(o, "environment", json_string("local"));
	req_reply_json(r, 200, o);
}

/* Which sandboxes are kept ready is the operator's to say, by image; and most are without anybody's saying. */
static void handle_warm_pools(struct request *r, void *daytona)
{
	(void)daytona;
	if (streq(req_method(r), "GET"))
		req_reply_json(r, 200, json_array());
	else
		fail_code(r, 422, "UNPROCESSABLE_ENTITY",
		          "warm pools are the operator's here (caisson pool set), and kinds that are asked for are kept ready by themselves");
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/sandbox", .handle = handle_list },
	{ .method = "GET", .pattern = "/sandbox/paginated", .handle = handle_paginated },
	{ .method = "*", .pattern = "/warm-pools", .handle = handle_warm_pools },
	{ .method = "*", .pattern = "/warm-pools/{pool}", .handle = handle_warm_pools },
	{ .method = "GET", .pattern = "/config", .handle = handle_config, .tag = TAG_OPEN },
};
const struct route_table catalog_routes = { routes, ARRAY_LEN(routes) };
