/* Layers. What a build has made up to a RUN or COPY is kept as a snapshot of its tenant's, under a name that says all it was made of: what
 * the build began as, each step up to there, and the hashes of the files that COPY may have brought. A build that begins with the same steps
 * begins as the longest such layer, and of those steps only tells.
 *
 * A layer is not taken between two COPYs: they share what was brought in for them. None is kept of a build whose steps can see more than
 * the text says, which is one with volumes or secrets. Whatever goes wrong with a layer, the build goes on without it; after
 * the second one that could not be taken, none is tried any more. */
#include "dialect/daytona/build_int.h"

#include <openssl/sha.h>
#include <stdio.h>

#define LAYERS_MAX	 64	    /* of a tenant; the one that was used least lately goes */
#define LAYERS_BYTES_MAX (8ULL << 30) /* of them together */
#define LAYER_AGE_MS	 (7ULL * 86400 * 1000) /* what a step would bring from the network has changed by then */
#define LAYER_NAME_SIZE	 56
#define LAYER_EXTRA	 "{\"daytona\":{\"layer\":true}}"

bool snapshot_is_layer(const struct snapshot_view *v)
{
	return streq(v->spec->extra, LAYER_EXTRA);
}

static void name_of(const struct build *b, size_t steps, char ret[static LAYER_NAME_SIZE])
{
	int n = snprintf(ret, LAYER_NAME_SIZE, "build-layer-");

	for (size_t i = 0; i < 20; i++)
		n += snprintf(ret + n, LAYER_NAME_SIZE - (size_t)n, "%02x", b->keys[steps][i]);
}

static void digest(const struct buf *of, unsigned char ret[static SHA256_DIGEST_LENGTH])
{
	(void)SHA256((const unsigned char *)of->data, of->len, ret);
}

static void add_text(struct buf *to, const char *text)
{
	(void)buf_addz(to, text ? text : "");
	(void)buf_addc(to, '\0');
}

/* keys[n]: what there is behind the first n steps. */
static void make_keys(struct build *b, const struct sandbox_spec *spec, const char *parent)
{
	auto_buf struct buf of;
	char disk[24];

	buf_init(&of, 1U << 20); /* a line and 256 hashes at most */
	b->keys = xcalloc(b->f.n_steps + 1, sizeof *b->keys);
	snprintf(disk, sizeof disk, "%llu", (unsigned long long)spec->resources.disk_mib);
	add_text(&of, "build 1");
	add_text(&of, parent);
	add_text(&of, spec->boundary);
	add_text(&of, disk);
	add_text(&of, spec->user); /* a sandbox has them from its snapshot unless it is told */
	add_text(&of, spec->workdir);
	digest(&of, b->keys[0]);
	for (size_t i = 0; i < b->f.n_steps; i++) {
		const struct dockerfile_step *s = &b->f.steps[i];
		buf_reset(&of);
		(void)buf_add(&of, b->keys[i], sizeof b->keys[i]);
		add_text(&of, s->line);
		for (size_t h = 0; s->kind == STEP_COPY && b->hashes && b->hashes[h]; h++)
			add_text(&of, b->hashes[h]);
		digest(&of, b->keys[i + 1]);
	}
}

/* Is what there is behind the first n steps kept? */
static bool is_point(const struct build *b, size_t n)
{
	enum step_kind kind = b->f.steps[n - 1].kind;

	return kind == STEP_RUN || (kind == STEP_COPY && (n == b->f.n_steps || b->f.steps[n].kind != STEP_COPY));
}

static bool usable(const struct build *b, size_t n, struct snapshot_view *ret)
{
	char name[LAYER_NAME_SIZE];
	struct err quiet;

	name_of(b, n, name);
	return api_snapshot_get(b->d->api, &b->caller, name, ret, &quiet) == 0 && snapshot_is_layer(ret) && ret->state == SNAPSHOT_READY &&
	       ret->created_ms + LAYER_AGE_MS > now_unix_ms();
}

/* --- making room --- */

struct layer {
	char id[40];
	uint64_t created_ms, used_ms, bytes;
};

struct layers {
	struct layer *v;
	size_t n;
	uint64_t bytes;
};

static void note(void *ctx, const struct snapshot_view *v)
{
	struct layers *l = ctx;

	if (!snapshot_is_layer(v) || v->state != SNAPSHOT_READY)
		return;
	l->v = xreallocarray(l->v, l->n + 1, sizeof *l->v);
	l->v[l->n] = (struct layer){ .created_ms = v->created_ms, .used_ms = MAX(v->created_ms, v->used_ms), .bytes = v->bytes };
	snprintf(l->v[l->n++].id, sizeof l->v->id, "%s", v->id);
	l->bytes += v->bytes;
}

static int by_use(const void *a, const void *b)
{
	const struct layer *x = a, *y = b;

	return x->used_ms < y->used_ms ? -1 : x->used_ms > y->used_ms;
}

static void on_gone(void *ctx, const struct err *e)
{
	(void)ctx;
	if (e)
		log_warn("msg=\"a layer of builds could not be deleted: %s\"", e->message);
}

static void make_room(struct build *b)
{
	struct layers l = { 0 };
	uint64_t now = now_unix_ms();

	api_snapshot_list(b->d->api, &b->caller, note, &l);
	if (l.n)
		qsort(l.v, l.n, sizeof *l.v, by_use);
	size_t left = l.n;
	for (size_t i = 0; i < l.n; i++) {
		if (left <= LAYERS_MAX && l.bytes <= LAYERS_BYTES_MAX && l.v[i].created_ms + LAYER_AGE_MS > now)
			continue;
		left--;
		l.bytes -= l.v[i].bytes;
		api_snapshot_delete(b->d->api, &b->caller, l.v[i].id, on_gone, b->d);
	}
	free(l.v);
}

/* --- for the build --- */

void layers_begin(struct build *b, struct sandbox_spec *spec, const char *parent)
{
	struct snapshot_view v;

	b->layers = spec->volumes.n == 0 && spec->secret_env.n + spec->secret_files.n == 0;
	if (!b->layers)
		return;
	make_keys(b, spec, parent);
	make_room(b);
	for (size_t n = b->f.n_steps; n > 0 && !b->kept; n--)
		if (is_point(b, n) && usable(b, n, &v))
			b->kept = n;
	if (!b->kept)
		return;
	free(take_ptr(&spec->image));
	free(spec->from_snapshot);
	spec->from_snapshot = xstrdup(v.id);
}

bool layer_due(const struct build *b)
{
	struct snapshot_view v;

	return b->layers && b->at > b->kept && is_point(b, b->at) && !usable(b, b->at, &v);
}

static void on_kept(void *ctx, const struct err *e, const struct snapshot_view *v)
{
	struct build *b = ctx;

	(void)v;
	if (e && e->kind != ERR_CONFLICT) { /* conflict: another build was faster */
		b->layers = e->kind == ERR_UNAVAILABLE && ++b->layers_missed < 2;
		log_warn("sandbox=%s msg=\"%s of this build is not kept: %s\"", b->sandbox, b->layers ? "a layer" : "what else the steps make", e->message);
	}
	make_room(b);
	build_next(b);
}

void layer_keep(struct build *b)
{
	char name[LAYER_NAME_SIZE];

	name_of(b, b->at, name);
	api_snapshot_create(b->d->api, &b->caller, b->sandbox, name, false, LAYER_EXTRA, on_kept, b);
}
