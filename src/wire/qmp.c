#include "wire/qmp.h"

#include <errno.h>

struct qmp_call_ {
	struct qmp_call_ *next;
	uint64_t id;
	char *line;      /* NULL once it is sent */
	size_t len, sent;
	int fd;
	qmp_done_fn done;
	void *ctx;
};

static void free_call(struct qmp_call_ *c)
{
	close_fd(c->fd);
	free(c->line);
	free(c);
}

static struct qmp_call_ *take_first(struct qmp *q)
{
	struct qmp_call_ *c = q->calls_;

	q->calls_ = c->next;
	if (!q->calls_)
		q->calls_tail_ = &q->calls_;
	return c;
}

void qmp_init(struct qmp *q, qmp_event_fn on_event, void *ctx)
{
	*q = (struct qmp){ .on_event = on_event, .ctx = ctx };
	buf_init(&q->in_, QMP_LINE_MAX);
	q->calls_tail_ = &q->calls_;
}

void qmp_done(struct qmp *q)
{
	while (q->calls_)
		free_call(take_first(q));
	buf_done(&q->in_);
	q->state = QMP_ENDED;
}

static void tell(struct qmp_call_ *c, const struct err *e, const json_t *result)
{
	if (c->done)
		c->done(c->ctx, e, result);
	free_call(c);
}

/* --- commands --- */

/* `{"execute": ..., "id": ...}` and a line's end, or NULL when it is longer than a command may be. */
static char *line_of(const char *command, json_t *arguments, uint64_t id, size_t *ret_len)
{
	json_t *o = json_pack("{s:s, s:I}", "execute", command, "id", (json_int_t)id);

	if (!o)
		abort(); /* the name of a command is ours, and ASCII */
	if (arguments)
		json_object_set_new(o, "arguments", arguments);
	char *text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(o);
	size_t n = text ? strlen(text) : QMP_SEND_MAX;
	if (n >= QMP_SEND_MAX) {
		free(text);
		return NULL;
	}
	char *line = xmalloc(n + 1);
	memcpy(line, text, n);
	line[n] = '\n';
	free(text);
	*ret_len = n + 1;
	return line;
}

static struct qmp_call_ *new_call(struct qmp *q, const char *command, json_t *arguments, int fd)
{
	struct qmp_call_ *c = xcalloc(1, sizeof *c);

	c->id = ++q->serial_;
	c->fd = fd;
	c->line = line_of(command, arguments, c->id, &c->len);
	return c;
}

void qmp_call(struct qmp *q, const char *command, json_t *arguments, int fd, qmp_done_fn done, void *ctx)
{
	struct qmp_call_ *c = new_call(q, command, arguments, fd);
	struct err e;

	c->done = done;
	c->ctx = ctx;
	if (q->state == QMP_ENDED) {
		tell(c, &q->ended, NULL);
	} else if (!c->line) {
		(void)err_set(&e, ERR_INVALID, E2BIG, "a command for QEMU is longer than %d bytes, or no text", QMP_SEND_MAX);
		tell(c, &e, NULL);
	} else {
		*q->calls_tail_ = c;
		q->calls_tail_ = &c->next;
	}
}

static struct qmp_call_ *first_unsent(struct qmp *q)
{
	struct qmp_call_ *c = q->calls_;

	if (q->state == QMP_NEGOTIATING) /* only the handshake, which is the first */
		return c && c->line ? c : NULL;
	while (c && !c->line)
		c = c->next;
	return q->state == QMP_OPEN ? c : NULL;
}

bool qmp_to_send(struct qmp *q, struct str *ret_bytes, int *ret_fd)
{
	struct qmp_call_ *c = first_unsent(q);

	if (!c)
		return false;
	*ret_bytes = (struct str){ c->line + c->sent, c->len - c->sent };
	*ret_fd = c->fd;
	return true;
}

void qmp_sent(struct qmp *q, size_t n)
{
	struct qmp_call_ *c = first_unsent(q);

	if (!c || n == 0)
		return;
	c->fd = close_fd(c->fd);
	c->sent += MIN(n, c->len - c->sent);
	if (c->sent < c->len)
		return;
	free(c->line);
	c->line = NULL;
}

/* --- the end --- */

void qmp_end(struct qmp *q, const struct err *why)
{
	if (q->state == QMP_ENDED)
		return;
	q->state = QMP_ENDED;
	q->ended = *why;
	buf_done(&q->in_);
	while (q->calls_)
		tell(take_first(q), &q->ended, NULL);
}

static int violation(struct qmp *q, const char *what, struct str line)
{
	struct err e;

	(void)err_set(&e, ERR_UNAVAILABLE, EPROTO, "QEMU breaks its protocol (%s): %s", what, str_quote(line, &(struct quoted){ 0 }));
	qmp_end(q, &e);
	return -EPROTO;
}

/* --- lines from QEMU --- */

static void on_negotiated(void *ctx, const struct err *e, const json_t *result)
{
	struct qmp *q = ctx;

	(void)result;
	if (!e)
		q->state = QMP_OPEN;
	else if (q->state != QMP_ENDED)
		qmp_end(q, e);
}

static int take_greeting(struct qmp *q, const json_t *hello, struct str line)
{
	json_int_t v[3] = { -1, -1, -1 };

	if (!json_is_object(hello) || json_unpack((json_t *)(uintptr_t)hello, "{s:{s:{s:I,s:I,s:I}}}", "version", "qemu", "major", &v[0], "minor",
						  &v[1], "micro", &v[2]) < 0)
		return violation(q, "no greeting", line);
	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		if (v[i] < 0 || v[i] > 1000000)
			return violation(q, "an impossible version", line);
		q->version[i] = (unsigned)v[i];
	}
	/* ahead of what has been asked for meanwhile, and with a number of its own: answers are told apart by it */
	struct qmp_call_ *c = new_call(q, "qmp_capabilities", NULL, -EBADF);
	c->done = on_negotiated;
	c->ctx = q;
	c->next = q->calls_;
	if (!q->calls_)
		q->calls_tail_ = &c->next;
	q->calls_ = c;
	q->state = QMP_NEGOTIATING;
	return 0;
}

static void fill_error(struct err *e, const json_t *error)
{
	const char *class = json_string_value(json_object_get(error, "class"));
	const char *desc = json_string_value(json_object_get(error, "desc"));
	bool unknown = streq(class, "CommandNotFound") || streq(class, "DeviceNotFound");
	char text[300];
	size_t n = 0;

	for (const char *p = desc ? desc : "it does not say why"; *p && n < sizeof text - 1; p++)
		text[n++] = *p >= ' ' && *p <= '~' ? *p : '?';
	text[n] = '\0';
	(void)err_set(e, ERR_UNAVAILABLE, unknown ? ENOENT : EIO, "QEMU refuses: %s", text);
}

static int take_answer(struct qmp *q, const json_t *o, struct str line)
{
	const json_t *id = json_object_get(o, "id"), *result = json_object_get(o, "return"), *error = json_object_get(o, "error");
	struct qmp_call_ *c = q->calls_;
	struct err e;

	if (!result == !error || (error && !json_is_object(error)))
		return violation(q, "neither answer nor event", line);
	if (!c || c->line || !json_is_integer(id) || json_integer_value(id) != (json_int_t)c->id)
		return violation(q, "an answer to nothing", line);
	(void)take_first(q);
	if (error)
		fill_error(&e, error);
	tell(c, error ? &e : NULL, error ? NULL : result);
	return q->state == QMP_ENDED ? -EPROTO : 0;
}

static int take_event(struct qmp *q, const char *name, const json_t *o, struct str line)
{
	const json_t *data = json_object_get(o, "data");

	if (!name || !name[0] || (data && !json_is_object(data)))
		return violation(q, "a broken event", line);
	json_t *none = data ? NULL : json_object();
	if (q->on_event)
		q->on_event(q->ctx, name, data ? data : none);
	json_decref(none);
	return q->state == QMP_ENDED ? -EPROTO : 0;
}

static int take_line(struct qmp *q, struct str line)
{
	json_t *o = json_loadb(line.p, line.n, JSON_REJECT_DUPLICATES, NULL);
	const json_t *event = json_object_get(o, "event");
	int r;

	if (!json_is_object(o))
		r = violation(q, "not an object", line);
	else if (q->state == QMP_GREETING)
		r = take_greeting(q, json_object_get(o, "QMP"), line);
	else if (event)
		r = take_event(q, json_string_value(event), o, line);
	else
		r = take_answer(q, o, line);
	json_decref(o);
	return r;
}

int qmp_feed(struct qmp *q, struct str bytes)
{
	while (bytes.n) {
		if (q->state == QMP_ENDED)
			return -EPROTO;
		const char *end = memchr(bytes.p, '\n', bytes.n);
		size_t n = end ? (size_t)(end - bytes.p) + 1 : bytes.n;
		if (buf_add(&q->in_, bytes.p, n) < 0)
			return violation(q, "an endless line", bytes);
		bytes.p += n;
		bytes.n -= n;
		if (!end)
			break;
		/* out of the way, since a callback may end everything */
		size_t len = q->in_.len;
		auto_free char *line = buf_take(&q->in_);
		while (len && (line[len - 1] == '\n' || line[len - 1] == '\r'))
			len--;
		int r = len ? take_line(q, (struct str){ line, len }) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}
