/* Rows of snapshots. */
#include "store/store_int.h"

#include <errno.h>

void snapshot_row_done(struct snapshot_row *r)
{
	free(r->id);
	free(r->tenant);
	free(r->name);
	free(r->key_id);
	free(r->boundary);
	free(r->image_digest);
	free(r->sandbox_id);
	free(r->user);
	spec_done(&r->spec);
	*r = (struct snapshot_row){ 0 };
}

static int read_snapshot(struct cursor *c, struct snapshot_row *r)
{
	*r = (struct snapshot_row){ 0 };
	r->id = get_text(c);
	r->tenant = get_text(c);
	r->name = get_text(c);
	r->key_id = get_text(c);
	auto_free char *state = get_text(c);
	r->boundary = get_text(c);
	r->image_digest = get_text(c);
	r->sandbox_id = get_text(c);
	r->user = get_text(c);
	r->memory = get_bool(c);
	r->bytes = get_u64(c);
	r->created_ms = get_u64(c);
	r->used_ms = get_u64(c);
	auto_free char *spec = get_text(c);
	if (spec_from_json(spec, &r->spec) < 0) /* nothing can be made from it; it can still be deleted */
		spec_init(&r->spec);
	return snapshot_state_parse(str_of(state), &r->state);
}

int store_snapshot_put(struct store *s, const struct snapshot_row *r, struct err *e)
{
	char *spec = spec_to_json(&r->spec);
	if (!spec)
		return err_set(e, ERR_INVALID, EILSEQ, "the specification holds text that is not UTF-8");
	struct cursor c = store_statement(s, ST_SNAPSHOT_PUT);
	put_text(&c, r->id);
	put_text(&c, r->tenant);
	put_text(&c, r->name);
	put_text(&c, r->key_id);
	put_text(&c, snapshot_state_name(r->state));
	put_text(&c, r->boundary);
	put_text(&c, r->image_digest);
	put_text(&c, r->sandbox_id);
	put_text(&c, r->user);
	put_int(&c, r->memory);
	put_u64(&c, r->bytes);
	put_u64(&c, r->created_ms);
	put_u64(&c, r->used_ms);
	put_text(&c, spec);
	int rc = store_write(s, c);
	free(spec);
	if (rc == -EEXIST)
		return err_set(e, ERR_CONFLICT, EEXIST, "name: a snapshot with the name %s exists already; delete it or choose another name",
		               str_quote(str_of(r->name), &(struct quoted){ 0 }));
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "can't store the snapshot") : 0;
}

int store_snapshot_delete(struct store *s, const char *id)
{
	struct cursor c = store_statement(s, ST_SNAPSHOT_DELETE);
	put_text(&c, id);
	int r = store_write(s, c);
	return r == -ENOENT ? 0 : r;
}

struct snapshot_walk {
	int (*each)(void *ctx, struct snapshot_row *r);
	void *ctx;
};

static int walk_snapshot(void *ctx, struct cursor *c)
{
	struct snapshot_walk *w = ctx;
	struct snapshot_row row;
	int r = read_snapshot(c, &row);
	if (r < 0)
		row.state = SNAPSHOT_DELETING; /* a word that this version does not know */
	r = w->each(w->ctx, &row);
	snapshot_row_done(&row);
	return r;
}

int store_snapshot_each(struct store *s, int (*each)(void *ctx, struct snapshot_row *r), void *ctx)
{
	return store_walk(s,
	                  "SELECT id, tenant, name, key_id, state, boundary, image_digest, sandbox_id, user, memory, bytes, created_ms, used_ms, spec"
	                  " FROM snapshots ORDER BY created_ms, id",
	                  NULL, walk_snapshot, &(struct snapshot_walk){ each, ctx });
}
