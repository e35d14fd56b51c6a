/* Rows of volumes. */
#include "store/store_int.h"

#include <errno.h>

void volume_row_done(struct volume_row *r)
{
	free(r->id);
	free(r->tenant);
	free(r->name);
	free(r->key_id);
	free(r->boundary);
	*r = (struct volume_row){ 0 };
}

static int read_volume(struct cursor *c, struct volume_row *r)
{
	*r = (struct volume_row){ 0 };
	r->id = get_text(c);
	r->tenant = get_text(c);
	r->name = get_text(c);
	r->key_id = get_text(c);
	auto_free char *state = get_text(c);
	r->boundary = get_text(c);
	r->size_mib = get_u64(c);
	r->created_ms = get_u64(c);
	r->used_ms = get_u64(c);
	return volume_state_parse(str_of(state), &r->state);
}

int store_volume_put(struct store *s, const struct volume_row *r, struct err *e)
{
	struct cursor c = store_statement(s, ST_VOLUME_PUT);
	put_text(&c, r->id);
	put_text(&c, r->tenant);
	put_text(&c, r->name);
	put_text(&c, r->key_id);
	put_text(&c, volume_state_name(r->state));
	put_text(&c, r->boundary);
	put_u64(&c, r->size_mib);
	put_u64(&c, r->created_ms);
	put_u64(&c, r->used_ms);
	int rc = store_write(s, c);
	if (rc == -EEXIST)
		return err_set(e, ERR_CONFLICT, EEXIST, "name: a volume with the name %s exists already; delete it or choose another name",
		               str_quote(str_of(r->name), &(struct quoted){ 0 }));
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "can't store the volume") : 0;
}

int store_volume_delete(struct store *s, const char *id)
{
	struct cursor c = store_statement(s, ST_VOLUME_DELETE);
	put_text(&c, id);
	int r = store_write(s, c);
	return r == -ENOENT ? 0 : r;
}

struct volume_walk {
	int (*each)(void *ctx, struct volume_row *r);
	void *ctx;
};

static int walk_volume(void *ctx, struct cursor *c)
{
	struct volume_walk *w = ctx;
	struct volume_row row;
	int r = read_volume(c, &row);
	/* In a word that this version does not know: its content is not ours to throw away. */
	if (r == 0)
		r = w->each(w->ctx, &row);
	volume_row_done(&row);
	return r < 0 ? 0 : r;
}

int store_volume_each(struct store *s, int (*each)(void *ctx, struct volume_row *r), void *ctx)
{
	return store_walk(s, "SELECT id, tenant, name, key_id, state, boundary, size_mib, created_ms, used_ms FROM volumes ORDER BY created_ms, id", NULL,
	                  walk_volume, &(struct volume_walk){ each, ctx });
}
