#include "core/link_int.h"

#include <assert.h>
#include <errno.h>

static_assert((int)GUEST_STAT == OP_STAT && (int)GUEST_LIST == OP_LIST && (int)GUEST_READ == OP_READ &&
              (int)GUEST_WRITE == OP_WRITE && (int)GUEST_MKDIR == OP_MKDIR && (int)GUEST_REMOVE == OP_REMOVE &&
              (int)GUEST_MOVE == OP_MOVE && (int)GUEST_CHMOD == OP_CHMOD && (int)GUEST_FIND == OP_FIND &&
              (int)GUEST_SEARCH == OP_SEARCH && (int)GUEST_REPLACE == OP_REPLACE && (int)GUEST_CONNECT == OP_CONNECT &&
              (int)GUEST_PORTS == OP_PORTS && (int)GUEST_USERINFO == OP_USERINFO && (int)GUEST_DISK == OP_DISK &&
              (int)GUEST_SYNC == OP_SYNC, "model/op.h and wire/guest.h name the ops alike");
static_assert((int)GUEST_F_PARENTS == OP_F_PARENTS && (int)GUEST_F_APPEND == OP_F_APPEND &&
              (int)GUEST_F_EXCLUSIVE == OP_F_EXCLUSIVE && (int)GUEST_F_RECURSIVE == OP_F_RECURSIVE &&
              (int)GUEST_F_NOFOLLOW == OP_F_NOFOLLOW, "and their flags");

enum { VALUES_MAX = 4096 };

void clean_text(struct str in, char *to, size_t size)
{
	size_t at = 0;

	while (in.n && at + 1 < size) {
		size_t len = 1;
		while (len < 4 && len < in.n && ((unsigned char)in.p[len] & 0xc0) == 0x80)
			len++;
		bool good = utf8_valid((struct str){ in.p, len }) && (unsigned char)in.p[0] >= 0x20 && in.p[0] != 0x7f;
		if (!good)
			len = 1;
		if (at + len >= size)
			break;
		if (good)
			memcpy(to + at, in.p, len);
		else
			to[at] = '?';
		at += len;
		in.p += len;
		in.n -= len;
	}
	to[at] = '\0';
}

/* --- life --- */

static void op_free(struct link_op *op)
{
	if (op->link)
		link_op_remove(op->link, op);
	if (op->pump)
		pump_drop(op->pump);
	free(op);
}

void link_op_watch(struct link_op *op, link_op_watch_fn fn, void *ctx)
{
	op->watch = fn;
	op->watch_ctx = ctx;
}

static void tell_watch(struct link_op *op, const struct err *e, bool canceled)
{
	if (op->watch)
		op->watch(op->watch_ctx, op->sent, op->data, e, canceled);
}

void op_end(struct link_op *op, const struct err *e)
{
	if (op->dead)
		return;
	op->dead = true; /* a cancel from inside the last callback changes nothing any more */
	tell_watch(op, e, false);
	if (op->ev->on_end)
		op->ev->on_end(op->ctx, e);
	if (!op->busy)
		op_free(op);
}

static struct pump *pump_of(const struct link_op *op)
{
	return op->pump ? op->pump : op->link ? link_pump(op->link) : NULL;
}

void link_op_cancel(struct link_op *op)
{
	struct pump *p = op->pump ? NULL : pump_of(op);

	if (op->dead)
		return;
	op->dead = true;
	tell_watch(op, NULL, true);
	if (p) {
		(void)guest_frame_put(pump_out(p), GUEST_OP_CANCEL, 0, op->id, (struct str){ NULL, 0 });
		pump_kick(p);
	}
	if (!op->busy)
		op_free(op);
}

static struct link_op *op_new(const struct op_events *ev, void *ctx)
{
	struct link_op *op = xcalloc(1, sizeof *op);

	op->ev = ev;
	op->ctx = ctx;
	op->sent_limit = op->received_limit = GUEST_OP_WINDOW;
	return op;
}

static int send_request(struct buf *out, uint64_t id, const struct op_spec *s)
{
	struct guest_op_request r = {
		.kind = (uint32_t)s->kind,
		.mode = s->mode & 07777,
		.depth = s->depth,
		.flags = s->flags & GUEST_F_ALL,
		.has_mode = s->has_mode,
		.port = s->port,
		.offset = s->offset,
		.length = s->length,
		.user = s->user,
		.cwd = s->cwd,
		.path = s->path,
		.path2 = s->path2,
		.pattern = s->pattern,
		.text = s->text,
		.owner = s->owner,
		.group = s->group,
	};
	return guest_op_request_put(out, id, &r);
}

struct link_op *link_op_open(struct link *l, const struct op_spec *spec, const struct op_events *ev, void *ctx)
{
	struct link_op *op = op_new(ev, ctx);
	struct pump *p = link_pump(l);

	link_op_add(l, op);
	op->refused = !p || send_request(pump_out(p), op->id, spec) < 0;
	if (p)
		pump_kick(p); /* also when the queue is full: that ends the link */
	if (op->refused)
		link_defer(l);
	return op;
}

/* --- a connection of its own --- */

static int direct_frame(void *ctx, const struct guest_frame *f, struct str message)
{
	struct link_op *op = ctx;

	(void)message;
	return op_frame_type(f->type) && f->id == op->id ? op_frame(op, f) : -EPROTO;
}

static void direct_closed(void *ctx, const struct err *why)
{
	struct link_op *op = ctx;

	op->pump = NULL; /* frees itself */
	op_end(op, why);
}

struct link_op *link_op_open_direct(struct link *l, int fd, const struct op_spec *spec, const struct op_events *ev, void *ctx)
{
	static const struct pump_events events = { direct_frame, direct_closed };
	struct link_op *op = op_new(ev, ctx);
	struct err e;

	op->pump = pump_new(link_loop(l), fd, &events, op);
	if (!op->pump) {
		free(op);
		return NULL;
	}
	link_op_add(l, op);
	pump_bulk(op->pump);
	if (send_request(pump_out(op->pump), op->id, spec) < 0) {
		err_set(&e, ERR_TOO_LARGE, E2BIG, "the operation's arguments are too long");
		pump_fail(op->pump, &e);
	} else {
		pump_kick(op->pump);
	}
	return op;
}

/* --- to the guest --- */

size_t link_op_room(const struct link_op *op)
{
	return op->dead || op->refused || op->eof_sent || !pump_of(op) ? 0 : (size_t)(op->sent_limit - op->sent);
}

int link_op_write(struct link_op *op, struct str bytes)
{
	struct pump *p = pump_of(op);

	if (bytes.n > link_op_room(op))
		return -EAGAIN;
	op->sent += bytes.n;
	if (bytes.n)
		pump_send(p, GUEST_OP_DATA, op->id, bytes);
	return 0;
}

void link_op_eof(struct link_op *op)
{
	struct pump *p = pump_of(op);

	if (op->dead || op->eof_sent || !p)
		return;
	op->eof_sent = true;
	(void)guest_frame_put(pump_out(p), GUEST_OP_EOF, 0, op->id, (struct str){ NULL, 0 });
	pump_kick(p);
}

static void give_credit(struct link_op *op)
{
	struct pump *p = pump_of(op);

	if (op->dead || op->paused || !p || op->received + GUEST_OP_WINDOW - op->received_limit < GUEST_OP_WINDOW / 4)
		return;
	op->received_limit = op->received + GUEST_OP_WINDOW;
	(void)guest_u64_put(pump_out(p), GUEST_OP_CREDIT, 0, op->id, op->received_limit);
	pump_kick(p);
}

void link_op_pause(struct link_op *op)
{
	op->paused = true;
	if (op->pump)
		pump_pause(op->pump);
}

void link_op_resume(struct link_op *op)
{
	op->paused = false;
	give_credit(op);
	if (op->pump)
		pump_resume(op->pump);
}

/* --- from the guest --- */

bool op_frame_type(uint8_t type)
{
	return (type >= GUEST_OP_DATA && type <= GUEST_OP_CREDIT) || (type >= GUEST_OP_OPENED && type <= GUEST_OP_END);
}

static int take_info(struct link_op *op, struct str payload)
{
	struct guest_info g;

	if (guest_info_get(payload, &g) < 0)
		return -EPROTO;
	const char *slash = strrchr(g.path, '/');
	struct file_info i = {
		.path = g.path,
		.name = slash && slash[1] ? slash + 1 : g.path,
		.type = (enum file_type)g.type,
		.is_dir = g.is_dir,
		.size = g.size,
		.mode = g.mode,
		.uid = g.uid,
		.gid = g.gid,
		.owner = g.owner,
		.group = g.group,
		.mtime_ms = g.mtime_ms,
		.target = g.target,
	};
	if (op->ev->on_info)
		op->ev->on_info(op->ctx, &i);
	return 0;
}

static int take_match(struct link_op *op, struct str payload)
{
	const char *path;
	uint64_t line;
	struct str text;

	if (guest_match_get(payload, &path, &line, &text) < 0)
		return -EPROTO;
	if (op->ev->on_match)
		op->ev->on_match(op->ctx, path, line, text);
	return 0;
}

static int take_values(struct link_op *op, struct str payload)
{
	struct pairs pairs = { 0 };
	const char *name, *value;
	int r;

	while ((r = guest_value_next(&payload, &name, &value)) > 0 && pairs.n < VALUES_MAX) {
		/* not pairs_add: looking for an equal key each time would give a guest our time for nothing */
		pairs.v = xreallocarray(pairs.v, pairs.n + 1, sizeof *pairs.v);
		pairs.v[pairs.n++] = (struct pair){ xstrdup(name), xstrdup(value) };
	}
	if (r == 0 && op->ev->on_values)
		op->ev->on_values(op->ctx, &pairs);
	pairs_done(&pairs);
	return r == 0 ? 0 : -EPROTO;
}

static int take_end(struct link_op *op, struct str payload)
{
	struct guest_result g;
	struct err e;

	if (guest_result_get(payload, &g) < 0)
		return -EPROTO;
	if (g.kind == ERR_NONE) {
		op_end(op, NULL);
		return 0;
	}
	e.kind = g.kind < ERR_KIND_COUNT ? (enum err_kind)g.kind : ERR_INTERNAL;
	e.errnum = (int)g.errnum;
	clean_text(g.text, e.message, sizeof e.message);
	op_end(op, &e);
	return 0;
}

static int take_credit(struct link_op *op, struct str payload)
{
	if (payload.n != 8)
		return -EPROTO;
	uint64_t limit = guest_u64(payload.p);
	if (limit < op->sent_limit || limit - op->sent > GUEST_OP_WINDOW)
		return -EPROTO;
	bool had_none = link_op_room(op) == 0;
	op->sent_limit = limit;
	if (had_none && link_op_room(op) && op->ev->on_room)
		op->ev->on_room(op->ctx);
	return 0;
}

static int counted(struct link_op *op, struct str payload)
{
	if (payload.n > op->received_limit - op->received)
		return -EPROTO;
	op->received += payload.n;
	return 0;
}

static int deliver(struct link_op *op, const struct guest_frame *f)
{
	switch (f->type) {
	case GUEST_OP_OPENED:
		if (op->opened || f->payload.n)
			return -EPROTO;
		op->opened = true;
		if (op->ev->on_open)
			op->ev->on_open(op->ctx);
		return 0;
	case GUEST_OP_DATA:
		if (!op->opened || op->data_ended || counted(op, f->payload) < 0)
			return -EPROTO;
		op->data += f->payload.n;
		if (f->payload.n && op->ev->on_data)
			op->ev->on_data(op->ctx, f->payload);
		return 0;
	case GUEST_OP_EOF:
		if (!op->opened || op->data_ended || f->payload.n)
			return -EPROTO;
		op->data_ended = true;
		if (op->ev->on_data_end)
			op->ev->on_data_end(op->ctx);
		return 0;
	case GUEST_OP_INFO:
		return counted(op, f->payload) < 0 ? -EPROTO : take_info(op, f->payload);
	case GUEST_OP_MATCH:
		return counted(op, f->payload) < 0 ? -EPROTO : take_match(op, f->payload);
	case GUEST_OP_VALUES:
		return counted(op, f->payload) < 0 ? -EPROTO : take_values(op, f->payload);
	case GUEST_OP_CREDIT:
		return take_credit(op, f->payload);
	case GUEST_OP_END:
		return take_end(op, f->payload);
	default:
		return -EPROTO;
	}
}

int op_frame(struct link_op *op, const struct guest_frame *f)
{
	op->busy = true;
	int r = op->dead ? 0 : deliver(op, f);
	op->busy = false;
	if (op->dead)
		op_free(op);
	else
		give_credit(op);
	return r;
}
