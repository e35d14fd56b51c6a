/* Webhooks: the audit log's lines, sent on to somebody else's server.
 *
 * The log itself is the queue. Each webhook has a position, the last line that was taken; it is stored with each batch that was taken, so
 * after a restart nothing is left out, and what was under way comes again (receivers tell by "seq"). A batch is at most BATCH_LINES
 * lines; one is under way for each webhook, SENDING_MAX of all. A receiver that fails is tried again, later and later. One that stays away
 * longer than the log is kept misses lines, and sees it by their numbers.
 *
 * Sent by worker threads, for libcurl waits; they touch nothing but their own struct. */
#include "base/log.h"
#include "core/core_int.h"
#include "core/secret.h"

#include <curl/curl.h>
#include <errno.h>
#include <openssl/hmac.h>
#include <stdatomic.h>
#include <stdio.h>

enum { URL_MAX = 2048, SECRET_MIN = 16, SECRET_LONGEST = 256, TYPES_MAX = 32, TYPE_LONGEST = 64 };
enum { WEBHOOKS_MAX = 16, BATCH_LINES = 100, BATCH_BYTES = 512 << 10, SENDING_MAX = 2, LOOK_LINES = 4096, WITHIN_S = 10, TRY_FIRST_MS = 1000, TRY_LAST_MS = 300000 };

struct webhook {
	struct core *core;
	struct webhook_row row;
	char *shown;     /* its address, for people */
	uint64_t looked; /* lines up to here were looked at: what came after row.seq was not for it */
	uint64_t failures, not_before_ms;
	char error[160];
	bool sending, gone; /* gone: freed when what is under way has ended */
	struct webhook *prev, *next;
};

struct sending {
	uv_work_t work;
	struct webhook *w;
	struct buf body;
	size_t lines;
	uint64_t seq; /* the position after it */
	char *url;
	char signature[AUDIT_HASH_SIZE + 64];
	atomic_bool *stop;
	long status;
	char error[CURL_ERROR_SIZE];
};

struct webhooks {
	struct webhook *list;
	size_t n, n_sending;
	struct audit_watch *watch;
	uint64_t swept_ms;
	atomic_bool stop;
	bool curl_ready;
};

static void consider_all(struct core *c);

/* --- one batch --- */

static void sign(struct sending *s, const char *secret)
{
	unsigned char mac[EVP_MAX_MD_SIZE];
	char at[32], hex[2 * EVP_MAX_MD_SIZE + 1];
	unsigned n = 0;
	auto_buf struct buf b;

	int len = snprintf(at, sizeof at, "%llu", (unsigned long long)now_unix_ms() / 1000);
	buf_init(&b, BATCH_BYTES + 4096);
	(void)buf_add(&b, at, (size_t)len);
	(void)buf_addc(&b, '.');
	(void)buf_add(&b, s->body.data, s->body.len);
	if (b.overflow || !HMAC(EVP_sha256(), secret, (int)strlen(secret), (const unsigned char *)b.data, b.len, mac, &n))
		abort(); /* the sizes are ours */
	hex_encode(mac, n, hex);
	snprintf(s->signature, sizeof s->signature, "Caisson-Signature: t=%s,v1=%.64s", at, hex);
}

static size_t drop_body(char *p, size_t size, size_t n, void *ctx)
{
	(void)p;
	(void)ctx;
	return size * n;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct sending *s = ctx;

	(void)a, (void)b, (void)c, (void)d;
	return atomic_load(s->stop);
}

static void post(uv_work_t *work)
{
	struct sending *s = work->data;
	CURL *curl = curl_easy_init();
	struct curl_slist *h = curl_slist_append(NULL, "Content-Type: application/json");

	h = curl_slist_append(h, s->signature);
	h = curl_slist_append(h, "Expect:");
	snprintf(s->error, sizeof s->error, "no memory");
	if (curl && h && curl_easy_setopt(curl, CURLOPT_URL, s->url) == CURLE_OK &&
	    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK) {
		s->error[0] = '\0';
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, s->body.data);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)s->body.len);
		curl_easy_setopt(curl, CURLOPT_HTTPHEADER, h);
		curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* where it was told to, and nowhere else */
		curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
		curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)WITHIN_S);
		curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
		curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_body);
		curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
		curl_easy_setopt(curl, CURLOPT_XFERINFODATA, s);
		curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
		curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, s->error);
		curl_easy_setopt(curl, CURLOPT_USERAGENT, "caisson/" CAISSON_VERSION);
		CURLcode rc = curl_easy_perform(curl);
		if (rc == CURLE_OK)
			curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &s->status);
		else if (!s->error[0])
			snprintf(s->error, sizeof s->error, "%s", curl_easy_strerror(rc));
	}
	curl_slist_free_all(h);
	if (curl)
		curl_easy_cleanup(curl);
}

static void webhook_free(struct webhook *w)
{
	webhook_row_done(&w->row);
	free(w->shown);
	free(w);
}

static void sending_free(struct sending *s)
{
	buf_done(&s->body);
	free(s->url);
	free(s);
}

static void taken(struct webhook *w, uint64_t seq)
{
	w->row.seq = seq;
	w->failures = 0;
	w->not_before_ms = 0;
	w->error[0] = '\0';
	(void)store_webhook_position(w->core->o.store, w->row.id, seq); /* else some lines come twice after a restart */
}

static void failed(struct webhook *w, const struct sending *s)
{
	uint64_t wait = TRY_FIRST_MS;

	for (uint64_t i = 0; i < w->failures && wait < TRY_LAST_MS; i++)
		wait *= 2;
	w->failures++;
	w->not_before_ms = now_ms() + MIN(wait, (uint64_t)TRY_LAST_MS);
	if (s->status)
		snprintf(w->error, sizeof w->error, "the receiver answered with status %ld", s->status);
	else
		snprintf(w->error, sizeof w->error, "%.150s", s->error);
	log_warn("webhook=%s failures=%llu msg=\"%s\"", w->row.id, (unsigned long long)w->failures, w->error);
}

static void on_posted(uv_work_t *work, int status)
{
	struct sending *s = work->data;
	struct webhook *w = s->w;
	struct core *c = w->core;

	w->sending = false;
	c->webhooks->n_sending--;
	if (w->gone) {
		webhook_free(w);
	} else if (status == 0 && s->status >= 200 && s->status < 300) {
		taken(w, s->seq);
	} else {
		failed(w, s);
		w->looked = w->row.seq;
	}
	sending_free(s);
	if (!atomic_load(&c->webhooks->stop))
		consider_all(c);
	core_handle_closed(c);
}

static bool wanted(const struct webhook *w, struct str line)
{
	for (char *const *t = w->row.types; t && *t; t++)
		if (audit_type_is(line, *t))
			return true;
	return !w->row.types || !w->row.types[0];
}

struct gathering {
	struct sending *s;
	bool full;
};

static void gather(void *ctx, uint64_t seq, struct str line)
{
	struct gathering *g = ctx;
	struct sending *s = g->s;

	g->full = g->full || s->lines >= BATCH_LINES || s->body.len + line.n + 16 > BATCH_BYTES;
	if (g->full)
		return;
	s->seq = seq;
	if (!wanted(s->w, line))
		return;
	(void)buf_addz(&s->body, s->lines ? "," : "");
	(void)buf_add(&s->body, line.p, line.n);
	s->lines++;
}

/* What is next for this one, if it is its turn. */
static void consider(struct webhook *w)
{
	struct core *c = w->core;
	struct webhooks *all = c->webhooks;
	uint64_t next, at = MAX(w->looked, w->row.seq);
	struct err e;

	if (!w->row.secret || w->sending || all->n_sending >= SENDING_MAX || now_ms() < w->not_before_ms || at >= audit_seq(c->o.audit))
		return;
	struct sending *s = xcalloc(1, sizeof *s);
	s->w = w;
	s->work.data = s;
	s->stop = &all->stop;
	buf_init(&s->body, BATCH_BYTES + AUDIT_LINE_MAX);
	(void)buf_addf(&s->body, "{\"webhook\":\"%s\",\"lines\":[", w->row.id);
	struct gathering g = { .s = s };
	int rc = audit_read(c->o.audit, at, LOOK_LINES, &(struct audit_filter){ 0 }, gather, &g, &next, &e);
	if (rc < 0 || s->lines == 0) {
		w->looked = rc < 0 ? at : next;
		if (rc == 0 && next > at)
			audit_tell_soon(c); /* there may be more to look at */
		sending_free(s);
		return;
	}
	if (!g.full)
		s->seq = next;
	(void)buf_addz(&s->body, "]}");
	s->url = xstrdup(w->row.url);
	sign(s, w->row.secret);
	if (!all->curl_ready)
		all->curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
	w->sending = true;
	w->looked = s->seq;
	all->n_sending++;
	c->handles++;
	if (uv_queue_work(c->loop, &s->work, post, on_posted) < 0)
		on_posted(&s->work, UV_ENOMEM);
}

static void consider_all(struct core *c)
{
	struct webhook *w, *next;

	DL_FOREACH_SAFE (c->webhooks->list, w, next)
		consider(w);
	/* who was first is last the next time: two slow ones hold up no third */
	if (c->webhooks->list && c->webhooks->list->next) {
		w = c->webhooks->list;
		DL_DELETE(c->webhooks->list, w);
		DL_APPEND(c->webhooks->list, w);
	}
}

static void on_grown(void *ctx)
{
	consider_all(ctx);
}

/* --- the list --- */

struct webhooks *webhooks_new(void)
{
	return xcalloc(1, sizeof(struct webhooks));
}

/* A name is hidden as a password is: some services take a token in its place. */
static char *without_credentials(const char *url)
{
	static const CURLUPart parts[] = { CURLUPART_USER, CURLUPART_PASSWORD };
	CURLU *u = curl_url();
	char *part = NULL, *shown = NULL, *copy = NULL;
	bool good = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK, hides = false;

	for (size_t i = 0; good && i < ARRAY_LEN(parts); i++) {
		if (curl_url_get(u, parts[i], &part, 0) != CURLUE_OK)
			continue;
		hides = true;
		curl_free(part);
		good = curl_url_set(u, parts[i], "***", 0) == CURLUE_OK;
	}
	if (good && hides)
		good = curl_url_get(u, CURLUPART_URL, &shown, 0) == CURLUE_OK;
	copy = xstrdup(!good ? "***" : hides ? shown : url);
	curl_free(shown);
	curl_url_cleanup(u);
	return copy;
}

static struct webhook *add(struct core *c, struct webhook_row *take)
{
	struct webhook *w = xcalloc(1, sizeof *w);

	w->core = c;
	w->row = *take;
	*take = (struct webhook_row){ 0 };
	w->shown = without_credentials(w->row.url);
	DL_APPEND(c->webhooks->list, w);
	c->webhooks->n++;
	if (!c->webhooks->watch)
		c->webhooks->watch = core_audit_watch(c, on_grown, c);
	return w;
}

/* In the store the secret is sealed, and so is an address with a password. */
static int keep(struct core *c, const struct webhook_row *r, struct err *e)
{
	struct webhook_row stored = *r;
	auto_free char *url = NULL, *shown = without_credentials(r->url);

	stored.secret = NULL;
	int rc = secrets_seal_text(c, r->id, r->secret, &stored.secret, e);
	if (rc == 0 && !streq(shown, r->url) && (rc = secrets_seal_text(c, r->id, r->url, &url, e)) == 0)
		stored.url = url;
	if (rc == 0 && (rc = store_webhook_put(c->o.store, &stored)) < 0)
		rc = err_sys(e, ERR_UNAVAILABLE, -rc, "the webhook cannot be stored");
	free(stored.secret);
	return rc;
}

/* The text is the plain one then, or NULL. */
static int unseal(struct core *c, const char *id, char **text, struct err *e)
{
	char *plain = NULL;
	int rc = secrets_unseal_text(c, id, *text, &plain, e);

	free(*text);
	*text = plain;
	return rc;
}

static int load_one(void *ctx, struct webhook_row *row)
{
	struct core *c = ctx;
	struct err e;
	int rc = unseal(c, row->id, &row->secret, &e);

	if (rc == 0 && !strstr(row->url, "://"))
		rc = unseal(c, row->id, &row->url, &e);
	if (!row->url)
		row->url = xstrdup("");
	struct webhook *w = add(c, row);
	if (rc < 0) { /* unsigned lines are sent to nobody */
		log_error("webhook=%s msg=\"nothing is sent to it: %s\"", w->row.id, e.message);
		free(take_ptr(&w->row.secret));
		w->failures = 1;
		snprintf(w->error, sizeof w->error, "its secret cannot be read: delete it and make another one");
	}
	return 0;
}

void webhooks_load(struct core *c)
{
	(void)store_webhook_each(c->o.store, load_one, c);
}

void webhooks_sweep(struct core *c)
{
	if (c->webhooks->list)
		consider_all(c);
}

void webhooks_stop(struct core *c)
{
	atomic_store(&c->webhooks->stop, true);
	audit_watch_free(take_ptr(&c->webhooks->watch));
}

void webhooks_free(struct webhooks *all)
{
	struct webhook *w, *next;

	DL_FOREACH_SAFE (all->list, w, next)
		webhook_free(w);
	free(all);
}

static int check_types(char *const *types, struct err *e)
{
	size_t n = 0;

	while (types && types[n])
		n++;
	if (n > TYPES_MAX)
		return err_set(e, ERR_TOO_LARGE, E2BIG, "types: %zu; at most %d are allowed", n, TYPES_MAX);
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(types[i]);
		if (len < 1 || len > TYPE_LONGEST || strspn(types[i], "abcdefghijklmnopqrstuvwxyz._") != len)
			return err_set(e, ERR_INVALID, EINVAL, "types: %s is no type of line; give 1 to %d of a to z, '.' and '_', such as \"run\" or \"network.denied\"",
			               str_quote(str_of(types[i]), &(struct quoted){ 0 }), TYPE_LONGEST);
	}
	return 0;
}

static int bad_url(struct err *e, const char *why)
{
	return err_set(e, ERR_INVALID, EINVAL, "url: %s; give one such as https://example.org/hook, of at most %d bytes", why, URL_MAX);
}

/* Never quoted: it may hold a password. */
static int check_url(const char *url, struct err *e)
{
	CURLU *u = curl_url();
	char *scheme = NULL, *port = NULL;
	const char *why = NULL;
	CURLUcode rc = CURLUE_OK;

	if (!*url)
		why = "it is empty";
	else if (strlen(url) > URL_MAX)
		why = "it is too long";
	else if (!strstr(url, "://"))
		why = "it does not begin with http:// or https://";
	else if (!u || (rc = curl_url_set(u, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME)) != CURLUE_OK)
		why = curl_url_strerror(rc);
	else if (curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK || (!streq(scheme, "http") && !streq(scheme, "https")))
		why = "it does not begin with http:// or https://";
	else if (curl_url_get(u, CURLUPART_PORT, &port, 0) == CURLUE_OK && streq(port, "0"))
		why = "its port is 0; ports are 1 to 65535";
	curl_free(scheme);
	curl_free(port);
	curl_url_cleanup(u);
	return why ? bad_url(e, why) : 0;
}

static int check(const struct webhook_row *r, struct err *e)
{
	size_t n = r->secret ? strlen(r->secret) : SECRET_MIN;
	int rc = check_url(r->url, e);

	if (rc < 0)
		return rc;
	if (n < SECRET_MIN || n > SECRET_LONGEST)
		return err_set(e, ERR_INVALID, EINVAL, "secret: %zu bytes; give %d to %d, or leave it out for one of our making", n, SECRET_MIN, SECRET_LONGEST);
	return check_types(r->types, e);
}

static void view(const struct webhook *w, struct webhook_view *ret)
{
	*ret = (struct webhook_view){ .id = w->row.id, .url = w->shown, .secret = w->row.secret, .types = w->row.types, .created_ms = w->row.created_ms,
		                      .seq = w->row.seq, .failures = w->failures, .error = w->error[0] ? w->error : NULL };
}

int core_webhook_add(struct core *c, struct webhook_row *take, struct webhook_view *ret, struct err *e)
{
	char id[16];

	int rc = check(take, e);
	if (rc == 0 && c->webhooks->n >= WEBHOOKS_MAX)
		rc = err_set(e, ERR_LIMIT, ENOSPC, "there are %d webhooks already: delete one", WEBHOOKS_MAX);
	if (rc < 0)
		return rc;
	random_hex(id, 6);
	take->id = xasprintf("hook_%s", id);
	if (!take->secret) {
		char text[65];
		random_hex(text, 32);
		take->secret = xstrdup(text);
	}
	take->created_ms = now_unix_ms();
	take->seq = audit_seq(c->o.audit); /* what happens from now on */
	rc = keep(c, take, e);
	if (rc < 0)
		return rc;
	view(add(c, take), ret);
	return 0;
}

void core_webhook_each(struct core *c, void (*each)(void *ctx, const struct webhook_view *v), void *ctx)
{
	struct webhook *w;
	struct webhook_view v;

	DL_FOREACH (c->webhooks->list, w) {
		view(w, &v);
		each(ctx, &v);
	}
}

int core_webhook_delete(struct core *c, const char *id, struct err *e)
{
	struct webhook *w;

	DL_FOREACH (c->webhooks->list, w) {
		if (!streq(w->row.id, id))
			continue;
		int rc = store_webhook_delete(c->o.store, id);
		if (rc < 0)
			return err_sys(e, ERR_UNAVAILABLE, -rc, "the webhook cannot be deleted");
		DL_DELETE(c->webhooks->list, w);
		c->webhooks->n--;
		w->gone = true;
		if (!w->sending)
			webhook_free(w);
		return 0;
	}
	return err_set(e, ERR_NOT_FOUND, ENOENT, "webhook '%.64s' not found", id);
}
