/* Secrets: making, changing, deleting; and what a sandbox that has one is given in its place. */
#include "core/secret.h"

#include "base/log.h"
#include "core/core_int.h"
#include "egress/keyring.h"
#include "model/reach.h"

#include <errno.h>
#include <stdio.h>

#define SECRETS_MAX 10000

struct secret {
	struct secret_row row;
	struct secret *prev, *next;
};

struct secrets {
	struct store *store;
	char *folder;
	struct secret *all; /* in order of creation */
	size_t n;
	struct vault *vault; /* NULL until it is needed */
	bool sealed_texts;   /* there are some: its key must be there */
	struct authority authority;
};

static int load(void *ctx, struct secret_row *row)
{
	struct secrets *t = ctx;
	struct secret *x = xcalloc(1, sizeof *x);

	x->row = *row;
	*row = (struct secret_row){ 0 };
	DL_APPEND(t->all, x);
	t->n++;
	return 0;
}

struct secrets *secrets_new(struct store *store, const char *folder)
{
	struct secrets *t = xcalloc(1, sizeof *t);

	t->store = store;
	t->folder = xstrdup(folder);
	store_secret_each(store, load, t);
	return t;
}

static void secret_free(struct secrets *t, struct secret *x)
{
	DL_DELETE(t->all, x);
	t->n--;
	secret_row_done(&x->row);
	free(x);
}

void secrets_free(struct secrets *t)
{
	struct secret *x, *next;

	if (!t)
		return;
	DL_FOREACH_SAFE (t->all, x, next)
		secret_free(t, x);
	authority_done(&t->authority);
	vault_free(t->vault);
	free(t->folder);
	free(t);
}

static int need_vault(struct secrets *t, struct err *e)
{
	uint8_t *der = NULL, *sealed = NULL;
	size_t n;

	if (t->vault)
		return 0;
	bool authority = store_authority_get(t->store, &der, &n, &sealed, &n) == 0;
	free(der);
	free(sealed);
	return vault_open(t->folder, !t->all && !authority && !t->sealed_texts, &t->vault, e);
}

const struct authority *secrets_authority(struct core *c, struct err *e)
{
	struct secrets *t = c->secrets;

	if (t->authority.pem)
		return &t->authority;
	if (need_vault(t, e) < 0 || authority_open(t->store, t->vault, &t->authority, e) < 0)
		return NULL;
	return &t->authority;
}

#define SEALED "sealed:"

int secrets_seal_text(struct core *c, const char *what, const char *plain, char **ret, struct err *e)
{
	auto_buf struct buf sealed;

	buf_init(&sealed, SECRET_VALUE_MAX + VAULT_OVERHEAD);
	int rc = need_vault(c->secrets, e);
	if (rc == 0)
		rc = vault_seal(c->secrets->vault, what, str_of(plain), &sealed, e);
	if (rc < 0)
		return rc;
	char *text = xmalloc(sizeof SEALED + 4 * ((sealed.len + 2) / 3));
	memcpy(text, SEALED, sizeof SEALED - 1);
	base64_encode(sealed.data, sealed.len, text + sizeof SEALED - 1);
	*ret = text;
	return 0;
}

int secrets_unseal_text(struct core *c, const char *what, const char *sealed, char **ret, struct err *e)
{
	const size_t skip = sizeof SEALED - 1;
	auto_buf struct buf plain;

	buf_init_secret(&plain, SECRET_VALUE_MAX);
	if (strncmp(sealed, SEALED, skip) != 0)
		return err_set(e, ERR_INVALID, EINVAL, "a text that is not sealed");
	c->secrets->sealed_texts = true;
	int rc = need_vault(c->secrets, e);
	if (rc < 0)
		return rc;
	auto_free char *bytes = xmalloc(strlen(sealed));
	ssize_t n = base64_decode(str_of(sealed + skip), bytes);
	rc = n < 0 ? err_set(e, ERR_INVALID, EINVAL, "a text that is not sealed") : vault_unseal(c->secrets->vault, what, bytes, (size_t)n, &plain, e);
	if (rc == 0)
		*ret = buf_take(&plain);
	return rc;
}

/* --- the table --- */

struct secret *core_find_secret(struct core *c, const char *tenant, const char *ref)
{
	struct secret *x;

	DL_FOREACH (c->secrets->all, x)
		if (streq(x->row.tenant, tenant) && (streq(x->row.spec.name, ref) || streq(x->row.id, ref)))
			return x;
	return NULL;
}

struct secret *core_next_secret(struct core *c, struct secret *prev)
{
	return prev ? prev->next : c->secrets->all;
}

const char *secret_tenant(const struct secret *x)
{
	return x->row.tenant;
}

void secret_get_view(const struct secret *x, struct secret_view *ret)
{
	*ret = (struct secret_view){
		.id = x->row.id,
		.placeholder = x->row.placeholder,
		.spec = &x->row.spec,
		.created_ms = x->row.created_ms,
		.updated_ms = x->row.updated_ms,
	};
}

const char *secret_placeholder(struct core *c, const char *tenant, const char *ref)
{
	struct secret *x = core_find_secret(c, tenant, ref);

	return x ? x->row.placeholder : NULL;
}

int secrets_known(struct core *c, const char *tenant, const struct sandbox_spec *spec, struct err *e)
{
	const struct pairs *lists[] = { &spec->secret_env, &spec->secret_files };

	for (size_t l = 0; l < ARRAY_LEN(lists); l++)
		for (size_t i = 0; i < lists[l]->n; i++)
			if (!core_find_secret(c, tenant, lists[l]->v[i].value))
				return err_set(e, ERR_INVALID, ENOENT, "secrets: there is no secret '%.64s'", lists[l]->v[i].value);
	return 0;
}

static void forget_gone(struct core *c, const char *tenant, struct pairs *p)
{
	for (size_t i = p->n; i-- > 0;)
		if (!core_find_secret(c, tenant, p->v[i].value))
			(void)pairs_remove(p, p->v[i].key);
}

void secrets_forget_gone(struct core *c, const char *tenant, struct sandbox_spec *spec)
{
	forget_gone(c, tenant, &spec->secret_env);
	forget_gone(c, tenant, &spec->secret_files);
}

static void secrets_changed(struct core *c, const struct secret_row *row);

static int seal(struct secrets *t, struct secret_row *row, const char *value, struct err *e)
{
	struct buf sealed;

	buf_init(&sealed, SECRET_VALUE_MAX + VAULT_OVERHEAD);
	int rc = vault_seal(t->vault, row->id, str_of(value), &sealed, e);
	if (rc == 0) {
		free(row->sealed);
		row->sealed_len = sealed.len;
		row->sealed = (uint8_t *)buf_take(&sealed);
	}
	buf_done(&sealed);
	return rc;
}

int core_secret_create(struct core *c, const char *tenant, const struct secret_spec *spec, struct secret **ret, struct err *e)
{
	struct secrets *t = c->secrets;
	struct secret_row row = { .created_ms = now_unix_ms() };
	char digits[65], short_digits[17];

	secret_spec_copy(&row.spec, spec);
	row.spec.value = xstrdup(spec->value);
	int rc = secret_spec_check(&row.spec, true, e);
	if (rc == 0 && t->n >= SECRETS_MAX)
		rc = err_set(e, ERR_LIMIT, ENOSPC, "this server holds %zu secrets already: delete some", t->n);
	if (rc == 0 && core_find_secret(c, tenant, row.spec.name))
		rc = err_set(e, ERR_CONFLICT, EEXIST, "name: a secret '%s' exists already", row.spec.name);
	if (rc == 0)
		rc = need_vault(t, e);
	random_hex(digits, 32);
	random_hex(short_digits, 8);
	row.id = xasprintf("sec_%s", short_digits);
	row.tenant = xstrdup(tenant);
	row.placeholder = xasprintf("caisson-placeholder-%s", digits);
	row.updated_ms = row.created_ms;
	if (rc == 0)
		rc = seal(t, &row, row.spec.value, e);
	free_secret(take_ptr(&row.spec.value));
	if (rc == 0)
		rc = store_secret_put(t->store, &row, e);
	if (rc == 0) {
		load(t, &row);
		*ret = t->all->prev; /* the last one */
		log_info("secret=%s msg=\"made\"", (*ret)->row.id);
		secrets_changed(c, &(*ret)->row); /* of its name there may have been one before */
	}
	secret_row_done(&row);
	return rc;
}

static void replace_list(char ***list, char *const *with)
{
	if (!with)
		return;
	strv_free(*list);
	*list = strv_copy(with);
}

int core_secret_change(struct core *c, struct secret *x, const struct secret_spec *with, struct err *e)
{
	struct secrets *t = c->secrets;
	struct secret_row row = x->row;

	secret_spec_copy(&row.spec, &x->row.spec);
	row.sealed = xmemdup(x->row.sealed, x->row.sealed_len);
	if (with->description) {
		free(row.spec.description);
		row.spec.description = xstrdup(with->description);
	}
	replace_list(&row.spec.hosts, with->hosts);
	replace_list(&row.spec.headers, with->headers);
	replace_list(&row.spec.query, with->query);
	replace_list(&row.spec.methods, with->methods);
	replace_list(&row.spec.paths, with->paths);
	row.updated_ms = now_unix_ms();
	int rc = secret_spec_check(&row.spec, false, e);
	if (rc == 0 && with->value)
		rc = secret_value_check(with->value, e);
	if (rc == 0)
		rc = need_vault(t, e);
	if (rc == 0 && with->value)
		rc = seal(t, &row, with->value, e);
	if (rc == 0)
		rc = store_secret_put(t->store, &row, e);
	/* The new parts stay or the old ones; id, tenant and placeholder are shared by both. */
	struct secret_row gone = rc == 0 ? x->row : row;
	if (rc == 0) {
		x->row = row;
		secrets_changed(c, &x->row);
	}
	secret_spec_done(&gone.spec);
	free(gone.sealed);
	return rc;
}

int core_secret_delete(struct core *c, struct secret *x, struct err *e)
{
	int rc = store_secret_delete(c->secrets->store, x->row.id);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "can't delete the secret");
	struct secret gone = *x;
	x->row = (struct secret_row){ 0 };
	secret_free(c->secrets, x);
	log_info("secret=%s msg=\"deleted\"", gone.row.id);
	secrets_changed(c, &gone.row);
	secret_row_done(&gone.row);
	return 0;
}

/* --- the opener --- */

/* Each secret of the sandbox once, however many variables and files it stands in. Ends with NULL; at most SECRETS_OF_SANDBOX_MAX. */
static size_t secrets_of(const struct sandbox *s, const struct secret *ret[static SECRETS_OF_SANDBOX_MAX])
{
	const struct pairs *lists[] = { &s->row.spec.secret_env, &s->row.spec.secret_files };
	size_t n = 0;

	for (size_t l = 0; l < ARRAY_LEN(lists); l++)
		for (size_t i = 0; i < lists[l]->n && n < SECRETS_OF_SANDBOX_MAX; i++) {
			const struct secret *x = core_find_secret(s->core, s->row.tenant, lists[l]->v[i].value);
			bool known = !x;
			for (size_t k = 0; k < n && !known; k++)
				known = ret[k] == x;
			if (!known)
				ret[n++] = x;
		}
	return n;
}

/* Of the secrets, behind those of `hosts`, which is taken. NULL, or NULL-terminated; heap, with its texts. */
static char **hosts_of(char **hosts, const struct secret *const *v, size_t n)
{
	size_t n_hosts = 0;

	while (hosts && hosts[n_hosts])
		n_hosts++;
	for (size_t i = 0; i < n; i++)
		for (char *const *h = v[i]->row.spec.hosts; h && *h && n_hosts < POLICY_RULES_MAX; h++) {
			hosts = xreallocarray(hosts, n_hosts + 2, sizeof *hosts);
			hosts[n_hosts++] = xstrdup(*h);
			hosts[n_hosts] = NULL;
		}
	return hosts;
}

void secrets_tell(struct sandbox *s)
{
	const struct secret *v[SECRETS_OF_SANDBOX_MAX];
	bool lives = s->row.state == SANDBOX_RUNNING || s->row.state == SANDBOX_PAUSED || s->row.state == SANDBOX_CREATING ||
		     s->row.state == SANDBOX_STARTING || s->row.state == SANDBOX_RESUMING;
	bool opened = lives && s->row.spec.network != NETWORK_NONE;

	if (!s->core->o.egress)
		return;
	char **hosts = opened ? hosts_of(NULL, v, secrets_of(s, v)) : NULL;
	egress_open(s->core->o.egress, s->row.id, hosts, opened && reach_has_methods(s->row.spec.permissions));
	strv_free(hosts);
}

static void secrets_changed(struct core *c, const struct secret_row *row)
{
	struct sandbox *s, *next;
	const struct pairs *lists[2];

	HASH_ITER (hh_id, c->by_id, s, next) {
		bool has = false;
		if (!streq(s->row.tenant, row->tenant))
			continue;
		lists[0] = &s->row.spec.secret_env;
		lists[1] = &s->row.spec.secret_files;
		for (size_t l = 0; l < ARRAY_LEN(lists); l++)
			for (size_t i = 0; i < lists[l]->n; i++)
				has = has || streq(lists[l]->v[i].value, row->spec.name) || streq(lists[l]->v[i].value, row->id);
		if (has)
			secrets_tell(s);
	}
}

static int put_key(const struct secrets *t, const struct secret *x, struct buf *out, struct err *e)
{
	auto_buf struct buf value;

	buf_init_secret(&value, SECRET_VALUE_MAX + 1);
	int rc = vault_unseal(t->vault, x->row.id, x->row.sealed, x->row.sealed_len, &value, e);
	if (rc == 0)
		keyring_put(out, x->row.id, x->row.placeholder, &x->row.spec, value.data);
	return rc;
}

/* What the opener of this sandbox is to hold. */
static int keys_for(void *ctx, const char *id, struct buf *out)
{
	struct core *c = ctx;
	struct sandbox *s = core_find(c, NULL, id);
	const struct secret *v[SECRETS_OF_SANDBOX_MAX];
	struct buf certificate, key;
	struct err e;

	if (!s)
		return -ENOENT;
	const struct authority *a = secrets_authority(c, &e);
	size_t n = secrets_of(s, v);
	char **hosts = NULL;
	reach_read(s->row.spec.permissions, &hosts);
	hosts = hosts_of(hosts, v, n);
	buf_init(&certificate, 64 << 10);
	buf_init_secret(&key, 8192);
	int rc = a && hosts ? authority_deputy(a, c->secrets->vault, hosts, &certificate, &key, &e) : -ENOENT;
	if (rc == 0)
		keyring_put_authority(out, buf_str(&certificate), buf_str(&key));
	for (char *const *p = s->row.spec.permissions; p && *p; p++)
		if (reach_has_methods((char *const[]){ *p, NULL }))
			keyring_put_rule(out, *p);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = put_key(c->secrets, v[i], out, &e);
	if (rc < 0 && hosts)
		log_error("sandbox=%s msg=\"its secrets cannot be had: %s\"", id, e.message);
	buf_done(&certificate);
	buf_done(&key);
	strv_free(hosts);
	return rc;
}

static void on_use(void *ctx, const char *id, const struct opener_event *ev)
{
	struct sandbox *s = core_find(ctx, NULL, id);

	if (!s)
		return;
	audit_untold(s, ev->lost);
	switch ((enum opener_event_kind)ev->kind) {
	case OPENER_SECRET:
		audit_secret(s, ev);
		break;
	case OPENER_METHOD:
		if (ev->ask)
			permission_on_method_end(s, ev->ask);
		audit_method(s, ev);
		break;
	case OPENER_ASK:
		permission_on_method(s, ev);
		break;
	case OPENER_ASK_END:
		permission_on_method_end(s, ev->ask);
		break;
	}
}

void secrets_serve(struct core *c)
{
	if (c->o.egress)
		egress_on_keys(c->o.egress, keys_for, on_use, c);
}

/* --- in a sandbox --- */

bool spec_is_opened(const struct sandbox_spec *s)
{
	return s->secret_env.n + s->secret_files.n > 0 || reach_has_methods(s->permissions);
}

bool sandbox_is_opened(const struct sandbox *s)
{
	return spec_is_opened(&s->row.spec);
}

/* Programs that do not look at the system's bundle. */
static const char *const bundle_variables[] = {
	"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "npm_config_cafile", "YARN_HTTPS_CA_FILE_PATH", "GIT_SSL_CAINFO",
	"CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE", "AWS_CA_BUNDLE", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
	"BUNDLE_SSL_CA_CERT", "PERL_LWP_SSL_CA_FILE", "HEX_CACERTS_PATH", "JULIA_SSL_CA_ROOTS_PATH",
};

/* Git gives these by itself, without being asked for a password first: one header for each host. */
static void add_git(const struct secret *x, struct pairs *env, size_t *n)
{
	auto_free char *plain = xasprintf("x-access-token:%s", x->row.placeholder);
	auto_free char *coded = xmalloc(4 * ((strlen(plain) + 2) / 3) + 1);
	char number[64];

	base64_encode(plain, strlen(plain), coded);
	for (char *const *h = x->row.spec.hosts; h && *h; h++) {
		size_t name = strcspn(*h, ":");
		bool usual = streq(*h + name, ":443");
		auto_free char *key = xasprintf("http.https://%.*s/.extraHeader", (int)(usual ? name : strlen(*h)), *h);
		auto_free char *value = xasprintf("Authorization: Basic %s", coded);
		snprintf(number, sizeof number, "GIT_CONFIG_KEY_%zu", *n);
		pairs_add(env, number, key);
		snprintf(number, sizeof number, "GIT_CONFIG_VALUE_%zu", *n);
		pairs_add(env, number, value);
		(*n)++;
	}
}

/* What follows from a secret besides its placeholder. */
static void add_companions(const struct secret *x, struct pairs *env, size_t *git)
{
	if (x->row.spec.git)
		add_git(x, env, git);
	if (x->row.spec.aws_key_id && !pairs_get(env, "AWS_ACCESS_KEY_ID"))
		pairs_add(env, "AWS_ACCESS_KEY_ID", x->row.spec.aws_key_id);
}

void sandbox_env(const struct sandbox *s, struct pairs *env)
{
	const struct sandbox_spec *spec = &s->row.spec;
	char number[32];
	size_t git = 0;

	if (sandbox_is_opened(s)) {
		for (size_t i = 0; i < ARRAY_LEN(bundle_variables); i++)
			pairs_add(env, bundle_variables[i], TRUST_BUNDLE);
		pairs_add(env, "NODE_EXTRA_CA_CERTS", TRUST_ANCHOR);
		pairs_add(env, "DENO_CERT", TRUST_ANCHOR);
		pairs_add(env, "UV_SYSTEM_CERTS", "1");
		pairs_add(env, "NODE_USE_SYSTEM_CA", "1");
	}
	for (size_t i = 0; i < spec->env.n; i++)
		pairs_add(env, spec->env.v[i].key, spec->env.v[i].value);
	for (size_t i = 0; i < spec->secret_env.n; i++) {
		struct secret *x = core_find_secret(s->core, s->row.tenant, spec->secret_env.v[i].value);
		if (!x)
			continue; /* deleted since */
		pairs_add(env, spec->secret_env.v[i].key, x->row.placeholder);
		add_companions(x, env, &git);
	}
	for (size_t i = 0; i < spec->secret_files.n; i++) {
		struct secret *x = core_find_secret(s->core, s->row.tenant, spec->secret_files.v[i].value);
		if (x)
			add_companions(x, env, &git);
	}
	if (git) {
		snprintf(number, sizeof number, "%zu", git);
		pairs_add(env, "GIT_CONFIG_COUNT", number);
	}
}
