/* Heads of HTTP/2: requests are judged and get their secrets, answers lose what must not come back. */
#include "egress/http2_int.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>

/* --- fields --- */

void fields_done(struct fields *f)
{
	for (size_t i = 0; i < f->n; i++) {
		explicit_bzero(f->v[i].value, f->v[i].value_n);
		free(f->v[i].name);
		free(f->v[i].value);
	}
	free(f->v);
	*f = (struct fields){ 0 };
}

int fields_add(struct fields *f, struct str name, struct str value, bool never)
{
	f->bytes += name.n + value.n + 32; /* as RFC 9113 counts them */
	if (f->n >= H2_FIELDS_MAX || f->bytes > H2_HEAD_MAX)
		return -E2BIG;
	f->v = xreallocarray(f->v, f->n + 1, sizeof *f->v);
	f->v[f->n++] = (struct field){ xstrndup(name.p, name.n), xstrndup(value.p, value.n), value.n, never };
	return 0;
}

static struct str get(const struct fields *f, const char *name)
{
	for (size_t i = 0; i < f->n; i++)
		if (streq(f->v[i].name, name))
			return (struct str){ f->v[i].value, f->v[i].value_n };
	return (struct str){ 0 };
}

/* Of the request as it goes out: a field Host does not. */
static struct str authority_of(const struct fields *f)
{
	struct str authority = get(f, ":authority");
	return authority.p ? authority : get(f, "host");
}

static nghttp2_nv view(struct str name, struct str value, bool never)
{
	return (nghttp2_nv){ .name = (uint8_t *)(uintptr_t)name.p, .value = (uint8_t *)(uintptr_t)value.p, .namelen = name.n, .valuelen = value.n,
			     .flags = never ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE };
}

size_t fields_views(const struct fields *f, nghttp2_nv v[static H2_FIELDS_MAX])
{
	for (size_t i = 0; i < f->n; i++)
		v[i] = view(str_of(f->v[i].name), (struct str){ f->v[i].value, f->v[i].value_n }, f->v[i].never);
	return f->n;
}

static void mask(const struct stream *s, struct fields *f)
{
	const struct keyring *keys = &s->h->c->o->keys;

	for (size_t i = 0; i < f->n; i++) {
		screen_mask(keys, f->v[i].name, strlen(f->v[i].name));
		screen_mask(keys, f->v[i].value, f->v[i].value_n);
	}
}

/* --- requests --- */

void http2_refuse(struct stream *s, int status, const char *kind, const char *message)
{
	struct way *w = &s->way[SERVER];
	const nghttp2_data_provider body = { .source.ptr = s, .read_callback = http2_give };
	char code[8];

	snprintf(code, sizeof code, "%d", status);
	s->collecting = false;
	http2_drop_request(s);
	refusal_body(kind, message, &w->data);
	w->head_over = w->ended = true;
	const nghttp2_nv v[] = { view(STR(":status"), str_of(code), false), view(STR("content-type"), STR("application/json"), false),
				 view(STR("x-caisson"), STR("refused"), false) };
	if (nghttp2_submit_response(s->h->session[CLIENT], s->id[CLIENT], v, ARRAY_LEN(v), &body) != 0)
		s->h->failed = true;
}

/* Why a head is not carried, whatever secrets it has; NULL = it is. */
static const char *objection(const struct conn *c, const struct fields *f, int *ret_status)
{
	struct str method = get(f, ":method"), path = get(f, ":path"), authority = get(f, ":authority"), host = get(f, "host");

	*ret_status = 400;
	if (str_eqz(method, "CONNECT") || str_eqz(method, "TRACE"))
		return "this method is not carried where TLS is opened";
	if (!str_eqz(get(f, ":scheme"), "https") || path.n == 0 || (path.p[0] != '/' && !str_eqz(path, "*")))
		return "a target that is not of this host";
	*ret_status = 421;
	if ((!authority.p && !host.p) || (authority.p && !opened_for(c, authority)) || (host.p && !opened_for(c, host)))
		return "another host than the one that this connection is for";
	return NULL;
}

static void submit(struct stream *s, const struct fields *f, const struct place *p)
{
	struct http2 *h = s->h;
	nghttp2_nv v[H2_FIELDS_MAX + 4];
	const nghttp2_data_provider body = { .source.ptr = s, .read_callback = http2_give };
	size_t n = 0, at = 0;

	v[n++] = view(STR(":method"), p->method, false);
	v[n++] = view(STR(":scheme"), STR("https"), false);
	v[n++] = view(STR(":authority"), authority_of(f), false);
	v[n++] = view(STR(":path"), p->fresh_target ? str_of(p->fresh_target) : p->target, p->fresh_target != NULL);
	for (size_t i = 0; i < f->n; i++) {
		if (f->v[i].name[0] == ':')
			continue;
		const struct place_field *pf = &p->fields[at++];
		if (!str_eqz(pf->name, "host") && !(p->body_hash.n && str_eqz(pf->name, "expect"))) /* that one has been met */
			v[n++] = view(pf->name, place_value(pf), f->v[i].never || pf->fresh);
	}
	bool empty = s->way[CLIENT].ended && !s->way[CLIENT].data.len && !s->way[CLIENT].trailers.n;
	s->id[SERVER] = h->session[SERVER] ? nghttp2_submit_request(h->session[SERVER], NULL, v, n, empty ? NULL : &body, s) : -1;
	if (s->id[SERVER] < 0) { /* no more on this connection: to be tried on another one */
		s->id[SERVER] = 0;
		http2_reset(s, CLIENT, NGHTTP2_REFUSED_STREAM);
		return;
	}
	s->closed[SERVER] = false;
}

/* The hash of the body that was collected, when it was. */
static void add_body_hash(const struct stream *s, struct place *p, char hex[static 65])
{
	const struct buf *b = &s->way[CLIENT].data;
	unsigned char digest[32];

	if (s->collecting && EVP_Digest(b->data ? b->data : "", b->len, digest, NULL, EVP_sha256(), NULL) == 1) {
		hex_encode(digest, sizeof digest, hex);
		p->body_hash = str_of(hex);
	}
}

static void judge(struct stream *s, struct fields *f)
{
	struct conn *c = s->h->c;
	struct place_field fields[H2_FIELDS_MAX];
	struct place p = { .host = c->name, .port = c->port, .method = get(f, ":method"), .target = get(f, ":path"), .fields = fields,
			   .authority = authority_of(f), .body_unseen = !s->way[CLIENT].ended };
	char hex[65];

	for (size_t i = 0; i < f->n; i++)
		if (f->v[i].name[0] != ':')
			fields[p.n++] = (struct place_field){ .name = str_of(f->v[i].name), .value = { f->v[i].value, f->v[i].value_n } };
	add_body_hash(s, &p, hex);
	enum placed v = place_request(&c->o->keys, &p);
	if (v == PLACE_NEEDS_BODY && (s->collecting || s->way[CLIENT].ended))
		v = place_refuse(&p, NULL, 500, "the request cannot be signed");
	s->collecting = v == PLACE_NEEDS_BODY;
	if (v == PLACE_REFUSED) {
		opener_tell(c, &p, false);
		http2_refuse(s, p.status, p.status == 403 ? "denied" : "invalid", p.reason);
	} else if (v == PLACED) {
		if (p.placed)
			opener_tell(c, &p, true);
		submit(s, f, &p);
	} else if (str_eq_nocase(get(f, "expect"), STR("100-continue"))) {
		const nghttp2_nv go_on = view(STR(":status"), STR("100"), false);
		(void)nghttp2_submit_headers(s->h->session[CLIENT], NGHTTP2_FLAG_NONE, s->id[CLIENT], NULL, &go_on, 1, NULL);
	}
	place_done(&p);
}

/* By the rules about methods. False: it is refused, or held. */
static bool may_go(struct stream *s, const struct fields *f)
{
	const struct request r = { get(f, ":method"), get(f, ":path") };
	char why[METHODS_WHY_MAX];
	enum methods_say say = methods_judge(s->h->c, s, &s->question, &r, why);

	if (say == METHODS_DENIED)
		http2_refuse(s, 403, "denied", why);
	return say == METHODS_GO;
}

void http2_answered(struct stream *s, bool allowed, const char *why)
{
	struct way *w = &s->way[CLIENT];

	if (allowed) {
		s->collecting = w->ended && w->data.len; /* the whole of its body is here already, should it have to be signed */
		judge(s, &w->head);
	} else {
		http2_refuse(s, 403, "denied", why);
	}
	if (s->collecting && w->kept && !w->paid) { /* what has waited is collected now, and its window is not to be missed */
		w->paid = true;
		(void)nghttp2_session_consume_stream(s->h->session[CLIENT], s->id[CLIENT], w->kept);
	}
	if (!s->collecting)
		fields_done(&w->head);
}

static void object(struct stream *s, const struct fields *f, int status, const char *why)
{
	opener_tell_objection(s->h->c, get(f, ":method"), get(f, ":path"), why);
	http2_refuse(s, status, "denied", why);
}

void http2_on_request(struct stream *s)
{
	struct conn *c = s->h->c;
	struct fields *f = &s->way[CLIENT].head;
	int status;
	const char *why = objection(c, f, &status);

	s->way[CLIENT].head_over = true;
	if (c->refusal[0])
		http2_refuse(s, 502, "unavailable", c->refusal);
	else if (why)
		object(s, f, status, why);
	else if (s->collecting || may_go(s, f))
		judge(s, f);
	if (!s->collecting && !s->question)
		fields_done(f);
}

/* --- answers --- */

void http2_on_answer(struct stream *s)
{
	struct http2 *h = s->h;
	struct way *w = &s->way[SERVER];
	nghttp2_nv v[H2_FIELDS_MAX];
	const nghttp2_data_provider body = { .source.ptr = s, .read_callback = http2_give };
	struct str status = get(&w->head, ":status");
	int rc = 0;

	mask(s, &w->head);
	size_t n = fields_views(&w->head, v);
	bool interim = status.n == 3 && status.p[0] == '1', empty = w->ended && !w->data.len;
	w->head_over = !interim;
	if (s->closed[CLIENT])
		; /* nobody waits for it any more */
	else if (interim)
		rc = nghttp2_submit_headers(h->session[CLIENT], NGHTTP2_FLAG_NONE, s->id[CLIENT], NULL, v, n, NULL);
	else
		rc = nghttp2_submit_response(h->session[CLIENT], s->id[CLIENT], v, n, empty ? NULL : &body);
	if (rc == NGHTTP2_ERR_NOMEM)
		h->failed = true;
	fields_done(&w->head);
}

void http2_on_trailers(struct stream *s)
{
	mask(s, &s->way[SERVER].trailers);
}
