/* Theory of operation.
 *
 *   PREAMBLE -> AFTER -> HEAD -> DATA -> AFTER ... -> EPILOGUE
 *
 * A delimiter is CR LF "--" boundary. It holds one CR, at its start, so the longest suffix of what was read that can begin a
 * delimiter is known from the count of matched bytes alone, and bytes held back are a prefix of the delimiter itself: when the
 * match breaks they are given out from there, without a copy of the input. The first delimiter may stand at the very start of
 * the body, without its CR LF: the match begins as if those had been seen.
 *
 * After a delimiter only "--", or blanks and CR LF, are taken: a delimiter with anything else behind it is refused, for a
 * client promises that its boundary is not in the data. */
#include "wire/multipart.h"

#include "wire/http.h"
#include "wire/urlencode.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

enum state { PREAMBLE, AFTER, AFTER_DASH, AFTER_BLANKS, HEAD, DATA, EPILOGUE, FAILED };

static enum multipart_event fail(struct multipart *m, const char *why)
{
	m->state_ = FAILED;
	m->error = why;
	return MULTIPART_ERROR;
}

/* --- parameters: `; name=value; name="quo\"ted"` --- */

/* Takes the next parameter off *rest. Quoted values are unquoted into `value` (which has room for rest->n + 1 bytes).
 * 1: got one, 0: none left, -EINVAL: malformed. */
static int next_param(struct str *rest, struct str *ret_name, char *value)
{
	struct str s = http_trim(*rest);

	while (s.n && s.p[0] == ';') {
		s.p++, s.n--;
		s = http_trim(s);
	}
	if (s.n == 0)
		return 0;
	size_t n = 0, i = 0;
	while (i < s.n && s.p[i] != '=' && s.p[i] != ';')
		i++;
	*ret_name = http_trim((struct str){ s.p, i });
	if (i == s.n || s.p[i] != '=' || !http_is_token(*ret_name))
		return -EINVAL;
	i++;
	if (i < s.n && s.p[i] == '"') {
		for (i++; i < s.n && s.p[i] != '"'; i++) {
			/* Browsers of old send Windows paths with bare backslashes: only \" and \\ are escapes. */
			if (s.p[i] == '\\' && i + 1 < s.n && (s.p[i + 1] == '"' || s.p[i + 1] == '\\'))
				i++;
			value[n++] = s.p[i];
		}
		if (i++ == s.n)
			return -EINVAL;
	} else {
		for (; i < s.n && s.p[i] != ';'; i++)
			value[n++] = s.p[i];
		while (n && (value[n - 1] == ' ' || value[n - 1] == '\t'))
			n--;
	}
	value[n] = '\0';
	*rest = http_trim((struct str){ s.p + i, s.n - i });
	return rest->n && rest->p[0] != ';' ? -EINVAL : 1;
}

int multipart_boundary(struct str content_type, char ret_boundary[static MULTIPART_MAX_BOUNDARY + 1])
{
	static const char type[] = "multipart/form-data";
	struct str rest = content_type, name;
	int r;

	if (rest.n < sizeof type - 1 || rest.n > MULTIPART_MAX_HEAD || strncasecmp(rest.p, type, sizeof type - 1) != 0)
		return -EINVAL;
	rest.p += sizeof type - 1;
	rest.n -= sizeof type - 1;
	if (http_trim(rest).n && http_trim(rest).p[0] != ';')
		return -EINVAL;
	auto_free char *value = xmalloc(rest.n + 1);
	while ((r = next_param(&rest, &name, value)) > 0) {
		if (!str_eq_nocase(name, STR("boundary")))
			continue;
		size_t n = strlen(value);
		if (n == 0 || n > MULTIPART_MAX_BOUNDARY || value[n - 1] == ' ')
			return -EINVAL;
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)value[i] < 0x20 || (unsigned char)value[i] >= 0x7f)
				return -EINVAL;
		memcpy(ret_boundary, value, n + 1);
		return 0;
	}
	return -EINVAL;
}

/* --- part heads --- */

/* What the HTML standard writes for the three bytes that would break a quoted name. Other escapes are meant literally. */
static void undo_form_escapes(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '%' && (strncasecmp(s, "%22", 3) == 0 || strncasecmp(s, "%0D", 3) == 0 || strncasecmp(s, "%0A", 3) == 0)) {
			*to++ = s[1] == '2' ? '"' : (s[2] == 'D' || s[2] == 'd') ? '\r' : '\n';
			s += 2;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

/* RFC 8187: UTF-8'language'percent-encoded. */
static int decode_extended(char *value)
{
	char *text = strchr(value, '\'');

	if (!text || strncasecmp(value, "UTF-8'", 6) != 0 || !(text = strchr(text + 1, '\'')))
		return -EINVAL;
	text++;
	return url_decode(str_of(text), URL_PERCENT, value) < 0 ? -EINVAL : 0;
}

static int read_disposition(struct multipart *m, struct str rest)
{
	static const char type[] = "form-data";
	bool extended = false;
	struct str name;
	int r;

	if (rest.n < sizeof type - 1 || strncasecmp(rest.p, type, sizeof type - 1) != 0)
		return -EINVAL;
	rest.p += sizeof type - 1;
	rest.n -= sizeof type - 1;
	auto_free char *value = xmalloc(rest.n + 1);
	while ((r = next_param(&rest, &name, value)) > 0) {
		bool star = str_eq_nocase(name, STR("filename*"));
		char **to = NULL;
		if (str_eq_nocase(name, STR("name")))
			to = &m->name;
		else if (star || (str_eq_nocase(name, STR("filename")) && !extended))
			to = &m->filename;
		if (!to)
			continue;
		if (*to && !star) /* twice the same: which one another program would take nobody knows */
			return -EINVAL;
		if (star && (extended || decode_extended(value) < 0))
			return -EINVAL;
		if (!star)
			undo_form_escapes(value);
		if (!utf8_valid(str_of(value)))
			return -EINVAL;
		extended |= star;
		free(*to);
		*to = xstrdup(value);
	}
	return r < 0 || !m->name ? -EINVAL : 0;
}

static void forget_part(struct multipart *m)
{
	free(take_ptr(&m->name));
	free(take_ptr(&m->filename));
	free(take_ptr(&m->content_type));
}

/* head_ holds all lines with their CRLFs, the empty one last. */
static enum multipart_event finish_part_head(struct multipart *m)
{
	struct str rest = buf_str(&m->head_);
	bool disposition = false;

	forget_part(m);
	if (++m->n_parts_ > MULTIPART_MAX_PARTS)
		return fail(m, "too many parts");
	while (rest.n > 2) {
		const char *end = memchr(rest.p, '\r', rest.n), *colon = memchr(rest.p, ':', (size_t)(end - rest.p));
		if (!colon || !http_is_token((struct str){ rest.p, (size_t)(colon - rest.p) }))
			return fail(m, "malformed header in a part");
		struct str name = { rest.p, (size_t)(colon - rest.p) };
		struct str value = http_trim((struct str){ colon + 1, (size_t)(end - colon - 1) });
		if (str_eq_nocase(name, STR("Content-Disposition"))) {
			if (disposition || read_disposition(m, value) < 0)
				return fail(m, "malformed Content-Disposition in a part");
			disposition = true;
		} else if (str_eq_nocase(name, STR("Content-Type")) && !m->content_type) {
			m->content_type = xstrndup(value.p, value.n);
		}
		rest.n -= (size_t)(end + 2 - rest.p);
		rest.p = end + 2;
	}
	if (!disposition)
		return fail(m, "a part without Content-Disposition");
	buf_reset(&m->head_);
	m->state_ = DATA;
	m->matched_ = 0;
	return MULTIPART_PART;
}

static enum multipart_event feed_head(struct multipart *m, struct str *in)
{
	while (in->n) {
		unsigned char c = (unsigned char)in->p[0];
		size_t n = m->head_.len;
		if (m->cr_ ? c != '\n' : (c == '\n' || (c < 0x20 && c != '\r' && c != '\t') || c == 0x7f))
			return fail(m, "control byte in the head of a part");
		if (buf_addc(&m->head_, (char)c) < 0)
			return fail(m, "head of a part is longer than 8192 bytes");
		m->cr_ = c == '\r';
		in->p++, in->n--;
		if (c == '\n' && (n == 1 || m->head_.data[n - 2] == '\n'))
			return finish_part_head(m);
	}
	return MULTIPART_MORE;
}

/* --- data --- */

/* How many bytes are data for certain: up to the delimiter, or to what may be its beginning. Binary files are full of CRs, and to stop at each
 * would cut them into pieces of a hundred bytes. */
static size_t certain(const struct multipart *m, struct str in)
{
	const char *end = in.p + in.n;

	for (const char *cr = in.p; (cr = memchr(cr, '\r', (size_t)(end - cr))); cr++)
		if (memcmp(cr, m->delimiter_, MIN((size_t)(end - cr), m->delimiter_len_)) == 0)
			return (size_t)(cr - in.p);
	return in.n;
}

/* Looks for the delimiter. MULTIPART_BYTES: data before it; MULTIPART_PART_END: found. */
static enum multipart_event feed_data(struct multipart *m, struct str *in, struct str *ret_bytes)
{
	const char *start = in->p;
	size_t held = m->matched_, i = 0;

	if (held == 0) {
		i = certain(m, *in);
		if (i) {
			*ret_bytes = (struct str){ start, i };
			in->p += i;
			in->n -= i;
			return MULTIPART_BYTES;
		}
	}
	while (i < in->n && held < m->delimiter_len_ && in->p[i] == m->delimiter_[held])
		i++, held++;
	in->p += i;
	in->n -= i;
	if (held == m->delimiter_len_) {
		m->matched_ = 0;
		return MULTIPART_PART_END;
	}
	if (in->n == 0) {
		m->matched_ = held;
		return MULTIPART_MORE;
	}
	/* Broken: the held bytes are data. The byte that broke it may itself be a CR, and is looked at anew. */
	m->matched_ = 0;
	*ret_bytes = (struct str){ m->delimiter_, held };
	return MULTIPART_BYTES;
}

static enum multipart_event feed_preamble(struct multipart *m, struct str *in)
{
	struct str ignored;
	size_t before = in->n;
	enum multipart_event e = feed_data(m, in, &ignored);

	m->preamble_ += before - in->n;
	if (m->preamble_ > MULTIPART_MAX_PREAMBLE)
		return fail(m, "no boundary in the first 8192 bytes");
	if (e == MULTIPART_PART_END)
		m->state_ = AFTER;
	return MULTIPART_MORE;
}

static enum multipart_event feed_after(struct multipart *m, struct str *in)
{
	char c = in->p[0];

	in->p++, in->n--;
	if (m->state_ == AFTER_DASH) {
		if (c != '-')
			return fail(m, "the boundary is in the data");
		m->state_ = EPILOGUE;
		return MULTIPART_END;
	}
	if (m->cr_) {
		if (c != '\n')
			return fail(m, "the boundary is in the data");
		m->cr_ = false;
		m->state_ = HEAD;
	} else if (c == '\r') {
		m->cr_ = true;
	} else if (c == '-' && m->state_ == AFTER) {
		m->state_ = AFTER_DASH;
	} else if (c == ' ' || c == '\t') {
		m->state_ = AFTER_BLANKS;
	} else {
		return fail(m, "the boundary is in the data");
	}
	return MULTIPART_MORE;
}

static enum multipart_event step(struct multipart *m, struct str *in, struct str *ret_bytes)
{
	enum multipart_event e;

	switch ((enum state)m->state_) {
	case PREAMBLE:
		return feed_preamble(m, in);
	case AFTER:
	case AFTER_DASH:
	case AFTER_BLANKS:
		return feed_after(m, in);
	case HEAD:
		return feed_head(m, in);
	case DATA:
		e = feed_data(m, in, ret_bytes);
		if (e == MULTIPART_PART_END)
			m->state_ = AFTER;
		return e;
	case EPILOGUE:
		in->p += in->n;
		in->n = 0;
		return MULTIPART_MORE;
	case FAILED:
		break;
	}
	return MULTIPART_ERROR;
}

void multipart_init(struct multipart *m, const char *boundary)
{
	*m = (struct multipart){ .state_ = PREAMBLE, .matched_ = 2 };
	int n = snprintf(m->delimiter_, sizeof m->delimiter_, "\r\n--%s", boundary);
	m->delimiter_len_ = MIN((size_t)n, sizeof m->delimiter_ - 1);
	buf_init(&m->head_, MULTIPART_MAX_HEAD);
}

void multipart_done(struct multipart *m)
{
	forget_part(m);
	buf_done(&m->head_);
	m->state_ = FAILED;
}

bool multipart_ended(const struct multipart *m)
{
	return m->state_ == EPILOGUE;
}

enum multipart_event multipart_feed(struct multipart *m, struct str *in, struct str *ret_bytes)
{
	enum multipart_event e;

	if (m->state_ == FAILED)
		return MULTIPART_ERROR;
	do {
		if (in->n == 0)
			return MULTIPART_MORE;
		e = step(m, in, ret_bytes);
	} while (e == MULTIPART_MORE);
	return e;
}

/* --- writing --- */

void multipart_random_boundary(char ret_boundary[static MULTIPART_RANDOM_BOUNDARY + 1])
{
	memcpy(ret_boundary, "caisson-", 8);
	random_hex(ret_boundary + 8, (MULTIPART_RANDOM_BOUNDARY - 8) / 2);
}

static void write_quoted(struct buf *to, const char *s)
{
	buf_addc(to, '"');
	for (; *s; s++) {
		if (*s == '"')
			buf_addz(to, "%22");
		else if (*s == '\r')
			buf_addz(to, "%0D");
		else if (*s == '\n')
			buf_addz(to, "%0A");
		else
			buf_addc(to, *s);
	}
	buf_addc(to, '"');
}

int multipart_write_part(struct buf *to, const char *boundary, bool first, const char *name, const char *filename, const char *content_type)
{
	buf_addf(to, "%s--%s\r\nContent-Disposition: form-data; name=", first ? "" : "\r\n", boundary);
	write_quoted(to, name);
	if (filename) {
		buf_addz(to, "; filename=");
		write_quoted(to, filename);
	}
	if (content_type)
		buf_addf(to, "\r\nContent-Type: %s", content_type);
	buf_addz(to, "\r\n\r\n");
	return to->overflow ? -ENOBUFS : 0;
}

int multipart_write_end(struct buf *to, const char *boundary, bool empty)
{
	buf_addf(to, "%s--%s--\r\n", empty ? "" : "\r\n", boundary);
	return to->overflow ? -ENOBUFS : 0;
}
