/* The git calls: each reads its request into the commands that do it. */
#include "dialect/daytona/git.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#define DEPTH_MAX 1000000

/* --- reading a request --- */

static int required(const json_t *body, const char *key, const char **ret, struct err *e)
{
	int rc = want_text(body, key, ret, e);
	if (rc < 0)
		return rc;
	return *ret && **ret ? 0 : err_set(e, ERR_INVALID, EINVAL, "%s is required", key);
}

/* Where git would take a leading '-' for an option: no name of a branch, commit, remote or setting begins with one. */
static int no_option(const char *key, const char *text, struct err *e)
{
	if (text && text[0] == '-')
		return err_set(e, ERR_INVALID, EINVAL, "%s must not begin with '-'", key);
	return 0;
}

static int required_name(const json_t *body, const char *key, const char **ret, struct err *e)
{
	int rc = required(body, key, ret, e);
	return rc < 0 ? rc : no_option(key, *ret, e);
}

/* An empty one is none: SDKs send "" for what is not given. */
static int optional_name(const json_t *body, const char *key, const char **ret, struct err *e)
{
	int rc = want_text(body, key, ret, e);
	if (rc < 0)
		return rc;
	if (*ret && !**ret)
		*ret = NULL;
	return no_option(key, *ret, e);
}

static int required_files(const json_t *body, char ***ret, struct err *e)
{
	int rc = want_texts(body, "files", ret, e);
	if (rc < 0)
		return rc;
	return *ret && **ret ? 0 : err_set(e, ERR_INVALID, EINVAL, "files is required and must not be empty");
}

static int repository(struct git_call *g, const json_t *body, struct err *e)
{
	const char *path = NULL;
	int rc = required(body, "path", &path, e);
	if (rc == 0)
		g->cwd = xstrdup(path);
	return rc;
}

static int queried_repository(struct git_call *g, struct err *e)
{
	const char *path;
	int rc = query_required(g->x.call.r, "path", &path, e);
	if (rc == 0)
		g->cwd = xstrdup(path);
	return rc;
}

/* git takes them line by line. */
static int one_line(const char *key, const char *text, struct err *e)
{
	for (; text && *text; text++)
		if (iscntrl((unsigned char)*text))
			return err_set(e, ERR_INVALID, EINVAL, "%s must not contain control characters", key);
	return 0;
}

static int credentials(struct git_call *g, const json_t *body, struct err *e)
{
	const char *username = NULL, *password = NULL;
	int rc;
	if ((rc = want_text(body, "username", &username, e)) < 0 || (rc = want_text(body, "password", &password, e)) < 0 ||
	    (rc = one_line("username", username, e)) < 0 || (rc = one_line("password", password, e)) < 0)
		return rc;
	g->username = username && *username ? xstrdup(username) : NULL;
	g->password = password && *password ? xstrdup(password) : NULL;
	return 0;
}

static void plan_and_start(struct git_call *g, const json_t *body, int (*plan)(struct git_call *, const json_t *, struct err *))
{
	struct err e = { 0 };
	if (plan(g, body, &e) < 0)
		call_fail(&g->x.call, &e);
	else
		git_start(g);
}

static void by_body(struct request *r, struct daytona *d, const char *verb, int status,
                    int (*plan)(struct git_call *g, const json_t *body, struct err *e))
{
	struct err e = { 0 };
	struct sandbox_view v;
	if (!toolbox_sandbox(d, r, &v))
		return;
	json_t *body = body_object(r, &e);
	if (!body) {
		fail(r, &e);
		return;
	}
	plan_and_start(git_call_new(d, r, verb, status), body, plan);
	json_decref(body);
}

static void by_query(struct request *r, struct daytona *d, const char *verb, int (*plan)(struct git_call *g, const json_t *body, struct err *e))
{
	struct sandbox_view v;
	if (toolbox_sandbox(d, r, &v))
		plan_and_start(git_call_new(d, r, verb, 200), NULL, plan);
}

/* --- repositories --- */

static int plan_clone(struct git_call *g, const json_t *body, struct err *e)
{
	const char *url = NULL, *path = NULL, *branch = NULL, *commit = NULL;
	int64_t depth = 0;
	int rc;
	if ((rc = required_name(body, "url", &url, e)) < 0 || (rc = required(body, "path", &path, e)) < 0 ||
	    (rc = optional_name(body, "branch", &branch, e)) < 0 || (rc = optional_name(body, "commit_id", &commit, e)) < 0 ||
	    (rc = want_bool(body, "insecure_skip_tls", &g->insecure_tls, e)) < 0 || (rc = want_int(body, "depth", 0, DEPTH_MAX, &depth, e)) < 0 ||
	    (rc = credentials(g, body, e)) < 0)
		return rc;
	g->origin = git_origin(str_of(url));
	char how_deep[32];
	snprintf(how_deep, sizeof(how_deep), "--depth=%lld", (long long)depth);
	struct git_step *s = git_step_add(g, "clone", "--quiet", "--origin=origin");
	if (depth)
		git_arg(s, how_deep);
	if (branch) {
		git_arg(s, "--branch");
		git_arg(s, branch);
	}
	git_arg(s, "--");
	git_arg(s, url);
	git_arg(s, path);
	if (commit && depth) /* it need not be among those that came */
		git_step_add(g, "-C", path, "fetch", "--quiet", "--no-recurse-submodules", how_deep, "--", "origin", commit);
	if (commit)
		git_step_add(g, "-C", path, "checkout", "--quiet", "--detach", commit, "--");
	return 0;
}

static void handle_clone(struct request *r, void *daytona)
{
	by_body(r, daytona, "clone", 200, plan_clone);
}

static int plan_init(struct git_call *g, const json_t *body, struct err *e)
{
	const char *path = NULL, *branch = NULL;
	bool bare = false;
	int rc;
	if ((rc = required(body, "path", &path, e)) < 0 || (rc = want_bool(body, "bare", &bare, e)) < 0 ||
	    (rc = optional_name(body, "initial_branch", &branch, e)) < 0)
		return rc;
	struct git_step *s = git_step_add(g, "init", "--quiet");
	if (bare)
		git_arg(s, "--bare");
	if (branch) {
		git_arg(s, "--initial-branch");
		git_arg(s, branch);
	}
	git_arg(s, "--");
	git_arg(s, path);
	return 0;
}

static void handle_init(struct request *r, void *daytona)
{
	by_body(r, daytona, "init", 201, plan_init);
}

static int read_status(struct git_call *g, struct str out)
{
	return git_read_status(out, &g->reply);
}

static int plan_status(struct git_call *g, const json_t *body, struct err *e)
{
	(void)body;
	git_step_add(g, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z");
	g->read = read_status;
	return queried_repository(g, e);
}

static void handle_status(struct request *r, void *daytona)
{
	by_query(r, daytona, "status", plan_status);
}

static int read_history(struct git_call *g, struct str out)
{
	return git_read_history(out, &g->reply);
}

static int plan_history(struct git_call *g, const json_t *body, struct err *e)
{
	(void)body;
	struct git_step *s = git_step_add(g, "log", "-z", "--no-color", "--no-show-signature", "--encoding=UTF-8", "--format=%H%x00%an%x00%ae%x00%aI%x00%B");
	s->ok_exit = 128; /* a new repository has an empty history */
	s->ok_text = "does not have any commits yet";
	g->read = read_history;
	return queried_repository(g, e);
}

static void handle_history(struct request *r, void *daytona)
{
	by_query(r, daytona, "log", plan_history);
}

/* --- branches --- */

#define HEADS "refs/heads/"

/* First the current branch, which may have no commit yet and then is in no list, then the list. */
static int read_branches(struct git_call *g, struct str out)
{
	if (g->at == 0) {
		g->reply = json_object();
		if (out.n == 0) /* detached */
			return 0;
		const size_t n = sizeof(HEADS) - 1;
		if (out.n < n + 2 || memcmp(out.p, HEADS, n) != 0 || memchr(out.p, '\n', out.n) != out.p + out.n - 1)
			return -EBADMSG;
		put(g->reply, "current", text_json((struct str){ out.p + n, out.n - n - 1 }));
		return 0;
	}
	json_t *list;
	int rc = git_read_branches(out, &list);
	if (rc == 0)
		put(g->reply, "branches", list);
	return rc;
}

static int plan_branches(struct git_call *g, const json_t *body, struct err *e)
{
	(void)body;
	git_step_add(g, "symbolic-ref", "--quiet", "HEAD")->ok_exit = 1;
	git_step_add(g, "for-each-ref", "--format=%(refname:lstrip=2)%00", HEADS);
	g->read = read_branches;
	return queried_repository(g, e);
}

static void handle_branches(struct request *r, void *daytona)
{
	by_query(r, daytona, "branch", plan_branches);
}

static int plan_branch_create(struct git_call *g, const json_t *body, struct err *e)
{
	const char *name = NULL;
	int rc;
	if ((rc = repository(g, body, e)) < 0 || (rc = required_name(body, "name", &name, e)) < 0)
		return rc;
	git_step_add(g, "branch", "--", name);
	return 0;
}

static void handle_branch_create(struct request *r, void *daytona)
{
	by_body(r, daytona, "branch", 201, plan_branch_create);
}

static int plan_branch_delete(struct git_call *g, const json_t *body, struct err *e)
{
	const char *name = NULL;
	int rc;
	if ((rc = repository(g, body, e)) < 0 || (rc = required_name(body, "name", &name, e)) < 0)
		return rc;
	git_step_add(g, "branch", "-D", "--", name);
	return 0;
}

static void handle_branch_delete(struct request *r, void *daytona)
{
	by_body(r, daytona, "branch", 204, plan_branch_delete);
}

static int plan_checkout(struct git_call *g, const json_t *body, struct err *e)
{
	const char *branch = NULL;
	int rc;
	if ((rc = repository(g, body, e)) < 0 || (rc = required_name(body, "branch", &branch, e)) < 0)
		return rc;
	git_step_add(g, "checkout", "--quiet", branch, "--");
	return 0;
}

static void handle_checkout(struct request *r, void *daytona)
{
	by_body(r, daytona, "checkout", 200, plan_checkout);
}

/* --- changes --- */

static int plan_add(struct git_call *g, const json_t *body, struct err *e)
{
	char **files = NULL;
	int rc = repository(g, body, e);
	if (rc == 0 && (rc = required_files(body, &files, e)) == 0)
		git_args(git_step_add(g, "add", "--"), files);
	texts_free(files);
	return rc;
}

static void handle_add(struct request *r, void *daytona)
{
	by_body(r, daytona, "add", 200, plan_add);
}

static int read_commit(struct git_call *g, struct str out)
{
	return g->at == 0 ? 0 : git_read_hash(out, &g->reply);
}

static int plan_commit(struct git_call *g, const json_t *body, struct err *e)
{
	const char *message = NULL, *author = NULL, *email = NULL;
	bool allow_empty = false;
	int rc;
	if ((rc = repository(g, body, e)) < 0 || (rc = required(body, "message", &message, e)) < 0 || (rc = required(body, "author", &author, e)) < 0 ||
	    (rc = required(body, "email", &email, e)) < 0 || (rc = want_bool(body, "allow_empty", &allow_empty, e)) < 0)
		return rc;
	auto_free char *name = xasprintf("user.name=%s", author), *mail = xasprintf("user.email=%s", email);
	struct git_step *s = git_step_add(g, "-c", name, "-c", mail, "commit", "--quiet", "--file=-");
	if (allow_empty)
		git_arg(s, "--allow-empty");
	s->input = xstrdup(message);
	git_step_add(g, "rev-parse", "--verify", "HEAD");
	g->read = read_commit;
	return 0;
}

static void handle_commit(struct request *r, void *daytona)
{
	by_body(r, daytona, "commit", 200, plan_commit);
}

static bool is_mode(const char *mode)
{
	static const char *const modes[] = { "soft", "mixed", "hard", "merge", "keep" };
	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		if (streq(mode, modes[i]))
			return true;
	return false;
}

static int plan_reset_files(struct git_call *g, const char *mode, const char *target, char *const *files, struct err *e)
{
	if (mode && !streq(mode, "mixed"))
		return err_set(e, ERR_INVALID, EINVAL, "files can't be reset with mode %s: leave it out", mode);
	struct git_step *s = git_step_add(g, "reset", "--quiet");
	if (target)
		git_arg(s, target);
	git_arg(s, "--");
	git_args(s, files);
	return 0;
}

static int plan_reset(struct git_call *g, const json_t *body, struct err *e)
{
	const char *mode = NULL, *target = NULL;
	char **files = NULL;
	int rc;
	if ((rc = repository(g, body, e)) < 0 || (rc = optional_name(body, "mode", &mode, e)) < 0 || (rc = optional_name(body, "target", &target, e)) < 0)
		return rc;
	if (mode && !is_mode(mode))
		return err_set(e, ERR_INVALID, EINVAL, "mode must be soft, mixed, hard, merge or keep");
	if ((rc = want_texts(body, "files", &files, e)) < 0)
		return rc;
	if (files && *files) {
		rc = plan_reset_files(g, mode, target, files, e);
	} else {
		char option[16];
		snprintf(option, sizeof(option), "--%s", mode ? mode : "mixed");
		git_step_add(g, "reset", "--quiet", option, target ? target : "HEAD", "--");
		rc = 0;
	}
	texts_free(files);
	return rc;
}

static void handle_reset(struct request *r, void *daytona)
{
	by_body(r, daytona, "reset", 200, plan_reset);
}

static int plan_restore(struct git_call *g, const json_t *body, struct err *e)
{
	const char *source = NULL;
	bool staged = false, worktree = false;
	char **files = NULL;
	int rc;
	if ((rc = repository(g, body, e)) < 0 || (rc = want_bool(body, "staged", &staged, e)) < 0 || (rc = want_bool(body, "worktree", &worktree, e)) < 0 ||
	    (rc = optional_name(body, "source", &source, e)) < 0)
		return rc;
	if ((rc = required_files(body, &files, e)) == 0) {
		struct git_step *s = git_step_add(g, "restore", "--quiet");
		if (staged)
			git_arg(s, "--staged");
		if (worktree)
			git_arg(s, "--worktree");
		if (source) {
			git_arg(s, "--source");
			git_arg(s, source);
		}
		git_arg(s, "--");
		git_args(s, files);
	}
	texts_free(files);
	return rc;
}

static void handle_restore(struct request *r, void *daytona)
{
	by_body(r, daytona, "restore", 200, plan_restore);
}

/* --- remotes --- */

static int plan_transfer(struct git_call *g, const json_t *body, bool push, struct err *e)
{
	const char *branch = NULL, *remote = NULL;
	bool set_upstream = false;
	struct git_step *s;
	int rc;
	if ((rc = repository(g, body, e)) < 0 || (rc = credentials(g, body, e)) < 0 || (rc = optional_name(body, "branch", &branch, e)) < 0 ||
	    (rc = optional_name(body, "remote", &remote, e)) < 0 || (push && (rc = want_bool(body, "set_upstream", &set_upstream, e)) < 0))
		return rc;
	if (branch && !remote)
		remote = "origin";
	git_find_origin(g, push, remote);
	if (push) /* without a branch: the current one, to its namesake, also when it was never pushed */
		s = git_step_add(g, "-c", "push.default=current", "push", "--quiet", "--recurse-submodules=no");
	else /* a submodule's address comes from the repository: it must not be told our password */
		s = git_step_add(g, "pull", "--quiet", "--no-edit", "--no-recurse-submodules");
	if (set_upstream)
		git_arg(s, "--set-upstream");
	if (remote) {
		git_arg(s, "--");
		git_arg(s, remote);
	}
	if (branch)
		git_arg(s, branch);
	return 0;
}

static int plan_push(struct git_call *g, const json_t *body, struct err *e)
{
	return plan_transfer(g, body, true, e);
}

static void handle_push(struct request *r, void *daytona)
{
	by_body(r, daytona, "push", 200, plan_push);
}

static int plan_pull(struct git_call *g, const json_t *body, struct err *e)
{
	return plan_transfer(g, body, false, e);
}

static void handle_pull(struct request *r, void *daytona)
{
	by_body(r, daytona, "pull", 200, plan_pull);
}

static int plan_remote_add(struct git_call *g, const json_t *body, struct err *e)
{
	const char *name = NULL, *url = NULL;
	bool fetch = false, overwrite = false;
	int rc;
	if ((rc = repository(g, body, e)) < 0 || (rc = required_name(body, "name", &name, e)) < 0 || (rc = required_name(body, "url", &url, e)) < 0 ||
	    (rc = want_bool(body, "fetch", &fetch, e)) < 0 || (rc = want_bool(body, "overwrite", &overwrite, e)) < 0)
		return rc;
	if (overwrite) {
		struct git_step *s = git_step_add(g, "remote", "set-url", "--", name, url);
		s->ok_exit = 2; /* there is none of that name */
		s->skip = 1;
	}
	git_step_add(g, "remote", "add", "--", name, url);
	if (fetch)
		git_step_add(g, "fetch", "--quiet", "--", name);
	return 0;
}

static void handle_remote_add(struct request *r, void *daytona)
{
	by_body(r, daytona, "remote", 201, plan_remote_add);
}

static int read_remotes(struct git_call *g, struct str out)
{
	json_t *list;
	int rc = g->at == 0 ? 0 : git_read_remotes(out, &list);
	if (g->at == 1 && rc == 0)
		g->reply = json_pack("{s:o}", "remotes", list);
	return rc;
}

static int plan_remotes(struct git_call *g, const json_t *body, struct err *e)
{
	(void)body;
	git_step_add(g, "rev-parse", "--git-dir"); /* config reads the user's own where there is no repository */
	git_step_add(g, "config", "--null", "--get-regexp", "^remote\\..*\\.url$")->ok_exit = 1;
	g->read = read_remotes;
	return queried_repository(g, e);
}

static void handle_remotes(struct request *r, void *daytona)
{
	by_query(r, daytona, "remote", plan_remotes);
}

/* --- settings --- */

/* The option of a scope; a local one belongs to the repository at `path`. */
static int scope_option(struct git_call *g, const char *scope, const char *path, const char **ret, struct err *e)
{
	if (!scope || !*scope || streq(scope, "global"))
		*ret = "--global";
	else if (streq(scope, "local"))
		*ret = "--local";
	else if (streq(scope, "system"))
		*ret = "--system";
	else
		return err_set(e, ERR_INVALID, EINVAL, "scope must be global, local or system");
	if (streq(*ret, "--local") && (!path || !*path))
		return err_set(e, ERR_INVALID, EINVAL, "path is required with the scope local");
	g->cwd = path && *path ? xstrdup(path) : NULL;
	return 0;
}

static int body_scope(struct git_call *g, const json_t *body, const char **ret, struct err *e)
{
	const char *scope = NULL, *path = NULL;
	int rc;
	if ((rc = want_text(body, "scope", &scope, e)) < 0 || (rc = want_text(body, "path", &path, e)) < 0)
		return rc;
	return scope_option(g, scope, path, ret, e);
}

static int plan_config_set(struct git_call *g, const json_t *body, struct err *e)
{
	const char *key = NULL, *value = NULL, *scope;
	int rc;
	if ((rc = required_name(body, "key", &key, e)) < 0 || (rc = want_text(body, "value", &value, e)) < 0 || (rc = body_scope(g, body, &scope, e)) < 0)
		return rc;
	if (!value)
		return err_set(e, ERR_INVALID, EINVAL, "value is required");
	git_step_add(g, "config", scope, "--replace-all", "--", key, value);
	return 0;
}

static void handle_config_set(struct request *r, void *daytona)
{
	by_body(r, daytona, "config", 200, plan_config_set);
}

static int read_config(struct git_call *g, struct str out)
{
	g->reply = json_object();
	if (out.n == 0) /* not set */
		return 0;
	if (memchr(out.p, '\0', out.n) != out.p + out.n - 1)
		return -EBADMSG;
	put(g->reply, "value", text_json((struct str){ out.p, out.n - 1 }));
	return 0;
}

static int plan_config_get(struct git_call *g, const json_t *body, struct err *e)
{
	(void)body;
	const struct request *r = g->x.call.r;
	const char *key, *scope;
	int rc;
	if ((rc = query_required(r, "key", &key, e)) < 0 || (rc = no_option("key", key, e)) < 0 ||
	    (rc = scope_option(g, req_query(r, "scope"), req_query(r, "path"), &scope, e)) < 0)
		return rc;
	git_step_add(g, "config", scope, "--null", "--get", "--", key)->ok_exit = 1;
	g->read = read_config;
	return 0;
}

static void handle_config_get(struct request *r, void *daytona)
{
	by_query(r, daytona, "config", plan_config_get);
}

static int plan_user(struct git_call *g, const json_t *body, struct err *e)
{
	const char *name = NULL, *email = NULL, *scope;
	int rc;
	if ((rc = required(body, "name", &name, e)) < 0 || (rc = required(body, "email", &email, e)) < 0 || (rc = body_scope(g, body, &scope, e)) < 0)
		return rc;
	git_step_add(g, "config", scope, "--replace-all", "--", "user.name", name);
	git_step_add(g, "config", scope, "--replace-all", "--", "user.email", email);
	return 0;
}

static void handle_user(struct request *r, void *daytona)
{
	by_body(r, daytona, "config", 200, plan_user);
}

/* Kept inside, in the user's ~/.git-credentials: what the SDK's name for the call warns of. */
static int plan_authenticate(struct git_call *g, const json_t *body, struct err *e)
{
	const char *value[4] = { [2] = "github.com", [3] = "https" };
	static const char *const names[4] = { "username", "password", "host", "protocol" };
	for (size_t i = 0; i < 4; i++) {
		const char *given = NULL;
		int rc = i < 2 ? required(body, names[i], &given, e) : want_text(body, names[i], &given, e);
		if (rc < 0 || (rc = one_line(names[i], given, e)) < 0)
			return rc;
		if (given && *given)
			value[i] = given;
	}
	git_step_add(g, "config", "--global", "--replace-all", "--", "credential.helper", "store", "^store$");
	git_step_add(g, "credential-store", "store")->input =
		xasprintf("protocol=%s\nhost=%s\nusername=%s\npassword=%s\n\n", value[3], value[2], value[0], value[1]);
	return 0;
}

static void handle_authenticate(struct request *r, void *daytona)
{
	by_body(r, daytona, "credential", 200, plan_authenticate);
}

static const struct route routes[] = {
	{ .method = "POST", .pattern = "/git/clone", .body = BODY_BUFFER, .handle = handle_clone },
	{ .method = "POST", .pattern = "/git/init", .body = BODY_BUFFER, .handle = handle_init },
	{ .method = "GET", .pattern = "/git/status", .handle = handle_status },
	{ .method = "GET", .pattern = "/git/history", .handle = handle_history },
	{ .method = "GET", .pattern = "/git/branches", .handle = handle_branches },
	{ .method = "POST", .pattern = "/git/branches", .body = BODY_BUFFER, .handle = handle_branch_create },
	{ .method = "DELETE", .pattern = "/git/branches", .body = BODY_BUFFER, .handle = handle_branch_delete },
	{ .method = "POST", .pattern = "/git/checkout", .body = BODY_BUFFER, .handle = handle_checkout },
	{ .method = "POST", .pattern = "/git/add", .body = BODY_BUFFER, .handle = handle_add },
	{ .method = "POST", .pattern = "/git/commit", .body = BODY_BUFFER, .handle = handle_commit },
	{ .method = "POST", .pattern = "/git/reset", .body = BODY_BUFFER, .handle = handle_reset },
	{ .method = "POST", .pattern = "/git/restore", .body = BODY_BUFFER, .handle = handle_restore },
	{ .method = "POST", .pattern = "/git/push", .body = BODY_BUFFER, .handle = handle_push },
	{ .method = "POST", .pattern = "/git/pull", .body = BODY_BUFFER, .handle = handle_pull },
	{ .method = "POST", .pattern = "/git/remotes", .body = BODY_BUFFER, .handle = handle_remote_add },
	{ .method = "GET", .pattern = "/git/remotes", .handle = handle_remotes },
	{ .method = "POST", .pattern = "/git/config", .body = BODY_BUFFER, .handle = handle_config_set },
	{ .method = "GET", .pattern = "/git/config", .handle = handle_config_get },
	{ .method = "POST", .pattern = "/git/config/user", .body = BODY_BUFFER, .handle = handle_user },
	{ .method = "POST", .pattern = "/git/credentials", .body = BODY_BUFFER, .handle = handle_authenticate },
};
const struct route_table git_routes = { routes, ARRAY_LEN(routes) };
