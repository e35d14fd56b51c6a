/* Output of a run on its way into one reply. */
#include "dialect/daytona/internal.h"

#include <errno.h>
#include <stdio.h>

enum { STDOUT = 1, STDERR = 2 };

void collector_init(struct collector *c, bool want_marked)
{
	*c = (struct collector){ .want_marked = want_marked };
	buf_init(&c->out, REPLY_OUTPUT_MAX);
	buf_init(&c->err, REPLY_OUTPUT_MAX);
	buf_init(&c->marked, 2U * REPLY_OUTPUT_MAX);
}

void collector_done(struct collector *c)
{
	buf_done(&c->out);
	buf_done(&c->err);
	buf_done(&c->marked);
}

void collector_add(struct collector *c, int stream, struct str bytes)
{
	struct buf *b = stream == STDERR ? &c->err : &c->out;
	size_t room = b->max - b->len;
	if (bytes.n > room) {
		c->truncated = true;
		bytes.n = room;
	}
	if (bytes.n == 0)
		return;
	buf_add(b, bytes.p, bytes.n);
	if (!c->want_marked)
		return;
	if (c->last != stream)
		buf_add(&c->marked, stream == STDERR ? MARK_STDERR : MARK_STDOUT, 3);
	c->last = stream;
	if (buf_add(&c->marked, bytes.p, bytes.n) < 0)
		c->truncated = true;
}

json_t *collector_text(const struct collector *c, const struct run_view *r)
{
	auto_buf struct buf all;
	buf_init(&all, 2U * REPLY_OUTPUT_MAX + 1024);
	buf_add(&all, c->out.data, c->out.len);
	buf_add(&all, c->err.data, c->err.len);
	/* There is no field for it in this API, and silence would be a lie. */
	if (r && (c->truncated || r->truncated))
		buf_addf(&all, "\n[output cut: %zu of %llu bytes kept]\n", c->out.len + c->err.len, (unsigned long long)r->stdout_bytes + r->stderr_bytes);
	if (r && r->oom)
		buf_addz(&all, "\n[killed: out of memory]\n");
	return text_json(buf_str(&all));
}

void collector_join(struct collector *c)
{
	c->out.max += c->err.max;
	buf_add(&c->out, c->err.data, c->err.len);
}

int collector_read(struct collector *c, struct daytona *d, const struct caller *who, const char *ref, const char *run, struct err *e)
{
	for (int stream = STDOUT; stream <= STDERR; stream++) {
		auto_buf struct buf b;
		buf_init(&b, REPLY_OUTPUT_MAX);
		int rc = api_run_output(d->api, who, ref, run, stream, 0, REPLY_OUTPUT_MAX, &b, e);
		if (rc < 0)
			return rc;
		collector_add(c, stream, buf_str(&b));
	}
	return 0;
}
