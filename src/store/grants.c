/* Rows of grants. */
#include "store/store_int.h"

#include <errno.h>

void grant_row_done(struct grant_row *r)
{
	free(r->id);
	free(r->sandbox_id);
	*r = (struct grant_row){ 0 };
}

static int read_grant(struct cursor *c, struct grant_row *r)
{
	size_t n;

	*r = (struct grant_row){ 0 };
	r->id = get_text(c);
	r->sandbox_id = get_text(c);
	uint8_t *hash = get_blob(c, &n);
	bool whole = hash && n == sizeof r->hash;
	if (whole)
		memcpy(r->hash, hash, n);
	free(hash);
	auto_free char *kind = get_text(c);
	r->port = (uint16_t)get_int(c);
	r->created_ms = get_u64(c);
	r->expires_ms = get_u64(c);
	return whole ? grant_kind_parse(str_of(kind), &r->kind) : -EINVAL;
}

int store_grant_put(struct store *s, const struct grant_row *r)
{
	struct cursor c = store_statement(s, ST_GRANT_PUT);
	put_text(&c, r->id);
	put_text(&c, r->sandbox_id);
	put_blob(&c, r->hash, sizeof r->hash);
	put_text(&c, grant_kind_name(r->kind));
	put_int(&c, r->port);
	put_u64(&c, r->created_ms);
	put_u64(&c, r->expires_ms);
	return store_write(s, c);
}

int store_grant_delete(struct store *s, const char *id)
{
	struct cursor c = store_statement(s, ST_GRANT_DELETE);
	put_text(&c, id);
	int r = store_write(s, c);
	return r == -ENOENT ? 0 : r;
}

struct grant_walk {
	int (*each)(void *ctx, struct grant_row *r);
	void *ctx;
};

/* One that says what this version does not know opens nothing. */
static int walk_grant(void *ctx, struct cursor *c)
{
	struct grant_walk *w = ctx;
	struct grant_row row;
	int r = read_grant(c, &row) < 0 ? 0 : w->each(w->ctx, &row);

	grant_row_done(&row);
	return r;
}

int store_grant_each(struct store *s, int (*each)(void *ctx, struct grant_row *r), void *ctx)
{
	return store_walk(s, "SELECT id, sandbox_id, hash, kind, port, created_ms, expires_ms FROM grants ORDER BY created_ms, id", NULL, walk_grant,
	                  &(struct grant_walk){ each, ctx });
}
