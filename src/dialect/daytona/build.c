/* Theory of operation. A build is a list of steps and a place in it. Each step is an operation or a run inside the sandbox, and its end
 * calls build_next(); whatever fails ends the build. It belongs to no request: clients ask for its state, and read its log as it grows.
 * An ended build is remembered for its log, the last BUILDS_KEPT of them. */
#include "dialect/daytona/build_int.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define BUILDS_KEPT 64
#define CHUNK	    (64U << 10)
#define STAGE	    "/tmp/.caisson-build"
#define RECORD	    "snapshotBuild" /* kept with the sandbox of a snapshot's build, for a later server */

/* --- life --- */

static void build_free(struct build *b)
{
	api_forget(b->d->api, b);
	if (b->op)
		api_op_cancel(b->op);
	if (b->follower)
		follower_free(b->follower);
	build_log_end(b);
	if (b->prev)
		b->prev->next = b->next;
	else
		b->d->builds = b->next;
	if (b->next)
		b->next->prev = b->prev;
	free(b->sandbox);
	free(b->name);
	free(b->run);
	free(b->from_cwd);
	spec_done(&b->spec);
	dockerfile_done(&b->f);
	json_decref(b->extra);
	free(b->keys);
	pairs_done(&b->base);
	pairs_done(&b->env);
	pairs_done(&b->args);
	strv_free(b->hashes);
	close_fd(b->part_fd);
	buf_done(&b->asked);
	buf_done(&b->log);
	free(b);
}

static void forget_old(struct daytona *d)
{
	size_t ended = 0;
	for (struct build *b = d->builds, *next; b; b = next) {
		next = b->next;
		if (b->state != BUILD_RUNNING && ++ended > BUILDS_KEPT)
			build_free(b);
	}
}

static void ignore_deleted(void *ctx, const struct err *e)
{
	(void)ctx;
	if (e && e->kind != ERR_NOT_FOUND)
		log_warn("msg=\"the sandbox of a build could not be deleted: %s\"", e->message);
}

static void ignore_sandbox(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	(void)ctx, (void)e, (void)v;
}

/* What a later server reads of it: a build that was under way when this one ended has failed. */
static void mark(struct build *b, const char *word, const char *reason)
{
	struct sandbox_view v;
	struct err e;
	if (api_sandbox_get(b->d->api, &b->caller, b->sandbox, &v, &e) < 0)
		return;
	(void)extra_put(b->d, &b->caller, &v, "build", word ? json_string(word) : json_null(), &e);
	if (reason && api_sandbox_get(b->d->api, &b->caller, b->sandbox, &v, &e) == 0)
		(void)extra_put(b->d, &b->caller, &v, "buildError", json_string(reason), &e);
}

static void over(struct build *b, const struct err *e)
{
	b->state = e ? BUILD_FAILED : BUILD_DONE;
	b->updated_ms = now_unix_ms();
	if (e) {
		b->why = *e;
		auto_free char *line = xasprintf("ERROR: %s\n", e->message);
		build_say(b, str_of(line));
	}
	struct sandbox_view v;
	struct err quiet;
	if (b->name)
		api_sandbox_delete(b->d->api, &b->caller, b->sandbox, ignore_deleted, b->d);
	else
		mark(b, e ? "failed" : NULL, e ? e->message : NULL);
	if (!e && !b->name && api_sandbox_get(b->d->api, &b->caller, b->sandbox, &v, &quiet) == 0)
		entrypoint_start(b->d, &b->caller, &v);
	if (e && !b->name) /* its files can be looked at after a start; it uses nothing meanwhile */
		api_sandbox_stop(b->d->api, &b->caller, b->sandbox, ignore_sandbox, b->d);
	build_log_end(b);
	forget_old(b->d); /* may free b */
}

static void fail_build(struct build *b, const struct err *e)
{
	struct err copy = *e;
	over(b, &copy);
}

/* --- a run inside --- */

static void on_output(void *ctx, int stream, uint64_t offset, struct str bytes)
{
	struct build *b = ctx;
	(void)offset;
	if (!b->asking)
		build_say(b, bytes);
	else if (stream == 1)
		(void)buf_add(&b->asked, bytes.p, bytes.n);
}

static void run_over(struct build *b)
{
	struct err e;
	if (b->follower)
		follower_free(take_ptr(&b->follower));
	free(take_ptr(&b->run));
	const char *line = b->at && b->at <= b->f.n_steps ? b->f.steps[b->at - 1].line : "the build's own command";
	if (b->end.state == RUN_FAILED)
		err_set(&e, ERR_INVALID, ENOEXEC, "%.200s: %s", line, b->failure);
	else if (b->end.state != RUN_EXITED)
		err_set(&e, ERR_UNAVAILABLE, EIO, "%.200s: the command was lost", line);
	else if (b->end.oom)
		err_set(&e, ERR_LIMIT, ENOMEM, "%.200s: out of memory", line);
	else if (b->end.exit_code || b->end.signal)
		err_set(&e, ERR_INVALID, ECHILD, "%.300s: the command ended with %d", line, b->end.exit_code);
	else {
		b->after(b);
		return;
	}
	fail_build(b, &e);
}

static void on_run_end(void *ctx, const struct run_view *r)
{
	struct build *b = ctx;
	b->end = (struct run_view){ .state = r->state, .exit_code = r->exit_code, .signal = r->signal, .oom = r->oom };
	snprintf(b->failure, sizeof b->failure, "%s", r->message ? r->message : "the command could not be started");
	b->run_ended = true;
	if (!b->following)
		run_over(b);
}

static void on_run_started(void *ctx, const struct err *e, const struct run_view *r)
{
	static const struct follower_events events = { .on_output = on_output, .on_end = on_run_end };
	struct build *b = ctx;
	struct err why;
	if (e) {
		fail_build(b, e);
		return;
	}
	b->run = xstrdup(r->id);
	b->run_ended = false;
	b->following = true;
	b->follower = api_run_follow(b->d->api, &b->caller, b->sandbox, b->run, 0, 0, &events, b, &why);
	b->following = false;
	if (!b->follower)
		fail_build(b, &why);
	else if (b->run_ended)
		run_over(b);
}

/* argv is taken. env NULL: none. */
static void run(struct build *b, char **argv, bool asking, const char *user, const char *cwd, const struct pairs *env, void (*after)(struct build *b))
{
	struct run_spec spec;
	run_spec_init(&spec);
	spec.argv = argv;
	spec.merge_stderr = !asking;
	spec.output_max = 1ULL << 30;
	spec.user = xstrdup(user);
	spec.cwd = xstrdup(cwd);
	for (size_t i = 0; env && i < b->args.n; i++)
		pairs_add(&spec.env, b->args.v[i].key, b->args.v[i].value);
	for (size_t i = 0; env && i < env->n; i++)
		pairs_add(&spec.env, env->v[i].key, env->v[i].value);
	b->asking = asking;
	b->after = after;
	api_run_start(b->d->api, &b->caller, b->sandbox, &spec, on_run_started, b);
	run_spec_done(&spec);
}

static char **argv_of(const char *a, const char *b, const char *c)
{
	char **v = xcalloc(4, sizeof *v);
	v[0] = xstrdup(a);
	v[1] = xstrdup(b);
	v[2] = xstrdup(c);
	return v;
}

static void on_op_end(void *ctx, const struct err *e)
{
	struct build *b = ctx;
	b->op = NULL;
	if (e)
		fail_build(b, e);
	else
		b->after(b);
}

/* --- the image's own environment, for values that refer to it --- */

static void on_environment(struct build *b)
{
	for (size_t at = 0; at < b->asked.len;) {
		const char *line = b->asked.data + at;
		size_t n = strnlen(line, b->asked.len - at);
		const char *eq = memchr(line, '=', n);
		if (eq && b->base.n < SPEC_ENV_MAX) {
			auto_free char *key = xstrndup(line, (size_t)(eq - line)), *value = xstrndup(eq + 1, n - (size_t)(eq + 1 - line));
			pairs_add(&b->base, key, value);
		}
		at += n + 1;
	}
	build_next(b);
}

/* --- contexts --- */

static void extract(struct build *b);

static void write_more(struct build *b)
{
	static char chunk[CHUNK]; /* one loop, and nothing called from here writes into it */
	struct err e;
	size_t room;
	while (b->op && (room = api_op_room(b->op)) > 0) {
		ssize_t n = b->part_fd < 0 ? 0 : read(b->part_fd, chunk, MIN(room, sizeof chunk));
		if (n > 0) {
			if (api_op_write(b->op, (struct str){ chunk, (size_t)n }) < 0)
				return;
			continue;
		}
		b->part_fd = close_fd(b->part_fd);
		int fd = n < 0 ? -EIO : api_context_open(b->d->api, &b->caller, b->hashes[b->hash], b->part + 1, &e);
		if (fd == -ENOENT) { /* that was the last part */
			api_op_eof(b->op);
			return;
		}
		if (fd < 0) {
			api_op_cancel(take_ptr(&b->op));
			fail_build(b, n < 0 ? (err_set(&e, ERR_UNAVAILABLE, EIO, "a build context cannot be read"), &e) : &e);
			return;
		}
		b->part++;
		b->part_fd = fd;
	}
}

static void on_write_open(void *ctx)
{
	write_more(ctx);
}

static void stage(struct build *b)
{
	static const struct op_events events = { .on_open = on_write_open, .on_room = on_write_open, .on_end = on_op_end };
	char path[64];
	struct err e;
	b->part = 1;
	b->part_fd = api_context_open(b->d->api, &b->caller, b->hashes[b->hash], 1, &e);
	if (b->part_fd < 0) {
		fail_build(b, &e);
		return;
	}
	snprintf(path, sizeof path, STAGE "/%zu.tar", b->hash);
	const struct op_spec spec = { .kind = OP_WRITE, .path = path, .user = "root", .cwd = "/", .mode = 0600, .has_mode = true, .flags = OP_F_PARENTS };
	b->after = extract;
	b->op = api_op_open(b->d->api, &b->caller, b->sandbox, &spec, &events, b, &e);
	if (!b->op)
		fail_build(b, &e);
}

static void staged_one(struct build *b)
{
	if (b->hashes[++b->hash]) {
		stage(b);
		return;
	}
	b->staged = true;
	b->at--; /* the step that needs them, again */
	build_next(b);
}

static void extract(struct build *b)
{
	auto_free char *script = xasprintf("umask 022; mkdir -p " STAGE "/files && tar -x -f " STAGE "/%zu.tar -C " STAGE "/files --no-same-owner && rm " STAGE
					   "/%zu.tar", b->hash, b->hash);
	run(b, argv_of("/bin/sh", "-c", script), false, "root", "/", NULL, staged_one);
}

/* --- what a step has made is kept --- */

static void unstaged(struct build *b)
{
	b->staged = false;
	b->hash = 0;
	layer_keep(b);
}

static void step_over(struct build *b)
{
	if (!layer_due(b))
		build_next(b);
	else if (b->staged)
		run(b, argv_of("/bin/rm", "-rf", STAGE), false, "root", "/", NULL, unstaged);
	else
		layer_keep(b);
}

/* --- COPY --- */

/* Text for the shell in which only * ? and [ ] keep a meaning. */
static void add_pattern(struct buf *to, const char *text)
{
	for (; *text; text++) {
		if (*text != '/' && *text != '.' && *text != '_' && *text != '-' && *text != '*' && *text != '?' && *text != '[' && *text != ']' &&
		    !(*text >= '0' && *text <= '9') && !((*text | 32) >= 'a' && (*text | 32) <= 'z') && !((unsigned char)*text & 0x80))
			buf_addc(to, '\\');
		buf_addc(to, *text);
	}
}

static void add_quoted(struct buf *to, const char *text)
{
	buf_addc(to, '\'');
	for (; *text; text++)
		if (*text == '\'')
			buf_addz(to, "'\\''");
		else
			buf_addc(to, *text);
	buf_addc(to, '\'');
}

/* Where the step under way is carried out. */
static const char *directory(const struct build *b)
{
	return b->cwd ? b->cwd : b->from_cwd ? b->from_cwd : "/";
}

static void copy_step(struct build *b, struct dockerfile_step *s)
{
	/* A folder's content goes into the destination; a file into it when it ends in a slash, is a folder, or gets several. */
	static const char body[] = "; [ $# -gt 0 ] || { echo 'COPY: no such file in the context' >&2; exit 1; }\n"
				   "case $dest in */) mkdir -p \"$dest\";; esac\n"
				   "for s; do\n"
				   " [ -e \"$s\" ] || [ -L \"$s\" ] || { echo \"COPY: ${s#./}: no such file in the context\" >&2; exit 1; }\n"
				   " [ -z \"$owner\" ] || chown -hR \"$owner\" \"$s\" || exit 1\n"
				   " if [ -d \"$s\" ] && [ ! -L \"$s\" ]; then mkdir -p \"$dest\" && cp -a \"$s/.\" \"$dest/\" || exit 1\n"
				   " elif [ $# -gt 1 ]; then mkdir -p \"$dest\" && cp -a \"$s\" \"$dest/\" || exit 1\n"
				   " else case $dest in */) ;; *) mkdir -p \"$(dirname \"$dest\")\";; esac; cp -a \"$s\" \"$dest\" || exit 1; fi\n"
				   "done";
	size_t n = 0;
	while (s->argv[n + 1])
		n++;
	const char *dest = s->argv[n];
	auto_buf struct buf script;
	buf_init(&script, 120U << 10); /* one argument of a program */
	auto_free char *full = *dest == '/' ? xstrdup(dest) : xasprintf("%s/%s", directory(b), dest);
	buf_addz(&script, "umask 022; cd " STAGE "/files || exit 1; owner=");
	add_quoted(&script, s->chown ? s->chown : "");
	buf_addz(&script, "; dest=");
	add_quoted(&script, full);
	buf_addz(&script, "; set --");
	for (size_t i = 0; i < n; i++) {
		const char *source = s->argv[i];
		while (*source == '/')
			source++;
		buf_addz(&script, " ./");
		add_pattern(&script, source);
	}
	buf_addz(&script, body);
	struct err e;
	if (script.overflow) {
		err_set(&e, ERR_TOO_LARGE, E2BIG, "%.200s: too long", s->line);
		fail_build(b, &e);
		return;
	}
	run(b, argv_of("/bin/sh", "-c", script.data), false, "root", "/", NULL, step_over);
}

/* --- the end --- */

static void on_snapshot(void *ctx, const struct err *e, const struct snapshot_view *v)
{
	struct build *b = ctx;
	(void)v;
	over(b, e);
}

static void settle(struct build *b)
{
	struct err e;
	struct sandbox_view v;
	struct pairs env = { 0 };
	pairs_copy(&env, &b->env);
	for (size_t i = 0; i < b->spec.env.n; i++) /* what the client asked for goes over the image's */
		pairs_add(&env, b->spec.env.v[i].key, b->spec.env.v[i].value);
	int rc = api_sandbox_set_env(b->d->api, &b->caller, b->sandbox, &env, NULL, &e);
	pairs_done(&env);
	if (rc == 0)
		rc = api_sandbox_get(b->d->api, &b->caller, b->sandbox, &v, &e);
	if (rc < 0) {
		fail_build(b, &e);
	} else if (b->name) {
		json_t *ours = json_incref(b->extra);
		auto_free char *extra = extra_text(NULL, ours);
		json_decref(ours);
		api_snapshot_create(b->d->api, &b->caller, b->sandbox, b->name, false, extra, on_snapshot, b);
	} else {
		over(b, NULL);
	}
}

static void clean(struct build *b)
{
	if (b->staged)
		run(b, argv_of("/bin/rm", "-rf", STAGE), false, "root", "/", NULL, settle);
	else
		settle(b);
}

/* --- the steps --- */

static int env_step(struct build *b, struct dockerfile_step *s, struct err *e)
{
	for (size_t i = 0; i < s->env.n; i++) {
		struct pairs *to = s->kind == STEP_ENV ? &b->env : &b->args;
		struct pairs known = { 0 };
		pairs_copy(&known, &b->args);
		for (size_t k = 0; k < b->env.n; k++)
			pairs_add(&known, b->env.v[k].key, b->env.v[k].value);
		auto_free char *value = dockerfile_expand(s->env.v[i].value, &known, &b->base);
		pairs_done(&known);
		if (!value)
			return err_set(e, ERR_TOO_LARGE, E2BIG, "%.200s: the value is too long", s->line);
		pairs_add(to, s->env.v[i].key, value);
	}
	return 0;
}

static void make_directory(struct build *b, const char *path)
{
	static const struct op_events events = { .on_end = on_op_end };
	const struct op_spec spec = { .kind = OP_MKDIR, .path = path, .user = "root", .cwd = "/", .mode = 0755, .flags = OP_F_PARENTS };
	struct err e;
	b->after = build_next;
	b->op = api_op_open(b->d->api, &b->caller, b->sandbox, &spec, &events, b, &e);
	if (!b->op)
		fail_build(b, &e);
}

static void run_step(struct build *b, struct dockerfile_step *s)
{
	char **argv = s->argv ? strv_copy(s->argv) : argv_of("/bin/sh", "-c", s->text);
	run(b, argv, false, b->user, directory(b), &b->env, step_over);
}

/* True: it has only changed what is known, and is over. */
static bool known_step(struct build *b, struct dockerfile_step *s, struct err *e, int *ret_rc)
{
	*ret_rc = 0;
	if (s->kind == STEP_ENV || s->kind == STEP_ARG)
		*ret_rc = env_step(b, s, e);
	else if (s->kind == STEP_USER)
		b->user = s->text;
	else if (s->kind == STEP_WORKDIR)
		b->cwd = s->text;
	return s->kind == STEP_ENV || s->kind == STEP_ARG || s->kind == STEP_USER || b->at <= b->kept;
}

static void act(struct build *b, struct dockerfile_step *s)
{
	if (s->kind == STEP_WORKDIR)
		make_directory(b, s->text);
	else if (s->kind == STEP_RUN)
		run_step(b, s);
	else if (!b->staged && b->hashes && b->hashes[0])
		stage(b);
	else
		copy_step(b, s);
}

void build_next(struct build *b)
{
	struct err e;
	while (b->at < b->f.n_steps) {
		struct dockerfile_step *s = &b->f.steps[b->at++];
		bool again = s->kind == STEP_COPY && b->staged && b->hash && !b->hashes[b->hash] && b->part;
		if (!again) {
			auto_free char *line = xasprintf("Step %zu/%zu : %s\n%s", b->at, b->f.n_steps, s->line, b->at <= b->kept ? "cached\n" : "");
			build_say(b, str_of(line));
		}
		b->part = 0;
		int rc;
		if (!known_step(b, s, &e, &rc)) {
			act(b, s);
			return;
		}
		if (rc < 0) {
			fail_build(b, &e);
			return;
		}
	}
	clean(b);
}

static void begin(struct build *b)
{
	bool ask = false;
	for (size_t i = 0; i < b->f.n_steps; i++)
		for (size_t k = 0; k < b->f.steps[i].env.n; k++)
			ask = ask || strchr(b->f.steps[i].env.v[k].value, '$');
	auto_free char *line = xasprintf("FROM %s\n", b->f.image);
	build_say(b, str_of(line));
	if (ask)
		run(b, argv_of("/usr/bin/env", "-0", NULL), true, b->user, "/", NULL, on_environment);
	else
		build_next(b);
}

/* --- from outside --- */

/* The sandbox's own id is in it: a fork has a record as well, and is somebody's. */
static int record(struct build *b, const struct sandbox_view *v, struct err *e)
{
	return extra_put(b->d, &b->caller, v, RECORD, json_pack("{s:s, s:s, s:s, s:O*}", "id", b->id, "name", b->name, "sandbox", v->id, "extra", b->extra), e);
}

static void create_sandbox(struct build *b, bool from_layer);

static void on_created(void *ctx, const struct err *e, const struct sandbox_view *v)
{
	struct build *b = ctx;
	build_started_fn started = b->started;
	void *started_ctx = b->started_ctx;
	if (e && b->kept) { /* the layer went in this moment, or does not suit any more */
		b->kept = 0;
		create_sandbox(b, false);
		return;
	}
	b->started = NULL;
	if (e) {
		struct err copy = *e;
		build_free(b);
		if (started)
			started(started_ctx, &copy, NULL);
		return;
	}
	b->sandbox = xstrdup(v->id);
	pairs_copy(&b->env, &v->spec->env); /* of the snapshot that it begins as */
	if (!b->name)
		snprintf(b->id, sizeof b->id, "%s", v->id);
	struct err why;
	int rc = b->name ? record(b, v, &why) : 0;
	if (started)
		started(started_ctx, NULL, v);
	if (rc < 0)
		fail_build(b, &why);
	else
		begin(b);
}

static struct build *build_new(struct daytona *d, const struct caller *c, const char *name, json_t *extra)
{
	struct build *b = xcalloc(1, sizeof *b);
	*b = (struct build){ .d = d, .caller = *c, .name = xstrdup(name), .extra = extra, .part_fd = -EBADF, .user = "root", .next = d->builds };
	random_uuid(b->id);
	b->created_ms = b->updated_ms = now_unix_ms();
	buf_init(&b->log, BUILD_LOG_MAX);
	buf_init(&b->asked, 1U << 20);
	if (b->next)
		b->next->prev = b;
	d->builds = b;
	return b;
}

static void inherit(struct resources *r, const struct resources *from)
{
	if (r->cpus == 0)
		r->cpus = from->cpus;
	if (r->memory_mib == 0)
		r->memory_mib = from->memory_mib;
	if (r->disk_mib == 0)
		r->disk_mib = from->disk_mib;
	if (r->pids == 0)
		r->pids = from->pids;
}

static void create_sandbox(struct build *b, bool from_layer)
{
	struct api *api = b->d->api;
	struct sandbox_spec bare;
	struct snapshot_view s;
	struct image_view image;
	struct err e;
	auto_free char *parent = NULL;
	/* The steps see the image's variables and those of the Dockerfile; what the client asked for comes at the end. */
	spec_copy(&bare, &b->spec);
	pairs_done(&bare.env);
	free(take_ptr(&b->from_cwd));
	if (api_snapshot_get(api, &b->caller, b->f.image, &s, &e) == 0) { /* FROM a snapshot of the caller's */
		free(take_ptr(&bare.image));
		bare.from_snapshot = xstrdup(s.id);
		inherit(&bare.resources, &s.spec->resources);
		b->from_cwd = xstrdup(s.spec->workdir);
		parent = xstrdup(s.id);
	} else if (api_image_get(api, &b->caller, b->f.image, &image, &e) == 0) {
		parent = xstrdup(image.digest);
	}
	resources_fill(&bare.resources, bare.ephemeral); /* a layer has its own, which are others' */
	if (from_layer && parent)
		layers_begin(b, &bare, parent);
	api_sandbox_create(api, &b->caller, &bare, on_created, b);
	spec_done(&bare);
}

void build_start(struct daytona *d, const struct caller *c, struct sandbox_spec *spec, struct dockerfile *f, char **hashes, const char *snapshot,
                 json_t *extra, build_started_fn started, void *ctx)
{
	struct build *b = build_new(d, c, snapshot, extra);
	b->spec = *spec;
	b->f = *f;
	b->hashes = hashes;
	b->started = started;
	b->started_ctx = ctx;
	*spec = (struct sandbox_spec){ 0 };
	*f = (struct dockerfile){ 0 };
	create_sandbox(b, true);
}

void build_forget_starter(struct daytona *d, void *ctx)
{
	for (struct build *b = d->builds; b; b = b->next)
		if (b->started && b->started_ctx == ctx)
			b->started = NULL;
}

static void view(const struct build *b, struct build_view *ret)
{
	*ret = (struct build_view){ b->id, b->name, b->state, b->state == BUILD_FAILED ? b->why.message : NULL, b->created_ms, b->updated_ms, &b->spec, b->extra };
}

struct build *build_lookup(const struct daytona *d, const struct caller *c, const char *ref)
{
	for (struct build *b = d->builds; b; b = b->next)
		if (b->sandbox && streq(b->caller.tenant, c->tenant) && (streq(b->id, ref) || streq(b->name, ref) || (!b->name && streq(b->sandbox, ref))))
			return b;
	return NULL;
}

bool build_find(struct daytona *d, const struct caller *c, const char *ref, struct build_view *ret)
{
	const struct build *b = build_lookup(d, c, ref);
	if (b)
		view(b, ret);
	return b;
}

bool build_in_sandbox(const struct daytona *d, const char *id)
{
	for (const struct build *b = d->builds; b; b = b->next)
		if (!b->name && b->state == BUILD_RUNNING && (!b->sandbox || streq(b->sandbox, id)))
			return true;
	return false;
}

bool build_under_way(const struct daytona *d, const struct caller *c, const char *name)
{
	for (const struct build *b = d->builds; b; b = b->next)
		if (b->state == BUILD_RUNNING && streq(b->name, name) && streq(b->caller.tenant, c->tenant))
			return true;
	return false;
}

bool build_cancel(struct daytona *d, const struct caller *c, const char *ref, api_done_fn done, void *ctx)
{
	struct build *b = build_lookup(d, c, ref);
	if (!b || !b->name || b->state != BUILD_RUNNING)
		return false;
	auto_free char *sandbox = xstrdup(b->sandbox);
	build_free(b);
	api_sandbox_delete(d->api, c, sandbox, done, ctx);
	return true;
}

void build_each(struct daytona *d, const struct caller *c, void (*each)(void *ctx, const struct build_view *v), void *ctx)
{
	struct build_view v;
	for (struct build *b = d->builds; b; b = b->next)
		if (b->name && b->sandbox && b->state != BUILD_DONE && streq(b->caller.tenant, c->tenant)) {
			view(b, &v);
			each(ctx, &v);
		}
}

bool build_dismiss(struct daytona *d, const struct caller *c, const char *ref)
{
	struct build *b = build_lookup(d, c, ref);
	if (!b || b->state == BUILD_RUNNING)
		return false;
	bool failed = b->state == BUILD_FAILED;
	build_free(b);
	return failed;
}

void builds_done(struct daytona *d)
{
	while (d->builds)
		build_free(d->builds);
}

/* --- after a restart: what an earlier server left under way has failed, and says so --- */

struct left {
	struct caller owner;
	char id[40];
	json_t *record; /* NULL: the sandbox itself was being built */
};

struct left_list {
	struct left *v;
	size_t n;
};

static void note_left(void *ctx, const struct caller *owner, const struct sandbox_view *v)
{
	struct left_list *l = ctx;
	json_t *extra = extra_load(v), *record = json_object_get(extra, RECORD);
	bool itself = streq(json_string_value(json_object_get(extra, "build")), "running");
	bool snapshot = streq(json_string_value(json_object_get(record, "sandbox")), v->id);
	if (itself || snapshot) {
		l->v = xreallocarray(l->v, l->n + 1, sizeof *l->v);
		l->v[l->n] = (struct left){ .owner = *owner, .record = snapshot ? json_incref(record) : NULL };
		snprintf(l->v[l->n++].id, sizeof l->v->id, "%s", v->id);
	}
	json_decref(extra);
}

static void end_left(struct daytona *d, const struct left *x)
{
	struct sandbox_view v;
	struct snapshot_view s;
	struct err e, quiet;
	const char *name = json_string_value(json_object_get(x->record, "name")), *id = json_string_value(json_object_get(x->record, "id"));
	if (api_sandbox_get(d->api, &x->owner, x->id, &v, &quiet) < 0)
		return;
	struct build *b = build_new(d, &x->owner, name, json_incref(json_object_get(x->record, "extra")));
	snprintf(b->id, sizeof b->id, "%s", id ? id : x->id);
	b->sandbox = xstrdup(x->id);
	spec_copy(&b->spec, v.spec);
	b->created_ms = v.created_ms;
	bool made = name && api_snapshot_get(d->api, &x->owner, name, &s, &quiet) == 0 && s.state == SNAPSHOT_READY && streq(s.sandbox, x->id);
	err_set(&e, ERR_UNAVAILABLE, EINTR, "the server was restarted while the image was built");
	over(b, made ? NULL : &e);
}

void builds_resume(struct daytona *d)
{
	struct left_list l = { 0 };
	api_sandbox_each(d->api, note_left, &l);
	for (size_t i = 0; i < l.n; i++) {
		end_left(d, &l.v[i]);
		json_decref(l.v[i].record);
	}
	free(l.v);
}
