/* Grants: a token that opens one thing of one sandbox for a time - one port, or a shell. Whoever has it needs no key.
 *
 * Only the SHA-256 of a token is kept, in the store (a grant outlives this process, and goes with its sandbox) and in a table here. */
#include "core/core_int.h"

#include <errno.h>
#include <openssl/sha.h>
#include <stdio.h>

#define GRANTS_OF_ONE_MAX 64 /* of a sandbox and a kind: the oldest makes room */

struct grant {
	struct grant_row row;
	UT_hash_handle hh; /* by row.hash; iteration is in order of creation */
};

static void forget(struct core *c, struct grant *g)
{
	HASH_DEL(c->grants, g);
	grant_row_done(&g->row);
	free(g);
}

static void take_back(struct core *c, struct grant *g)
{
	(void)store_grant_delete(c->o.store, g->row.id);
	forget(c, g);
}

void grants_free(struct core *c)
{
	struct grant *g, *next;

	HASH_ITER (hh, c->grants, g, next)
		forget(c, g);
}

/* The rows have gone with the sandbox's. */
void grants_of_removed(struct sandbox *s)
{
	struct grant *g, *next;

	HASH_ITER (hh, s->core->grants, g, next)
		if (streq(g->row.sandbox_id, s->row.id))
			forget(s->core, g);
}

static int load_row(void *ctx, struct grant_row *row)
{
	struct core *c = ctx;
	struct grant *g = xcalloc(1, sizeof *g);

	g->row = *row;
	*row = (struct grant_row){ 0 };
	HASH_ADD(hh, c->grants, row.hash, sizeof g->row.hash, g);
	return 0;
}

void grants_load(struct core *c)
{
	store_grant_each(c->o.store, load_row, c);
}

/* Those that are over go, and the oldest when there are too many. */
static void make_room(struct sandbox *s, enum grant_kind kind, uint64_t now)
{
	struct core *c = s->core;
	struct grant *g, *next, *oldest = NULL;
	size_t n = 0;

	HASH_ITER (hh, c->grants, g, next) {
		if (g->row.expires_ms <= now) {
			take_back(c, g);
		} else if (g->row.kind == kind && streq(g->row.sandbox_id, s->row.id)) {
			oldest = oldest ? oldest : g;
			n++;
		}
	}
	if (n >= GRANTS_OF_ONE_MAX)
		take_back(c, oldest);
}

static void view(const struct grant *g, struct grant_view *ret)
{
	*ret = (struct grant_view){ g->row.id, g->row.sandbox_id, g->row.kind, g->row.port, g->row.created_ms, g->row.expires_ms };
}

int sandbox_grant(struct sandbox *s, enum grant_kind kind, uint16_t port, uint64_t seconds, char ret_token[static GRANT_TOKEN_SIZE],
                  struct grant_view *ret, struct err *e)
{
	struct core *c = s->core;
	char id[37], token[GRANT_TOKEN_SIZE];
	uint64_t now = now_unix_ms();

	if (seconds < 1 || seconds > GRANT_SECONDS_MAX)
		return err_set(e, ERR_INVALID, ERANGE, "a token lasts 1 to %d seconds", GRANT_SECONDS_MAX);
	make_room(s, kind, now);
	random_uuid(id);
	random_hex(token, kind == GRANT_PORT ? GRANT_PORT_DIGITS / 2 : (GRANT_TOKEN_SIZE - 1) / 2);
	struct grant *g = xcalloc(1, sizeof *g);
	g->row = (struct grant_row){
		.id = xstrdup(id), .sandbox_id = xstrdup(s->row.id), .kind = kind, .port = port, .created_ms = now, .expires_ms = now + seconds * 1000
	};
	SHA256((const unsigned char *)token, strlen(token), g->row.hash);
	int rc = store_grant_put(c->o.store, &g->row);
	if (rc < 0) {
		grant_row_done(&g->row);
		free(g);
		return err_sys(e, ERR_UNAVAILABLE, -rc, "can't store the token");
	}
	HASH_ADD(hh, c->grants, row.hash, sizeof g->row.hash, g);
	view(g, ret);
	memcpy(ret_token, token, sizeof token);
	return 0;
}

/* By the hash, so that the time it takes says nothing of the tokens that there are. */
static struct grant *find(struct core *c, struct str token)
{
	unsigned char hash[32];
	struct grant *g;

	SHA256((const unsigned char *)token.p, token.n, hash);
	HASH_FIND(hh, c->grants, hash, sizeof hash, g);
	return g && g->row.expires_ms > now_unix_ms() ? g : NULL;
}

struct sandbox *core_granted(struct core *c, struct str token, enum grant_kind kind, uint16_t port)
{
	struct grant *g = find(c, token);

	return g && g->row.kind == kind && g->row.port == port ? core_find(c, NULL, g->row.sandbox_id) : NULL;
}

void sandbox_revoke(struct sandbox *s, enum grant_kind kind, const char *token)
{
	struct core *c = s->core;
	struct grant *g = token ? find(c, str_of(token)) : NULL, *next;

	if (token) {
		if (g && g->row.kind == kind && streq(g->row.sandbox_id, s->row.id))
			take_back(c, g);
		return;
	}
	HASH_ITER (hh, c->grants, g, next)
		if (g->row.kind == kind && streq(g->row.sandbox_id, s->row.id))
			take_back(c, g);
}
