/* What a sandbox some of whose TLS is opened (for its secrets, or its rules about methods) finds inside: the authority's certificate in every place where programs look for such, and files with placeholders.
 *
 * Each bundle that the image has gets the certificate at its end, unless it is there already; the first one is made when it has none of
 * them. All of it is file work inside, by the guest; what it reads there is hostile and only ever compared. */
#include "core/secret.h"

#include "base/log.h"
#include "core/core_int.h"
#include "core/link.h"

#include <errno.h>
#include <stdio.h>

#define BUNDLE_MAX (8U << 20)
#define ROOT "0"

static const char *const bundles[] = {
	TRUST_BUNDLE, "/etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
};
/* Where tools rebuild the bundles from; only if the folder is there, but for the first. */
static const char *const anchors[] = {
	TRUST_ANCHOR, "/etc/pki/ca-trust/source/anchors/caisson.pem", "/etc/pki/trust/anchors/caisson.pem",
};

enum step { READ_BUNDLE, APPEND, ANCHOR, HASHED, PLACEHOLDER, FINISHED };

struct installing {
	struct core *core;
	char id[40];
	enum step step;
	size_t at;	 /* bundle, anchor or file of this step */
	struct link_op *op;
	struct buf read; /* the bundle, as it is */
	char *text; /* being written */
	size_t sent;
	bool as_root;	 /* a placeholder's file, where the sandbox's user may not write */
	uv_timer_t teller;
	struct err why; /* kind 0 = all went well */
	sandbox_done_fn done;
	void *ctx;
};

static void next(struct installing *i);

static void on_handle_closed(uv_handle_t *h)
{
	struct installing *i = h->data;

	core_handle_closed(i->core);
	buf_done(&i->read);
	free(i->text);
	free(i);
}

static void tell(uv_timer_t *h)
{
	struct installing *i = h->data;
	struct sandbox *s = core_find(i->core, NULL, i->id);

	if (!s && !i->why.kind)
		err_set(&i->why, ERR_GONE, ESRCH, "the sandbox was deleted meanwhile");
	i->done(i->ctx, i->why.kind ? &i->why : NULL, s);
	uv_close((uv_handle_t *)h, on_handle_closed);
}

/* Told by the loop: from inside an event of its guest's a sandbox cannot be deleted. */
static void finish(struct installing *i, const struct err *why)
{
	if (why)
		i->why = *why;
	uv_timer_init(i->core->loop, &i->teller);
	i->teller.data = i;
	i->core->handles++;
	uv_timer_start(&i->teller, tell, 0, 0);
}

static void send_text(struct installing *i)
{
	size_t left = strlen(i->text) - i->sent, n = MIN(left, link_op_room(i->op));

	if (n && link_op_write(i->op, (struct str){ i->text + i->sent, n }) == 0)
		i->sent += n;
	if (i->sent == strlen(i->text)) {
		i->sent++; /* once */
		link_op_eof(i->op);
	}
}

static void on_room(void *ctx)
{
	struct installing *i = ctx;

	if (i->op && i->text && i->sent <= strlen(i->text))
		send_text(i);
}

static void on_data(void *ctx, struct str bytes)
{
	struct installing *i = ctx;

	(void)buf_add(&i->read, bytes.p, bytes.n);
}

/* A bundle that is not there is no failure, nor is an anchor's folder that is not. */
static bool matters(const struct installing *i)
{
	return !(i->step == READ_BUNDLE || (i->step == ANCHOR && i->at > 0) || i->step == HASHED);
}

static void on_end(void *ctx, const struct err *e)
{
	struct installing *i = ctx;
	struct err ignored, why;

	i->op = NULL;
	const struct authority *a = secrets_authority(i->core, &ignored);
	if (e && i->step == PLACEHOLDER && e->kind == ERR_FILE_DENIED && !i->as_root) {
		i->as_root = true;
		next(i);
		return;
	}
	i->as_root = false;
	if (e && matters(i)) {
		why = *e;
		err_prefix(&why, "secrets: the sandbox cannot be prepared");
		finish(i, &why);
		return;
	}
	if (i->step == READ_BUNDLE) {
		bool there = !e && a && i->read.len && memmem(i->read.data, i->read.len, a->pem, strlen(a->pem));
		bool wanted = !e || (i->at == 0 && e->kind == ERR_FILE_NOT_FOUND);
		if (wanted && !there && !i->read.overflow) {
			i->step = APPEND;
			next(i);
			return;
		}
	}
	i->step = i->step == APPEND ? READ_BUNDLE : i->step;
	i->at++;
	next(i);
}

static const struct op_events events = { .on_data = on_data, .on_room = on_room, .on_open = on_room, .on_end = on_end };

static void begin_op(struct installing *i, const struct op_spec *spec)
{
	struct sandbox *s = core_find(i->core, NULL, i->id);
	struct err e;

	i->sent = 0;
	i->op = s ? sandbox_op(s, spec, &events, i, &e) : NULL;
	if (i->op)
		return;
	if (!s)
		err_set(&e, ERR_GONE, ESRCH, "the sandbox was deleted meanwhile");
	finish(i, &e);
}

/* user NULL: the sandbox's own. */
static void put_file(struct installing *i, const char *user, const char *path, uint32_t mode, uint32_t flags, char *text_take)
{
	free(i->text);
	i->text = text_take;
	begin_op(i, &(struct op_spec){ .kind = OP_WRITE, .user = user, .path = path, .mode = mode, .has_mode = true, .flags = flags, .unasked = true });
}

/* The next thing to do in this step; when there is none, the first of the next step. */
static void next(struct installing *i)
{
	struct sandbox *s = core_find(i->core, NULL, i->id);
	struct err e;
	const struct authority *a = secrets_authority(i->core, &e);

	if (!s || !a) {
		finish(i, s ? &e : NULL);
		return;
	}
	const struct pairs *files = &s->row.spec.secret_files;
	if (i->step == READ_BUNDLE && i->at >= ARRAY_LEN(bundles))
		i->step = ANCHOR, i->at = 0;
	if (i->step == ANCHOR && i->at >= ARRAY_LEN(anchors))
		i->step = HASHED, i->at = 0;
	if (i->step == HASHED && i->at >= 1)
		i->step = PLACEHOLDER, i->at = 0;
	if (i->step == PLACEHOLDER && i->at >= files->n)
		i->step = FINISHED;
	switch (i->step) {
	case READ_BUNDLE:
		buf_reset(&i->read);
		free(take_ptr(&i->text));
		begin_op(i, &(struct op_spec){ .kind = OP_READ, .user = ROOT, .path = bundles[i->at], .unasked = true });
		break;
	case APPEND:
		put_file(i, ROOT, bundles[i->at], 0644, OP_F_APPEND | OP_F_PARENTS, xasprintf("\n%s", a->pem));
		break;
	case ANCHOR:
		put_file(i, ROOT, anchors[i->at], 0644, i->at == 0 ? OP_F_PARENTS : 0, xstrdup(a->pem));
		break;
	case HASHED: {
		auto_free char *path = xasprintf("/etc/ssl/certs/%s.0", a->hash);
		put_file(i, ROOT, path, 0644, 0, xstrdup(a->pem));
		break;
	}
	case PLACEHOLDER: {
		const char *placeholder = secret_placeholder(i->core, s->row.tenant, files->v[i->at].value);
		put_file(i, i->as_root ? ROOT : NULL, files->v[i->at].key, 0644, OP_F_PARENTS, xstrdup(placeholder ? placeholder : ""));
		break;
	}
	case FINISHED:
		finish(i, NULL);
		break;
	}
}

void secrets_install(struct sandbox *s, sandbox_done_fn done, void *ctx)
{
	if (!sandbox_is_opened(s)) {
		done(ctx, NULL, s);
		return;
	}
	struct installing *i = xcalloc(1, sizeof *i);
	*i = (struct installing){ .core = s->core, .done = done, .ctx = ctx };
	snprintf(i->id, sizeof i->id, "%s", s->row.id);
	buf_init(&i->read, BUNDLE_MAX);
	next(i);
}
