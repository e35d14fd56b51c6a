/* Theory of operation.
 *
 * The head is gathered line by line into head->bytes_. Each byte is judged when it comes (controls, bare CR, bare LF), each
 * line when its LF comes, the message when the empty line comes; limits count bytes, not reads. So the verdict on a stream
 * is the same whole, in pieces or byte by byte, and a malformed head is refused at once instead of at a deadline.
 *
 *   FIRST -> FIELDS -> (HEAD) -> LENGTH | EOF | CHUNK_LINE -> CHUNK_DATA -> CHUNK_END -> CHUNK_LINE ... -> TRAILERS
 *                                   \____________________________________________________________________/-> COMPLETE -> DONE
 *
 * Views into bytes_ are made only when the head is complete, because the buffer moves while it grows. */
#include "wire/http.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

enum state { FIRST, FIELDS, LENGTH, EOF_BODY, CHUNK_LINE, CHUNK_DATA, CHUNK_END, TRAILERS, COMPLETE, DONE, FAILED };

enum { FIRST_LINE_ROOM = HTTP_MAX_METHOD + sizeof " HTTP/1.1 \r\n", MAX_BLANK_LINES = 2, MAX_CHUNK_DIGITS = 15, MAX_LENGTH_DIGITS = 18 };

static const bool token_chars[256] = {
	['0' ... '9'] = true, ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['!'] = true, ['#'] = true, ['$'] = true,
	['%'] = true,	      ['&'] = true,	    ['\''] = true,	  ['*'] = true, ['+'] = true, ['-'] = true,
	['.'] = true,	      ['^'] = true,	    ['_'] = true,	  ['`'] = true, ['|'] = true, ['~'] = true,
};
/* What a host name, a port or an address literal is made of. No '@': user names in an authority only ever deceive. */
static const bool host_chars[256] = {
	['0' ... '9'] = true, ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['-'] = true, ['.'] = true,
	['_'] = true,	      ['~'] = true,	    [':'] = true,	  ['['] = true, [']'] = true,
};

static bool all_of(struct str s, const bool set[256])
{
	for (size_t i = 0; i < s.n; i++)
		if (!set[(unsigned char)s.p[i]])
			return false;
	return true;
}

bool http_is_token(struct str s)
{
	return s.n > 0 && all_of(s, token_chars);
}

bool http_value_ok(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return false;
	}
	return true;
}

struct str http_trim(struct str s)
{
	while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
		s.p++, s.n--;
	while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
		s.n--;
	return s;
}

void http_init(struct http_parser *p, enum http_kind kind)
{
	*p = (struct http_parser){ .kind = kind, .state_ = FIRST };
	buf_init(&p->line_, HTTP_MAX_HEAD);
}

void http_head_free(struct http_head *h)
{
	if (!h)
		return;
	buf_done(&h->bytes_);
	free(h->fields);
	free(h);
}

void http_done(struct http_parser *p)
{
	http_head_free(take_ptr(&p->head));
	buf_done(&p->line_);
	p->state_ = DONE;
}

void http_next(struct http_parser *p)
{
	enum http_kind kind = p->kind;

	http_done(p);
	http_init(p, kind);
}

bool http_is_idle(const struct http_parser *p)
{
	return p->state_ == FIRST && !p->head;
}

static enum http_event fail(struct http_parser *p, int status, const char *why)
{
	p->state_ = FAILED;
	p->error_status = status;
	p->error = why;
	return HTTP_ERROR;
}

/* Moves the bytes of one line from *in to `to`, whose length may reach `limit`: 1 when its CRLF has come, 0 when more is
 * needed, -1 when refused (p has failed). */
static int take_line(struct http_parser *p, struct str *in, struct buf *to, size_t limit, int over_status, const char *over)
{
	size_t room = limit - to->len, n = MIN(in->n, room), i;

	for (i = 0; i < n; i++) {
		unsigned char c = (unsigned char)in->p[i];
		if (p->cr_) {
			if (c != '\n')
				return fail(p, 400, "carriage return without line feed"), -1;
			p->cr_ = false;
			buf_add(to, in->p, i + 1);
			in->p += i + 1;
			in->n -= i + 1;
			return 1;
		}
		if (c == '\r')
			p->cr_ = true;
		else if (c == '\n')
			return fail(p, 400, "line feed without carriage return"), -1;
		else if ((c < 0x20 && c != '\t') || c == 0x7f)
			return fail(p, 400, "control byte in the head"), -1;
	}
	if (n == room)
		return fail(p, over_status, over), -1;
	buf_add(to, in->p, n);
	in->p += n;
	in->n -= n;
	return 0;
}

/* The line that starts at `at`, without its CRLF. */
static struct str line_at(const struct buf *b, size_t at)
{
	return (struct str){ b->data + at, b->len - at - 2 };
}

static bool cut(struct str *rest, char at, struct str *ret_front)
{
	const char *q = rest->n ? memchr(rest->p, at, rest->n) : NULL;

	if (!q)
		return false;
	*ret_front = (struct str){ rest->p, (size_t)(q - rest->p) };
	rest->n -= ret_front->n + 1;
	rest->p = q + 1;
	return true;
}

static int parse_version(struct str v)
{
	static const bool digits[256] = { ['0' ... '9'] = true };

	if (v.n != 8 || memcmp(v.p, "HTTP/", 5) != 0 || v.p[6] != '.' || !digits[(unsigned char)v.p[5]] || !digits[(unsigned char)v.p[7]])
		return -EINVAL;
	if (v.p[5] != '1' || v.p[7] > '1')
		return -EPROTONOSUPPORT;
	return v.p[7] - '0';
}

/* Checks the request line and keeps what has no pointer into it. */
static int check_request_line(struct http_parser *p, struct str line)
{
	struct str method, target;
	struct http_head *h = p->head;

	if (!cut(&line, ' ', &method) || !cut(&line, ' ', &target))
		return fail(p, 400, "request line is not METHOD TARGET VERSION"), -1;
	if (method.n == 0 || method.n > HTTP_MAX_METHOD)
		return fail(p, 400, "method is not a known one"), -1;
	for (size_t i = 0; i < method.n; i++)
		if ((method.p[i] < 'A' || method.p[i] > 'Z') && method.p[i] != '-')
			return fail(p, 400, "method is not in upper-case letters"), -1;
	if (target.n > HTTP_MAX_TARGET)
		return fail(p, 414, "request target is longer than 8192 bytes"), -1;
	for (size_t i = 0; i < target.n; i++) {
		unsigned char c = (unsigned char)target.p[i];
		if (c <= 0x20 || c >= 0x7f || c == '#')
			return fail(p, 400, "request target holds a byte that must be percent-encoded"), -1;
	}
	int minor = parse_version(line);
	if (minor == -EPROTONOSUPPORT)
		return fail(p, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here"), -1;
	if (minor < 0)
		return fail(p, 400, "request line does not end in HTTP/1.1"), -1;
	h->minor = minor;
	memcpy(h->method, method.p, method.n);
	return 0;
}

static int check_status_line(struct http_parser *p, struct str line)
{
	struct str version, code;
	uint64_t status;
	struct http_head *h = p->head;

	if (!cut(&line, ' ', &version))
		return fail(p, 502, "status line has no status"), -1;
	int minor = parse_version(version);
	if (minor < 0)
		return fail(p, 502, "status line does not begin with HTTP/1.1 or HTTP/1.0"), -1;
	if (!cut(&line, ' ', &code)) {
		code = line;
		line = (struct str){ line.p + line.n, 0 };
	}
	if (code.n != 3 || parse_u64(code, 599, &status) < 0 || status < 100)
		return fail(p, 502, "status is not a number from 100 to 599"), -1;
	h->minor = minor;
	h->status = (int)status;
	return 0;
}

static int check_field(struct http_parser *p, struct str line)
{
	struct str name;

	if (line.p[0] == ' ' || line.p[0] == '\t')
		return fail(p, 400, "folded header line"), -1;
	if (!cut(&line, ':', &name))
		return fail(p, 400, "header line without a colon"), -1;
	if (!http_is_token(name))
		return fail(p, 400, "header name is not a token"), -1;
	if (++p->n_fields_ > HTTP_MAX_FIELDS)
		return fail(p, 431, "more than 100 header fields"), -1;
	return 0;
}

/* --- what the complete head means --- */

static void set_views(struct http_parser *p)
{
	struct http_head *h = p->head;
	struct str rest = buf_str(&h->bytes_), line, name;

	cut(&rest, '\n', &line);
	line.n--;
	if (p->kind == HTTP_REQUEST) {
		cut(&line, ' ', &name);
		cut(&line, ' ', &h->target);
	} else {
		cut(&line, ' ', &name);
		if (cut(&line, ' ', &name))
			h->reason = line;
	}
	h->fields = p->n_fields_ ? xcalloc(p->n_fields_, sizeof *h->fields) : NULL;
	while (h->n_fields < p->n_fields_ && cut(&rest, '\n', &line)) {
		line.n--;
		cut(&line, ':', &name);
		h->fields[h->n_fields++] = (struct http_field){ name, http_trim(line) };
	}
}

struct str http_get(const struct http_head *h, const char *name)
{
	struct str want = str_of(name);

	for (size_t i = 0; i < h->n_fields; i++)
		if (str_eq_nocase(h->fields[i].name, want))
			return h->fields[i].value;
	return (struct str){ NULL, 0 };
}

static size_t count_fields(const struct http_head *h, const char *name)
{
	struct str want = str_of(name);
	size_t n = 0;

	for (size_t i = 0; i < h->n_fields; i++)
		n += str_eq_nocase(h->fields[i].name, want);
	return n;
}

bool http_list_next(struct str *rest, struct str *ret_item)
{
	while (rest->n) {
		struct str item;
		if (!cut(rest, ',', &item)) {
			item = *rest;
			*rest = (struct str){ rest->p + rest->n, 0 };
		}
		item = http_trim(item);
		if (item.n) {
			*ret_item = item;
			return true;
		}
	}
	return false;
}

bool http_list_has(const struct http_head *h, const char *name, const char *token)
{
	struct str want = str_of(name), item;

	for (size_t i = 0; i < h->n_fields; i++) {
		if (!str_eq_nocase(h->fields[i].name, want))
			continue;
		struct str rest = h->fields[i].value;
		while (http_list_next(&rest, &item))
			if (str_eq_nocase(item, str_of(token)))
				return true;
	}
	return false;
}

/* Sets length from Content-Length and Transfer-Encoding; `otherwise` when there is neither. */
static int read_framing(struct http_parser *p, int64_t otherwise)
{
	struct http_head *h = p->head;
	size_t n_length = count_fields(h, "Content-Length"), n_coding = count_fields(h, "Transfer-Encoding");
	uint64_t length;

	if (n_length && n_coding)
		return fail(p, 400, "Content-Length together with Transfer-Encoding"), -1;
	if (n_length > 1)
		return fail(p, 400, "more than one Content-Length"), -1;
	if (n_coding > 1)
		return fail(p, 400, "more than one Transfer-Encoding"), -1;
	if (n_coding) {
		if (h->minor == 0)
			return fail(p, 400, "Transfer-Encoding in HTTP/1.0"), -1;
		if (!str_eq_nocase(http_get(h, "Transfer-Encoding"), STR("chunked")))
			return fail(p, 501, "Transfer-Encoding other than chunked"), -1;
		h->length = HTTP_CHUNKED;
		return 0;
	}
	h->length = otherwise;
	if (n_length) {
		struct str v = http_get(h, "Content-Length");
		if (v.n > MAX_LENGTH_DIGITS || parse_u64(v, INT64_MAX, &length) < 0)
			return fail(p, 400, "Content-Length is not a number"), -1;
		h->length = (int64_t)length;
	}
	return 0;
}

static int split_target(struct http_parser *p)
{
	struct http_head *h = p->head;
	struct str rest = h->target;
	bool absolute = false;

	if (str_eq(rest, STR("*"))) {
		if (strcmp(h->method, "OPTIONS") != 0)
			return fail(p, 400, "target * is for OPTIONS only"), -1;
		h->path = rest;
		return 0;
	}
	for (int i = 0; i < 2 && !absolute; i++) {
		struct str scheme = i ? STR("https://") : STR("http://");
		if (rest.n >= scheme.n && strncasecmp(rest.p, scheme.p, scheme.n) == 0) {
			absolute = true;
			rest.p += scheme.n;
			rest.n -= scheme.n;
		}
	}
	if (absolute) {
		size_t n = 0;
		while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
			n++;
		h->host = (struct str){ rest.p, n };
		if (n == 0 || !all_of(h->host, host_chars))
			return fail(p, 400, "authority of the request target is malformed"), -1;
		rest.p += n;
		rest.n -= n;
	} else if (rest.n == 0 || rest.p[0] != '/') {
		return fail(p, 400, streq(h->method, "CONNECT") ? "method CONNECT is not carried here" : "request target does not begin with /"), -1;
	}
	h->path = rest;
	if (cut(&rest, '?', &h->path))
		h->query = rest;
	if (h->path.n == 0)
		h->path = STR("/");
	return 0;
}

static int finish_request(struct http_parser *p)
{
	struct http_head *h = p->head;
	size_t n_host = count_fields(h, "Host");
	struct str host = http_get(h, "Host");

	if (n_host > 1 || (n_host == 0 && h->minor == 1))
		return fail(p, 400, n_host ? "more than one Host" : "no Host"), -1;
	if (!all_of(host, host_chars))
		return fail(p, 400, "Host is malformed"), -1;
	if (split_target(p) < 0 || read_framing(p, 0) < 0)
		return -1;
	if (!h->host.p)
		h->host = host;
	struct str expect = http_get(h, "Expect");
	if (expect.p && h->minor == 1) {
		if (!str_eq_nocase(expect, STR("100-continue")) || count_fields(h, "Expect") > 1)
			return fail(p, 417, "Expect other than 100-continue"), -1;
		h->expect_continue = h->length != 0;
	}
	return 0;
}

static int finish_response(struct http_parser *p)
{
	struct http_head *h = p->head;

	if (read_framing(p, HTTP_UNTIL_EOF) < 0)
		return -1;
	/* These have no body whatever their fields say (RFC 9112, 6.3); HEAD keeps the length that GET would have. */
	if (h->status < 200 || h->status == 204 || h->status == 304)
		h->length = 0;
	return 0;
}

static enum http_event finish_head(struct http_parser *p)
{
	struct http_head *h = p->head;

	set_views(p);
	if ((p->kind == HTTP_REQUEST ? finish_request(p) : finish_response(p)) < 0)
		return HTTP_ERROR;
	bool close = http_list_has(h, "Connection", "close");
	h->keep_alive = !close && (h->minor == 1 || http_list_has(h, "Connection", "keep-alive"));
	if (h->length == 0 || p->answers_head)
		p->state_ = COMPLETE;
	else if (h->length == HTTP_CHUNKED)
		p->state_ = CHUNK_LINE;
	else if (h->length == HTTP_UNTIL_EOF)
		p->state_ = EOF_BODY;
	else {
		p->state_ = LENGTH;
		p->left_ = (uint64_t)h->length;
	}
	return HTTP_HEAD;
}

/* --- steps: each returns HTTP_MORE with p->state_ changed to go on, or with *in empty to wait --- */

static enum http_event feed_first(struct http_parser *p, struct str *in)
{
	bool request = p->kind == HTTP_REQUEST;

	if (in->n == 0)
		return HTTP_MORE;
	if (!p->head) {
		p->head = xcalloc(1, sizeof *p->head);
		buf_init(&p->head->bytes_, HTTP_MAX_HEAD);
	}
	struct buf *b = &p->head->bytes_;
	if (take_line(p, in, b, HTTP_MAX_TARGET + FIRST_LINE_ROOM, request ? 414 : 502, "first line is too long") <= 0)
		return p->state_ == FAILED ? HTTP_ERROR : HTTP_MORE;
	if (b->len == 2) { /* some clients send an empty line after a body */
		if (!request || ++p->blank_lines_ > MAX_BLANK_LINES)
			return fail(p, 400, "empty lines before the message");
		http_head_free(take_ptr(&p->head)); /* as idle as before: the connection keeps its long deadline */
		return HTTP_MORE;
	}
	if ((request ? check_request_line(p, line_at(b, 0)) : check_status_line(p, line_at(b, 0))) < 0)
		return HTTP_ERROR;
	p->state_ = FIELDS;
	p->left_ = b->len; /* where the current line starts */
	return HTTP_MORE;
}

static enum http_event feed_fields(struct http_parser *p, struct str *in)
{
	struct buf *b = &p->head->bytes_;

	if (in->n == 0)
		return HTTP_MORE;
	if (take_line(p, in, b, HTTP_MAX_HEAD, 431, "head is longer than 32768 bytes") <= 0)
		return p->state_ == FAILED ? HTTP_ERROR : HTTP_MORE;
	struct str line = line_at(b, (size_t)p->left_);
	if (line.n == 0)
		return finish_head(p);
	if (check_field(p, line) < 0)
		return HTTP_ERROR;
	p->left_ = b->len;
	return HTTP_MORE;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static enum http_event feed_chunk_line(struct http_parser *p, struct str *in)
{
	if (in->n == 0)
		return HTTP_MORE;
	if (take_line(p, in, &p->line_, HTTP_MAX_CHUNK_LINE, 400, "chunk line is longer than 1024 bytes") <= 0)
		return p->state_ == FAILED ? HTTP_ERROR : HTTP_MORE;
	struct str line = line_at(&p->line_, 0);
	uint64_t size = 0;
	size_t i = 0;
	for (; i < line.n && hex_digit(line.p[i]) >= 0; i++) {
		if (i == MAX_CHUNK_DIGITS)
			return fail(p, 400, "chunk size has more than 15 digits");
		size = size << 4 | (uint64_t)hex_digit(line.p[i]);
	}
	if (i == 0 || (i < line.n && line.p[i] != ';'))
		return fail(p, 400, "chunk size is not hexadecimal digits");
	buf_reset(&p->line_);
	p->left_ = size;
	p->state_ = size ? CHUNK_DATA : TRAILERS;
	p->n_fields_ = 0;
	return HTTP_MORE;
}

static enum http_event feed_chunk_end(struct http_parser *p, struct str *in)
{
	for (; in->n; in->p++, in->n--) {
		if (in->p[0] != (p->cr_ ? '\n' : '\r'))
			return fail(p, 400, "chunk does not end in an empty line");
		if (p->cr_) {
			in->p++, in->n--;
			p->cr_ = false;
			p->state_ = CHUNK_LINE;
			break;
		}
		p->cr_ = true;
	}
	return HTTP_MORE;
}

static enum http_event feed_trailers(struct http_parser *p, struct str *in)
{
	if (in->n == 0)
		return HTTP_MORE;
	if (take_line(p, in, &p->line_, HTTP_MAX_TRAILERS - p->trailer_bytes_, 431, "trailers are longer than 32768 bytes") <= 0)
		return p->state_ == FAILED ? HTTP_ERROR : HTTP_MORE;
	struct str line = line_at(&p->line_, 0);
	p->trailer_bytes_ += p->line_.len;
	if (line.n && check_field(p, line) < 0)
		return HTTP_ERROR;
	if (line.n == 0)
		p->state_ = COMPLETE;
	buf_reset(&p->line_);
	return HTTP_MORE;
}

static enum http_event feed_body(struct http_parser *p, struct str *in, struct str *ret_body)
{
	size_t n = in->n;

	if (n == 0)
		return HTTP_MORE;
	if (p->state_ != EOF_BODY) {
		n = (size_t)MIN((uint64_t)n, p->left_);
		p->left_ -= n;
		if (p->left_ == 0)
			p->state_ = p->state_ == LENGTH ? COMPLETE : CHUNK_END;
	}
	*ret_body = (struct str){ in->p, n };
	in->p += n;
	in->n -= n;
	return HTTP_BODY;
}

static enum http_event step(struct http_parser *p, struct str *in, struct str *ret_body)
{
	switch ((enum state)p->state_) {
	case FIRST:
		return feed_first(p, in);
	case FIELDS:
		return feed_fields(p, in);
	case LENGTH:
	case EOF_BODY:
	case CHUNK_DATA:
		return feed_body(p, in, ret_body);
	case CHUNK_LINE:
		return feed_chunk_line(p, in);
	case CHUNK_END:
		return feed_chunk_end(p, in);
	case TRAILERS:
		return feed_trailers(p, in);
	case COMPLETE:
		p->state_ = DONE;
		return HTTP_END;
	case DONE:
		return HTTP_MORE;
	case FAILED:
		break;
	}
	return HTTP_ERROR;
}

enum http_event http_feed(struct http_parser *p, struct str *in, struct str *ret_body)
{
	enum http_event e;

	do
		e = step(p, in, ret_body);
	while (e == HTTP_MORE && p->state_ != DONE && (in->n || p->state_ == COMPLETE));
	return e;
}

enum http_event http_eof(struct http_parser *p)
{
	if (http_is_idle(p) || p->state_ == DONE)
		return HTTP_MORE;
	if (p->state_ == EOF_BODY || p->state_ == COMPLETE) {
		p->state_ = DONE;
		return HTTP_END;
	}
	if (p->state_ != FAILED)
		fail(p, p->kind == HTTP_REQUEST ? 400 : 502, "the message ends early");
	return HTTP_ERROR;
}

const char *http_reason(int status)
{
	static const struct {
		int status;
		const char *text;
	} reasons[] = {
		{ 100, "Continue" },
		{ 101, "Switching Protocols" },
		{ 200, "OK" },
		{ 201, "Created" },
		{ 202, "Accepted" },
		{ 204, "No Content" },
		{ 206, "Partial Content" },
		{ 301, "Moved Permanently" },
		{ 302, "Found" },
		{ 303, "See Other" },
		{ 304, "Not Modified" },
		{ 307, "Temporary Redirect" },
		{ 308, "Permanent Redirect" },
		{ 400, "Bad Request" },
		{ 401, "Unauthorized" },
		{ 402, "Payment Required" },
		{ 403, "Forbidden" },
		{ 404, "Not Found" },
		{ 405, "Method Not Allowed" },
		{ 406, "Not Acceptable" },
		{ 408, "Request Timeout" },
		{ 409, "Conflict" },
		{ 410, "Gone" },
		{ 411, "Length Required" },
		{ 412, "Precondition Failed" },
		{ 413, "Content Too Large" },
		{ 414, "URI Too Long" },
		{ 415, "Unsupported Media Type" },
		{ 416, "Range Not Satisfiable" },
		{ 417, "Expectation Failed" },
		{ 421, "Misdirected Request" },
		{ 422, "Unprocessable Content" },
		{ 423, "Locked" },
		{ 424, "Failed Dependency" },
		{ 426, "Upgrade Required" },
		{ 429, "Too Many Requests" },
		{ 431, "Request Header Fields Too Large" },
		{ 500, "Internal Server Error" },
		{ 501, "Not Implemented" },
		{ 502, "Bad Gateway" },
		{ 503, "Service Unavailable" },
		{ 504, "Gateway Timeout" },
		{ 505, "HTTP Version Not Supported" },
		{ 507, "Insufficient Storage" },
	};

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
		if (reasons[i].status == status)
			return reasons[i].text;
	return "Unknown";
}
