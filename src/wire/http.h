/* HTTP/1.1 messages: a strict incremental parser for both directions. Pure: bytes in, events out; no I/O, no clock.
 *
 * http_feed() takes bytes from the front of *in and returns one event at a time, so a caller pauses by not calling. What it
 * refuses does not depend on how the bytes were split. Lines end in CRLF and nothing is repaired: whatever two programs
 * could read in two ways is an error (the list is in docs/internals/http.md). Trailers are checked and dropped.
 *
 * One parser reads one message; http_next() begins the following one. After HTTP_ERROR the bytes that follow have no known
 * meaning: answer and close. */
#ifndef CAISSON_WIRE_HTTP_H
#define CAISSON_WIRE_HTTP_H

#include "base/buf.h"

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };

enum http_event {
	HTTP_MORE,  /* all of *in is used (or the message has ended): feed more */
	HTTP_HEAD,  /* parser.head is complete */
	HTTP_BODY,  /* *ret_body: the next bytes of the body, a view into the input */
	HTTP_END,   /* the message is complete; what is left of *in belongs to the next one */
	HTTP_ERROR, /* parser.error and parser.error_status say why; stays so */
};

enum {
	HTTP_MAX_TARGET = 8 * 1024,
	HTTP_MAX_HEAD = 32 * 1024, /* first line and all fields */
	HTTP_MAX_FIELDS = 100,
	HTTP_MAX_CHUNK_LINE = 1024,
	HTTP_MAX_TRAILERS = 32 * 1024,
	HTTP_MAX_METHOD = 23,
};

enum { HTTP_CHUNKED = -1, HTTP_UNTIL_EOF = -2 }; /* head.length when it is no number */

struct http_field {
	struct str name, value; /* value without blanks around it; may hold bytes over 0x7f, never controls but TAB */
};

struct http_head {
	int minor;	 /* HTTP/1.<minor>: 0 or 1 */
	bool keep_alive; /* what version and Connection ask for */
	int64_t length;	 /* of the body: bytes, HTTP_CHUNKED or HTTP_UNTIL_EOF */

	/* requests */
	char method[HTTP_MAX_METHOD + 1];
	struct str target; /* as sent */
	struct str path;   /* raw, begins with '/'; "*" for OPTIONS * */
	struct str query;  /* raw, behind the first '?'; p NULL when there is none */
	struct str host;   /* of the absolute target, else of Host; may be empty */
	bool expect_continue;

	/* responses */
	int status;
	struct str reason;

	struct http_field *fields;
	size_t n_fields;
	struct buf bytes_; /* what the views point into */
};

struct http_parser {
	enum http_kind kind;
	bool answers_head;	/* response to HEAD: has no body; set before its head is fed */
	struct http_head *head; /* from HTTP_HEAD until http_next; may be taken with take_ptr, then http_head_free is yours */
	int error_status;	/* the status a server answers with: 400, 414, 417, 431, 501, 505 */
	const char *error;

	int state_;
	bool cr_; /* the last byte of the line was CR */
	unsigned blank_lines_;
	size_t n_fields_, trailer_bytes_;
	uint64_t left_;
	struct buf line_; /* chunk and trailer lines */
};

void http_init(struct http_parser *p, enum http_kind kind);
void http_done(struct http_parser *p);
enum http_event http_feed(struct http_parser *p, struct str *in, struct str *ret_body);
/* The peer will send no more: HTTP_END ends a body that lasts until the end, HTTP_MORE = between messages, else HTTP_ERROR. */
enum http_event http_eof(struct http_parser *p);
void http_next(struct http_parser *p);
bool http_is_idle(const struct http_parser *p); /* no byte of the next message has come */
void http_head_free(struct http_head *h);

/* First field of that name (any case); p NULL when absent. */
struct str http_get(const struct http_head *h, const char *name);
/* Walks a comma list: the next non-empty item without blanks; false at its end. */
bool http_list_next(struct str *rest, struct str *ret_item);
/* Is `token` (any case) an item of the list in any field of that name? */
bool http_list_has(const struct http_head *h, const char *name, const char *token);

bool http_is_token(struct str s);
bool http_value_ok(struct str s);    /* may be sent as a field's value: no controls but TAB */
struct str http_trim(struct str s);  /* without blanks and TABs around it */
const char *http_reason(int status); /* "Not Found"; "Unknown" for what we never send */

#endif
