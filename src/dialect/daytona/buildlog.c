/* What builds say: kept, and read by any number of clients as it grows. */
#include "dialect/daytona/build_int.h"

struct log_reader {
	struct log_reader *prev, *next;
	struct build *build;
	struct request *r;
	size_t at;
};

static void feed(struct log_reader *l)
{
	struct build *b = l->build;
	if (b->log.len > l->at)
		req_write(l->r, (struct str){ b->log.data + l->at, b->log.len - l->at });
	l->at = b->log.len;
}

static void reader_free(struct log_reader *l)
{
	if (l->prev)
		l->prev->next = l->next;
	else
		l->build->readers = l->next;
	if (l->next)
		l->next->prev = l->prev;
	free(l);
}

void build_log_end(struct build *b)
{
	while (b->readers) {
		struct request *r = b->readers->r;
		feed(b->readers);
		req_on_gone(r, NULL, NULL);
		reader_free(b->readers);
		req_end(r);
	}
}

void build_say(struct build *b, struct str text)
{
	static const char cut[] = "\n[the log is cut here]\n";
	if (b->log.len + text.n + sizeof cut > BUILD_LOG_MAX) {
		if (b->log.len + sizeof cut < BUILD_LOG_MAX)
			buf_addz(&b->log, cut);
		b->log.max = b->log.len;
		return;
	}
	(void)buf_add(&b->log, text.p, text.n);
	for (struct log_reader *l = b->readers; l; l = l->next)
		feed(l);
}

static void reader_gone(void *ctx)
{
	reader_free(ctx);
}

static void handle_logs(struct request *r, void *daytona)
{
	struct build *b = build_lookup(daytona, caller_of(r), req_path_arg(r, "build"));
	if (!b) {
		fail_code(r, 404, "NOT_FOUND", "there is no log of such a build (any more)");
		return;
	}
	const char *follow = req_query(r, "follow");
	if (!streq(follow, "true") || b->state != BUILD_RUNNING) {
		req_reply(r, 200, NULL, 0, "text/plain; charset=utf-8", buf_str(&b->log));
		return;
	}
	struct log_reader *l = xcalloc(1, sizeof *l);
	*l = (struct log_reader){ .build = b, .r = r, .next = b->readers };
	if (l->next)
		l->next->prev = l;
	b->readers = l;
	req_begin(r, 200, NULL, 0, "text/plain; charset=utf-8", -1);
	req_on_gone(r, reader_gone, l);
	feed(l);
}

static void handle_logs_url(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	struct build_view v;
	const char *ref = req_path_arg(r, "id");
	if (!build_find(d, caller_of(r), ref, &v)) {
		fail_code(r, 404, "NOT_FOUND", "there is no log of a build of %.64s (any more)", ref);
		return;
	}
	auto_free char *base = base_url(d, r);
	req_reply_json(r, 200, json_pack("{s:o}", "url", json_sprintf("%s" BASE_PATH "/builds/%s/logs", base, v.id)));
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/builds/{build}/logs", .handle = handle_logs },
	{ .method = "GET", .pattern = "/sandbox/{id}/build-logs-url", .handle = handle_logs_url },
	{ .method = "GET", .pattern = "/snapshots/{id}/build-logs-url", .handle = handle_logs_url },
};
const struct route_table build_routes = { routes, ARRAY_LEN(routes) };
