/* A run's result with its output in one JSON object.
 *
 * Theory of operation. Output up to SMALL is read and answered at once, with a length. More is never held in memory: it is read
 * twice from where core keeps it, first to find out for each stream whether it is text (SCAN) and how long, then to write it
 * escaped or in base64 (SEND), a piece at a time as the client takes it. What is written is exactly what was scanned, also when
 * the run goes on meanwhile. A sandbox deleted half way cuts the answer: the client sees a broken transfer, never half a result
 * that looks whole. */
#include "dialect/native/native_int.h"

enum { SMALL = 256 << 10, SCAN_PIECE = 1 << 20, SEND_PIECE = 192 << 10 /* a multiple of 3, for base64 */ };

static const char *const stream_names[] = { NULL, "stdout", "stderr" };

struct result {
	struct native *n;
	struct request *r;
	struct run_ref ref;
	struct buf head;  /* the Run, its object left open */
	bool sending;
	int stream;       /* 1, 2; 3 = done */
	uint64_t offset;  /* of the next byte to read */
	uint64_t end[3];  /* scanned length */
	bool text[3];
	struct buf piece; /* SCAN: begins with what the last piece left unfinished */
	struct buf out;
};

static void encode_small(struct jout *j, struct buf *bytes)
{
	for (int s = 1; s <= 2; s++)
		jout_text(j, stream_names[s], buf_str(&bytes[s]));
}

static int read_small(struct native *n, const struct run_ref *ref, struct buf *bytes, struct err *e)
{
	for (int s = 1; s <= 2; s++) {
		size_t before;
		do { /* pieces may be shorter than asked for where one kind of storage ends */
			before = bytes[s].len;
			int rc = api_run_output(n->api, &ref->caller, ref->sandbox, ref->run, s, before, SMALL - before, &bytes[s], e);
			if (rc < 0)
				return rc;
		} while (bytes[s].len > before && bytes[s].len < SMALL);
	}
	return 0;
}

static void answer_small(struct native *n, struct request *r, const struct run_ref *ref, const struct run_view *v)
{
	struct buf bytes[3];
	struct err e;
	auto_buf struct buf b;
	buf_init(&b, JSON_REPLY_MAX);
	for (int s = 0; s < 3; s++)
		buf_init(&bytes[s], SMALL);
	struct jout j = { .b = &b };
	jout_object(&j, NULL);
	encode_run_fields(&j, v); /* first: reading output may touch what the view points to */
	if (read_small(n, ref, bytes, &e) < 0) {
		answer_err(n, r, &e);
	} else {
		encode_small(&j, bytes);
		jout_end_object(&j);
		answer_json(n, r, 200, &b);
	}
	for (int s = 0; s < 3; s++)
		buf_done(&bytes[s]);
}

/* --- large --- */

static void result_free(void *ctx)
{
	struct result *p = ctx;
	run_ref_done(&p->ref);
	buf_done(&p->head);
	buf_done(&p->piece);
	buf_done(&p->out);
	free(p);
}

/* Appends what there is at offset, at most max and not beyond end. */
static int read_piece(struct result *p, uint64_t end, size_t max, struct err *e)
{
	if (end - p->offset < max)
		max = (size_t)(end - p->offset);
	return max ? api_run_output(p->n->api, &p->ref.caller, p->ref.sandbox, p->ref.run, p->stream, p->offset, max, &p->piece, e) : 0;
}

static void begin(struct result *p)
{
	answer_begin(p->n, p->r, NULL, 0, "application/json");
	req_write(p->r, buf_str(&p->head));
	p->sending = true;
}

static enum pump_step scan(struct result *p)
{
	struct err e;
	size_t carried = p->piece.len;
	if (read_piece(p, p->end[p->stream], SCAN_PIECE, &e) < 0) {
		answer_err(p->n, p->r, &e);
		return PUMP_END;
	}
	p->offset += p->piece.len - carried;
	bool last = p->piece.len == carried;
	if (p->text[p->stream]) {
		size_t rest = last ? 0 : utf8_unfinished(buf_str(&p->piece));
		p->text[p->stream] = utf8_valid((struct str){ p->piece.data, p->piece.len - rest });
		buf_consume(&p->piece, p->piece.len - rest);
	} else {
		buf_consume(&p->piece, p->piece.len);
	}
	if (!last)
		return PUMP_MORE;
	p->end[p->stream] = p->offset;
	p->offset = 0;
	if (++p->stream > 2) {
		p->stream = 1;
		begin(p);
	}
	return PUMP_MORE;
}

static void add_base64(struct buf *out, struct str s)
{
	size_t n = 4 * ((s.n + 2) / 3);
	char *to = buf_reserve(out, n);
	if (to) {
		base64_encode(s.p, s.n, to);
		buf_grew(out, n);
	}
}

static enum pump_step send_piece(struct result *p)
{
	struct err e;
	bool text = p->text[p->stream];
	uint64_t end = p->end[p->stream];
	buf_consume(&p->out, p->out.len);
	if (p->offset == 0)
		buf_addf(&p->out, ",\"%s%s\":\"", stream_names[p->stream], text ? "" : "_base64");
	if (read_piece(p, end, SEND_PIECE, &e) < 0)
		goto cut;
	size_t n = p->piece.len;
	if (!text && p->offset + n < end)
		n -= n % 3;
	if (n == 0 && p->offset < end)
		goto cut; /* what was there is there no more */
	struct str s = { p->piece.data, n };
	if (text)
		json_escape(&p->out, s);
	else
		add_base64(&p->out, s);
	p->offset += n;
	buf_consume(&p->piece, p->piece.len);
	if (p->offset == end) {
		buf_addz(&p->out, p->stream == 2 ? "\"}" : "\"");
		p->stream++;
		p->offset = 0;
	}
	req_write(p->r, buf_str(&p->out));
	if (p->stream <= 2)
		return PUMP_MORE;
	req_end(p->r);
	return PUMP_END;
cut:
	req_abort(p->r);
	return PUMP_END;
}

static enum pump_step step(void *ctx)
{
	struct result *p = ctx;
	return p->sending ? send_piece(p) : scan(p);
}

void answer_result(struct native *n, struct request *r, const struct run_ref *ref, const struct run_view *v)
{
	static const struct pump_ops ops = { step, result_free };
	if (v->stdout_bytes < SMALL && v->stderr_bytes < SMALL) {
		answer_small(n, r, ref, v);
		return;
	}
	struct result *p = xcalloc(1, sizeof *p);
	*p = (struct result){
		.n = n,
		.r = r,
		.ref = { ref->caller, xstrdup(ref->sandbox), xstrdup(ref->run) },
		.stream = 1,
		.end = { 0, v->stdout_bytes, v->stderr_bytes },
		.text = { false, true, true },
	};
	buf_init(&p->head, JSON_REPLY_MAX);
	buf_init(&p->piece, SCAN_PIECE + 16);
	buf_init(&p->out, (size_t)SEND_PIECE * 6 + 64); /* a control byte becomes six */
	struct jout j = { .b = &p->head };
	jout_object(&j, NULL);
	encode_run_fields(&j, v);
	pump_start(n, r, &ops, p);
}
