/* Tokens for a shell by SSH: made, checked, taken back. */
#include "dialect/daytona/internal.h"

#include <errno.h>

#define MINUTES_DEFAULT 60
#define MINUTES_MAX (GRANT_SECONDS_MAX / 60)

static bool offered(const struct daytona *d, struct request *r)
{
	if (!d->ssh)
		fail_code(r, 422, "UNPROCESSABLE_ENTITY", "SSH access is not offered by this server: its operator starts it with --ssh ADDRESS:PORT");
	return d->ssh;
}

/* What a person types. The host is the one that the client reached us by. */
static char *command_of(const struct daytona *d, const struct request *r, const char *token)
{
	auto_free char *base = base_url(d, r);
	const char *host = strstr(base, "://"), *port = strrchr(d->ssh, ':') + 1;
	host = host ? host + 3 : base;
	size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
	bool bracketed = *host == '[';
	return xasprintf("ssh -p %s %s@%.*s", port, token, (int)(bracketed ? n - 2 : n), bracketed ? host + 1 : host);
}

/* Minutes, of which there may be a fraction, as whole seconds. */
static int parse_minutes(const char *text, uint64_t *ret_seconds, struct err *e)
{
	char *end;
	double minutes = strspn(text, "0123456789.") == strlen(text) ? strtod(text, &end) : -1;

	if (minutes < 0 || *end)
		return err_set(e, ERR_INVALID, EINVAL, "expiresInMinutes must be a number");
	if (minutes * 60 < 1 || minutes * 60 > GRANT_SECONDS_MAX)
		return err_set(e, ERR_INVALID, ERANGE, "expiresInMinutes must be between a second and %d minutes", MINUTES_MAX);
	*ret_seconds = (uint64_t)(minutes * 60);
	return 0;
}

static void handle_grant(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	const char *text = req_query(r, "expiresInMinutes"), *ref = req_path_arg(r, "id");
	char token[GRANT_TOKEN_SIZE];
	uint64_t seconds = MINUTES_DEFAULT * 60;
	struct grant_view g;
	struct err e = { 0 };
	if (!offered(d, r))
		return;
	int rc = text && *text ? parse_minutes(text, &seconds, &e) : 0;
	if (rc == 0 && (rc = api_grant_create(d->api, caller_of(r), ref, GRANT_SHELL, 0, seconds, token, &g, &e)) < 0 &&
	    e.kind == ERR_NOT_FOUND)
		sandbox_not_found(&e, ref);
	if (rc < 0) {
		fail(r, &e);
		return;
	}
	auto_free char *command = command_of(d, r, token);
	json_t *o = json_object();
	put(o, "id", textz_json(g.id));
	put(o, "sandboxId", textz_json(g.sandbox));
	put(o, "token", json_string(token));
	put(o, "expiresAt", time_json(g.expires_ms));
	put(o, "createdAt", time_json(g.created_ms));
	put(o, "updatedAt", time_json(g.created_ms));
	put(o, "sshCommand", textz_json(command));
	req_reply_json(r, 200, o);
}

/* The token to take back. Python's SDK, 0.226 among them, sends it where the organisation belongs. */
static char *token_of(const struct request *r)
{
	const char *token = req_query(r, "token");
	struct str organization = req_header(r, "X-Daytona-Organization-ID");

	if (token && *token)
		return xstrdup(token);
	return organization.n == GRANT_TOKEN_SIZE - 1 ? xstrndup(organization.p, organization.n) : NULL;
}

/* Without a token: all of them. */
static void handle_revoke(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	const char *ref = req_path_arg(r, "id");
	auto_free char *token = token_of(r);
	struct sandbox_view v;
	struct err e = { 0 };
	int rc = api_grant_revoke(d->api, caller_of(r), ref, GRANT_SHELL, token, &e);
	if (rc == 0)
		rc = api_sandbox_get(d->api, caller_of(r), ref, &v, &e);
	if (rc < 0) {
		if (e.kind == ERR_NOT_FOUND)
			sandbox_not_found(&e, ref);
		fail(r, &e);
		return;
	}
	auto_free char *base = base_url(d, r);
	req_reply_json(r, 200, sandbox_json(d, base, &v, false));
}

/* A token of another tenant is not valid for whoever asks. */
static void handle_validate(struct request *r, void *daytona)
{
	struct daytona *d = daytona;
	const char *token = req_query(r, "token");
	struct caller owner;
	char sandbox[40] = "";
	struct err e = { 0 };
	bool valid = token && api_grant_open(d->api, str_of(token), GRANT_SHELL, 0, &owner, sandbox, &e) == 0 && streq(owner.tenant, caller_of(r)->tenant);
	json_t *o = json_object();
	put(o, "valid", json_boolean(valid));
	put(o, "sandboxId", json_string(valid ? sandbox : ""));
	req_reply_json(r, 200, o);
}

static const struct route routes[] = {
	{ .method = "GET", .pattern = "/sandbox/ssh-access/validate", .handle = handle_validate },
	{ .method = "POST", .pattern = "/sandbox/{id}/ssh-access", .body = BODY_BUFFER, .handle = handle_grant },
	{ .method = "DELETE", .pattern = "/sandbox/{id}/ssh-access", .handle = handle_revoke },
};
const struct route_table ssh_routes = { routes, ARRAY_LEN(routes) };
