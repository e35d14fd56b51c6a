/* Object storage as far as the clients use it for build contexts: one bucket, an archive per hash, S3's words over plain HTTP.
 *
 * push-access hands out a session token that stands for the caller for an hour. Requests bring it in a header of their own and are
 * believed by it; the signature beside it says nothing more to a server that the same client reaches with its key anyway. */
#include "dialect/daytona/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define TOKEN_S	     3600
#define TOKENS_MAX   1000
#define OBJECT_MAX   (2ULL << 30)
#define BUCKET	     "contexts"

struct storage_token {
	struct storage_token *next;
	char token[65];
	struct caller caller;
	uint64_t expires_ms;
};

void storage_done(struct daytona *d)
{
	while (d->tokens) {
		struct storage_token *t = d->tokens;
		d->tokens = t->next;
		free(t);
	}
}

static struct storage_token *new_token(struct daytona *d, const struct caller *c)
{
	struct storage_token **at = &d->tokens;
	size_t n = 0;
	while (*at) {
		struct storage_token *t = *at;
		if (t->expires_ms > now_unix_ms() && ++n < TOKENS_MAX) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		free(t);
	}
	struct storage_token *t = xcalloc(1, sizeof *t);
	*t = (struct storage_token){ .next = d->tokens, .caller = *c, .expires_ms = now_unix_ms() + TOKEN_S * 1000 };
	random_hex(t->token, 32);
	d->tokens = t;
	return t;
}

static void handle_access(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	char secret[41];
	random_hex(secret, 20);
	auto_free char *base = base_url(d, r);
	json_t *o = json_object();
	put(o, "accessKey", json_string("CAISSON"));
	put(o, "secret", json_string(secret));
	put(o, "sessionToken", json_string(new_token(d, caller_of(r))->token));
	put(o, "storageUrl", json_sprintf("%s" BASE_PATH "/storage", base));
	put(o, "organizationId", json_string("local"));
	put(o, "bucket", json_string(BUCKET));
	put(o, "region", json_string("us-east-1"));
	req_reply_json(r, 200, o);
}

/* --- answers --- */

static void answer_xml(struct request *r, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void answer_xml(struct request *r, int status, const char *fmt, ...)
{
	char text[2048];
	va_list ap;
	int head = snprintf(text, sizeof text, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
	va_start(ap, fmt);
	(void)vsnprintf(text + head, sizeof text - (size_t)head, fmt, ap);
	va_end(ap);
	req_reply(r, status, NULL, 0, "application/xml", str_of(text));
}

static void refuse_xml(struct request *r, int status, const char *code, const char *message)
{
	answer_xml(r, status, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message);
}

/* The caller of the token, and the hash of the key (unless ret_hash is NULL); else answers and returns NULL. */
static const struct caller *admit(struct request *r, struct daytona *d, char ret_hash[static 33], bool key)
{
	struct str given = req_header(r, "X-Amz-Security-Token");
	const struct storage_token *found = NULL;
	for (const struct storage_token *t = d->tokens; t; t = t->next) {
		unsigned char differ = given.n != 64;
		for (size_t i = 0; i < 64 && given.n == 64; i++)
			differ |= (unsigned char)(given.p[i] ^ t->token[i]);
		if (!differ && t->expires_ms > now_unix_ms())
			found = t;
	}
	if (!found) {
		refuse_xml(r, 403, "InvalidToken", "the session token is not valid (any more)");
		return NULL;
	}
	if (!streq(req_path_arg(r, "bucket"), BUCKET)) {
		refuse_xml(r, 404, "NoSuchBucket", "there is one bucket, " BUCKET);
		return NULL;
	}
	const char *path = key ? req_path_arg(r, "key") : req_query(r, "prefix");
	int n = 0;
	if (!path || sscanf(path, "local/%32[0-9a-f]/%n", ret_hash, &n) != 1 || n != 39 || strlen(ret_hash) != 32 ||
	    !streq(path + n, key ? "context.tar" : "")) {
		if (key)
			refuse_xml(r, 400, "InvalidArgument", "keys are local/HASH/context.tar");
		else
			answer_xml(r, 200, "<ListBucketResult><Name>" BUCKET "</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>");
		return NULL;
	}
	return &found->caller;
}

static void handle_list(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	char hash[33] = "", now[25];
	struct err e;
	const struct caller *c = admit(r, d, hash, false);
	if (!c)
		return;
	auto_fd int fd = api_context_open(d->api, c, hash, 1, &e);
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	format_iso8601(now_unix_ms(), now);
	if (fd < 0)
		answer_xml(r, 200,
		           "<ListBucketResult><Name>" BUCKET "</Name><Prefix>local/%s/</Prefix><KeyCount>0</KeyCount><MaxKeys>1</MaxKeys>"
		           "<IsTruncated>false</IsTruncated></ListBucketResult>", hash);
	else
		answer_xml(r, 200,
		           "<ListBucketResult><Name>" BUCKET "</Name><Prefix>local/%s/</Prefix><KeyCount>1</KeyCount><MaxKeys>1</MaxKeys>"
		           "<IsTruncated>false</IsTruncated><Contents><Key>local/%s/context.tar</Key><LastModified>%s</LastModified>"
		           "<ETag>&quot;%s&quot;</ETag><Size>%lld</Size><StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>",
		           hash, hash, now, hash, (long long)size);
}

static void handle_head(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	char hash[33] = "", tag[36];
	struct err e;
	const struct caller *c = admit(r, d, hash, true);
	if (!c)
		return;
	auto_fd int fd = api_context_open(d->api, c, hash, 1, &e);
	snprintf(tag, sizeof tag, "\"%s\"", hash);
	const struct header h[] = { { "ETag", tag }, { "Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT" } };
	req_reply(r, fd < 0 ? 404 : 200, h, ARRAY_LEN(h), "application/x-tar", (struct str){ 0 });
}

/* --- uploads --- */

/* Some clients wrap the bytes in chunks of their own: "hex[;extension]CRLF bytes CRLF ... 0CRLF trailers CRLF". */
enum wrap_state { WRAP_NONE, WRAP_SIZE, WRAP_EXTENSION, WRAP_DATA, WRAP_AFTER, WRAP_TRAILERS };

struct putting {
	struct call call; /* its caller is the token's */
	char hash[33], upload[33];
	bool whole; /* one request, one object */
	int fd;
	uint64_t n, left;
	enum wrap_state wrap;
	struct err why;
};

static void putting_drop(struct call *c)
{
	struct putting *x = container_of(c, struct putting, call);
	close_fd(x->fd);
	if (x->whole && x->upload[0])
		api_context_abort(c->d->api, x->upload);
}

static void keep(struct putting *x, const char *p, size_t n)
{
	while (n && !x->why.kind) {
		ssize_t w = write(x->fd, p, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			err_sys(&x->why, ERR_UNAVAILABLE, w < 0 ? errno : ENOSPC, "keep the object");
			return;
		}
		p += w;
		n -= (size_t)w;
		x->n += (uint64_t)w;
		if (x->n > OBJECT_MAX)
			err_set(&x->why, ERR_TOO_LARGE, EFBIG, "an object is larger than %llu MiB", OBJECT_MAX >> 20);
	}
}

static void unwrap(struct putting *x, struct str s)
{
	while (s.n && !x->why.kind) {
		char c = *s.p;
		size_t take = 1;
		switch (x->wrap) {
		case WRAP_NONE:
			take = s.n;
			keep(x, s.p, take);
			break;
		case WRAP_DATA:
			take = (size_t)MIN(x->left, (uint64_t)s.n);
			keep(x, s.p, take);
			x->left -= take;
			if (x->left == 0)
				x->wrap = WRAP_AFTER;
			break;
		case WRAP_SIZE:
			if (isxdigit((unsigned char)c) && x->left < OBJECT_MAX) {
				x->left = x->left * 16 + (uint64_t)(isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
				break;
			}
			if (c != ';' && c != '\r' && c != '\n')
				err_set(&x->why, ERR_INVALID, EINVAL, "the body is not wrapped as its headers say");
			x->wrap = WRAP_EXTENSION;
			if (c != '\n')
				break;
			/* fall through */
		case WRAP_EXTENSION:
			if (c == '\n')
				x->wrap = x->left ? WRAP_DATA : WRAP_TRAILERS;
			break;
		case WRAP_AFTER:
			if (c == '\n') {
				x->left = 0;
				x->wrap = WRAP_SIZE;
			}
			break;
		case WRAP_TRAILERS:
			take = s.n;
			break;
		}
		s.p += take;
		s.n -= take;
	}
}

static void on_bytes(void *ctx, struct str bytes)
{
	unwrap(ctx, bytes);
}

static void on_body_end(void *ctx)
{
	struct putting *x = ctx;
	struct daytona *d = x->call.d;
	char tag[36];
	if (!x->why.kind && x->wrap != WRAP_NONE && x->wrap != WRAP_TRAILERS)
		err_set(&x->why, ERR_INVALID, EINVAL, "the body ends before its last chunk");
	if (!x->why.kind && x->whole && api_context_commit(d->api, &x->call.caller, x->hash, x->upload, &x->why) == 0)
		x->upload[0] = '\0';
	struct request *r = x->call.r;
	call_detach(&x->call);
	if (x->why.kind) {
		refuse_xml(r, status_of(x->why.kind), "InternalError", "the object could not be kept");
	} else {
		snprintf(tag, sizeof tag, "\"%s\"", x->hash);
		const struct header h = { "ETag", tag };
		req_reply(r, 200, &h, 1, NULL, (struct str){ 0 });
	}
	call_free(&x->call);
}

static void handle_put(struct request *r, void *daytona)
{
	static const struct body_events events = { .on_bytes = on_bytes, .on_end = on_body_end };
	struct daytona *d = daytona;
	char hash[33] = "";
	struct err e;
	int64_t part = 1;
	const struct caller *c = admit(r, d, hash, true);
	if (!c)
		return;
	const char *upload = req_query(r, "uploadId"), *number = req_query(r, "partNumber");
	if (number && parse_int("partNumber", number, 1, API_CONTEXT_PARTS_MAX, &part, &e) < 0) {
		refuse_xml(r, 400, "InvalidArgument", "partNumber");
		return;
	}
	req_set_data(r, xmemdup(c, sizeof *c)); /* call_new looks for it there */
	struct putting *x = call_new(sizeof(*x), d, r, putting_drop);
	x->fd = -EBADF;
	x->whole = !upload;
	memcpy(x->hash, hash, sizeof x->hash);
	if (upload)
		snprintf(x->upload, sizeof x->upload, "%s", strlen(upload) == 32 ? upload : "");
	else
		random_hex(x->upload, 16);
	struct str sha = req_header(r, "X-Amz-Content-Sha256");
	if (sha.n >= 10 && memcmp(sha.p, "STREAMING-", 10) == 0)
		x->wrap = WRAP_SIZE;
	x->fd = api_context_put(d->api, x->upload, (unsigned)part, &e);
	if (x->fd < 0) {
		call_detach(&x->call);
		refuse_xml(r, status_of(e.kind), "InvalidArgument", "the upload is not known");
		call_free(&x->call);
		return;
	}
	req_read_body(r, &events, x);
}

/* POST ?uploads begins an upload in parts, POST ?uploadId= puts the parts together. */
static void handle_post(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	char hash[33] = "", fresh[33];
	struct err e;
	const struct caller *c = admit(r, d, hash, true);
	if (!c)
		return;
	const char *upload = req_query(r, "uploadId");
	if (!upload) {
		random_hex(fresh, 16);
		answer_xml(r, 200, "<InitiateMultipartUploadResult><Bucket>" BUCKET "</Bucket><Key>local/%s/context.tar</Key><UploadId>%s</UploadId>"
		                   "</InitiateMultipartUploadResult>", hash, fresh);
	} else if (api_context_commit(d->api, c, hash, upload, &e) < 0) {
		refuse_xml(r, status_of(e.kind), "NoSuchUpload", "there is no such upload");
	} else {
		answer_xml(r, 200, "<CompleteMultipartUploadResult><Location>/" BUCKET "/local/%s/context.tar</Location><Bucket>" BUCKET "</Bucket>"
		                   "<Key>local/%s/context.tar</Key><ETag>&quot;%s&quot;</ETag></CompleteMultipartUploadResult>", hash, hash, hash);
	}
}

static void handle_abort(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	char hash[33] = "";
	const char *upload = req_query(r, "uploadId");
	if (!admit(r, d, hash, true))
		return;
	if (!upload) {
		refuse_xml(r, 405, "MethodNotAllowed", "archives are kept by their content and go by themselves");
		return;
	}
	api_context_abort(d->api, upload);
	req_reply_empty(r, 204);
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/object-storage/push-access", .handle = handle_access },
	{ .method = "GET", .pattern = "/storage/{bucket}", .handle = handle_list, .tag = TAG_OPEN },
	{ .method = "GET", .pattern = "/storage/{bucket}/", .handle = handle_list, .tag = TAG_OPEN },
	{ .method = "HEAD", .pattern = "/storage/{bucket}/{key*}", .handle = handle_head, .tag = TAG_OPEN },
	{ .method = "PUT", .pattern = "/storage/{bucket}/{key*}", .body = BODY_STREAM, .handle = handle_put, .tag = TAG_OPEN },
	{ .method = "POST", .pattern = "/storage/{bucket}/{key*}", .body = BODY_BUFFER, .body_max = 4 << 20, .handle = handle_post, .tag = TAG_OPEN },
	{ .method = "DELETE", .pattern = "/storage/{bucket}/{key*}", .handle = handle_abort, .tag = TAG_OPEN },
};
const struct route_table storage_routes = { routes, ARRAY_LEN(routes) };
