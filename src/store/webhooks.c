/* Rows of webhooks. */
#include "store/store_int.h"

#include "base/buf.h"

#include <errno.h>

enum { TYPES_TEXT_MAX = 4096 };

void webhook_row_done(struct webhook_row *r)
{
	free(r->id);
	free(r->url);
	free_secret(r->secret);
	strv_free(r->types);
	*r = (struct webhook_row){ 0 };
}

int store_webhook_put(struct store *s, const struct webhook_row *r)
{
	auto_buf struct buf types;

	buf_init(&types, TYPES_TEXT_MAX);
	(void)buf_addz(&types, "");
	for (char *const *t = r->types; t && *t; t++)
		(void)buf_addf(&types, "%s%s", types.len ? " " : "", *t);
	if (types.overflow)
		return -E2BIG;
	struct cursor c = store_statement(s, ST_WEBHOOK_PUT);
	put_text(&c, r->id);
	put_text(&c, r->url);
	put_text(&c, r->secret);
	put_text(&c, types.data ? types.data : "");
	put_u64(&c, r->created_ms);
	put_u64(&c, r->seq);
	return store_write_synced(s, c);
}

int store_webhook_position(struct store *s, const char *id, uint64_t seq)
{
	struct cursor c = store_statement(s, ST_WEBHOOK_POSITION);
	put_u64(&c, seq);
	put_text(&c, id);
	return store_write(s, c);
}

int store_webhook_delete(struct store *s, const char *id)
{
	struct cursor c = store_statement(s, ST_WEBHOOK_DELETE);
	put_text(&c, id);
	int rc = store_write_synced(s, c);
	return rc == -ENOENT ? 0 : rc;
}

static char **split(const char *text)
{
	char **v = NULL;
	size_t n = 0;

	while (text && *text) {
		size_t len = strcspn(text, " ");
		v = xreallocarray(v, n + 2, sizeof *v);
		v[n++] = xstrndup(text, len);
		v[n] = NULL;
		text += len + (text[len] == ' ');
	}
	return v;
}

struct webhook_walk {
	int (*each)(void *ctx, struct webhook_row *r);
	void *ctx;
};

static int walk_webhook(void *ctx, struct cursor *c)
{
	struct webhook_walk *w = ctx;
	struct webhook_row row = { 0 };
	row.id = get_text(c);
	row.url = get_text(c);
	row.secret = get_text(c);
	auto_free char *types = get_text(c);
	row.types = split(types);
	row.created_ms = get_u64(c);
	row.seq = get_u64(c);
	int r = w->each(w->ctx, &row);
	webhook_row_done(&row);
	return r;
}

int store_webhook_each(struct store *s, int (*each)(void *ctx, struct webhook_row *r), void *ctx)
{
	return store_walk(s, "SELECT id, url, secret, types, created_ms, seq FROM webhooks ORDER BY created_ms, id", NULL, walk_webhook,
	                  &(struct webhook_walk){ each, ctx });
}
