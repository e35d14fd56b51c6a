#include "daytona-fake-int.h"

/* --- operations --- */

static void op_finish(struct api_op *op, const struct err *e)
{
	op->done = true;
	op->a->pending--;
	op->ev.on_end(op->ctx, e);
	uv_close((uv_handle_t *)&op->timer, fake_free_handle);
	free(op->path);
	buf_done(&op->in);
}

static const struct file_info plain_info = { .path = "x", .name = "x", .type = FILE_REGULAR, .size = 3, .mode = 0640, .uid = 1000, .gid = 1000,
	                                     .owner = "daytona", .group = "daytona", .mtime_ms = 1767225600000 };

static bool step_read(struct api_op *op)
{
	const struct fake_file *f = fake_file(op->a, op->path);
	struct err e;
	if (!f) {
		err_set(&e, ERR_FILE_NOT_FOUND, ENOENT, "%s: no such file", op->path);
		op_finish(op, &e);
		return false;
	}
	if (!op->opened) {
		struct file_info info = plain_info;
		info.path = op->path;
		info.size = f->data.len;
		op->opened = true;
		op->ev.on_info(op->ctx, &info);
		op->ev.on_open(op->ctx);
		return true;
	}
	size_t n = MIN(f->data.len - op->sent, 1 << 15);
	if (n == 0) {
		op_finish(op, NULL);
		return false;
	}
	struct str bytes = { f->data.data + op->sent, n };
	op->sent += n;
	op->ev.on_data(op->ctx, bytes);
	return true;
}

static void step_write(struct api_op *op)
{
	struct err e;
	if (strncmp(op->path, "/forbidden", 10) == 0) {
		err_set(&e, ERR_FILE_DENIED, EACCES, "permission denied");
		op_finish(op, &e);
		return;
	}
	op->opened = true;
	if (op->eof) {
		fake_put_file(op->a, op->path, op->in.data, op->in.len);
		op_finish(op, NULL);
		return;
	}
	size_t before = op->room;
	op->room = 1000;
	if (before == 0)
		op->ev.on_room(op->ctx);
}

/* Answers any request with its own head. */
static void step_connect(struct api_op *op)
{
	struct err e;
	if (op->spec.port == 1) {
		err_set(&e, ERR_UNAVAILABLE, ECONNREFUSED, "nothing listens on port 1");
		op_finish(op, &e);
		return;
	}
	if (!op->opened) {
		op->opened = true;
		op->room = 1 << 16;
		op->ev.on_open(op->ctx);
		return;
	}
	if (op->in.len && strstr(op->in.data, "\r\n\r\n")) {
		buf_reset(&op->a->head);
		buf_add(&op->a->head, op->in.data, op->in.len);
		buf_reset(&op->in);
		const char *reply = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside";
		op->ev.on_data(op->ctx, str_of(reply));
	}
}

static void op_step(uv_timer_t *t)
{
	struct api_op *op = (struct api_op *)t;
	struct err e;
	struct pairs values = { 0 };
	if (op->done || op->paused)
		return;
	switch ((int)op->spec.kind) {
	case OP_READ:
		step_read(op);
		return;
	case OP_WRITE:
		step_write(op);
		return;
	case OP_CONNECT:
		step_connect(op);
		return;
	case OP_STAT:
	case OP_LIST:
		if (strstr(op->path, "none")) {
			err_set(&e, ERR_FILE_NOT_FOUND, ENOENT, "%s: no such file", op->path);
			op_finish(op, &e);
			return;
		}
		struct file_info info = plain_info;
		info.path = op->spec.kind == OP_STAT ? op->path : "x";
		op->ev.on_info(op->ctx, &info);
		break;
	case OP_FIND:
		op->ev.on_match(op->ctx, "/d/x", 7, STR("a \xff b"));
		break;
	case OP_SEARCH:
		op->ev.on_match(op->ctx, "/d/x.py", 0, (struct str){ 0 });
		break;
	case OP_REMOVE:
	case OP_MOVE:
	case OP_REPLACE:
		if (strstr(op->path, "bad")) {
			int n = op->spec.kind == OP_MOVE ? EEXIST : EISDIR;
			err_set(&e, op->spec.kind == OP_MOVE ? ERR_CONFLICT : ERR_INVALID, n, "%s: no", op->path);
			op_finish(op, &e);
			return;
		}
		break;
	case OP_PORTS:
		pairs_add(&values, "8000", "any");
		pairs_add(&values, "junk", "x");
		break;
	case OP_USERINFO:
		pairs_add(&values, "home", "/home/daytona");
		pairs_add(&values, "workdir", "/work");
		break;
	default:
		break;
	}
	if (values.n)
		op->ev.on_values(op->ctx, &values);
	pairs_done(&values);
	if (!op->done)
		op_finish(op, NULL);
}

struct api_op *api_op_open(struct api *a, const struct caller *c, const char *ref, const struct op_spec *spec, const struct op_events *ev, void *ctx,
                           struct err *e)
{
	(void)c;
	if (!fake_lookup(a, ref, e))
		return NULL;
	struct api_op *op = xcalloc(1, sizeof(*op));
	*op = (struct api_op){ .a = a, .spec = *spec, .path = xstrdup(spec->path), .ev = *ev, .ctx = ctx };
	buf_init(&op->in, 64 << 20);
	uv_timer_init(a->loop, &op->timer);
	uv_timer_start(&op->timer, op_step, 1, 1);
	a->pending++;
	return op;
}
size_t api_op_room(const struct api_op *op)
{
	return op->room;
}
int api_op_write(struct api_op *op, struct str bytes)
{
	assert(!op->eof && !op->done);
	if (bytes.n > op->room)
		return -EAGAIN;
	op->room -= bytes.n;
	return buf_add(&op->in, bytes.p, bytes.n);
}
void api_op_eof(struct api_op *op)
{
	op->eof = true;
}
void api_op_pause(struct api_op *op)
{
	op->paused = true;
}
void api_op_resume(struct api_op *op)
{
	op->paused = false;
}
void api_op_cancel(struct api_op *op)
{
	assert(!op->done);
	op->done = true;
	op->a->pending--;
	uv_close((uv_handle_t *)&op->timer, fake_free_handle);
	free(op->path);
	buf_done(&op->in);
}

/* --- images, server, events --- */

static const char *const image_names[] = { "default", "debian:12", NULL };
static const struct image_view the_image = { .digest = "sha256:0", .names = image_names, .size_bytes = 1 << 30, .created_ms = 1767225600000 };

int api_image_list(struct api *a, const struct caller *c, void (*each)(void *, const struct image_view *), void *ctx, struct err *e)
{
	(void)a, (void)c, (void)e;
	each(ctx, &the_image);
	return 0;
}
int api_image_get(struct api *a, const struct caller *c, const char *ref, struct image_view *ret, struct err *e)
{
	(void)a, (void)c;
	*ret = the_image;
	return streq(ref, "default") ? 0 : err_set(e, ERR_NOT_FOUND, ENOENT, "no image %s", ref);
}
int api_image_remove(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	(void)a, (void)c, (void)ref;
	return err_set(e, ERR_DENIED, 0, "only an operator's key may remove images");
}
int api_info(struct api *a, const struct caller *c, struct server_info *ret)
{
	(void)a, (void)c;
	static const struct resources defaults = { 1, 1024, 3072, 100 };
	*ret = (struct server_info){ .version = "1.2.3", .defaults = &defaults };
	return 0;
}
struct subscription *api_subscribe(struct api *a, const struct caller *c, void (*on_event)(void *, const struct event_view *), void *ctx)
{
	(void)c;
	struct subscription *s = xcalloc(1, sizeof(*s));
	*s = (struct subscription){ a->subscriptions, on_event, ctx, a };
	a->subscriptions = s;
	return s;
}
void subscription_free(struct subscription *s)
{
	struct subscription **at = &s->a->subscriptions;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s);
}
