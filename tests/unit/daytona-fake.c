#include "daytona-fake-int.h"

static const struct fake_command *commands;
static size_t n_commands;

void fake_set_commands(const struct fake_command *c, size_t n)
{
	commands = c;
	n_commands = n;
}

struct api *fake_new(uv_loop_t *loop)
{
	struct api *a = xcalloc(1, sizeof(*a));
	a->loop = loop;
	buf_init(&a->head, 1 << 20);
	return a;
}

void fake_free(struct api *a)
{
	for (size_t i = 0; i < SANDBOXES; i++)
		if (a->boxes[i].id[0])
			spec_done(&a->boxes[i].spec);
	for (size_t i = 0; i < a->n_runs; i++) {
		run_spec_done(&a->runs[i].spec);
		buf_done(&a->runs[i].in);
	}
	for (size_t i = 0; i < SESSIONS; i++)
		free(a->sessions[i].id);
	for (size_t i = 0; i < FILES; i++) {
		free(a->files[i].path);
		buf_done(&a->files[i].data);
	}
	spec_done(&a->last);
	buf_done(&a->head);
	free(a);
}

size_t fake_pending(struct api *a)
{
	return a->pending;
}
const char *fake_seen_head(struct api *a)
{
	return a->head.len ? a->head.data : "";
}
const struct run_spec *fake_last_run(struct api *a)
{
	return fake_run_before(a, 0);
}

const struct run_spec *fake_run_before(struct api *a, size_t back)
{
	assert(back < a->n_runs);
	return &a->runs[a->n_runs - 1 - back].spec;
}
const struct sandbox_spec *fake_last_spec(struct api *a)
{
	return &a->last;
}

const struct fake_file *fake_file(struct api *a, const char *path)
{
	for (size_t i = 0; i < FILES; i++)
		if (streq(a->files[i].path, path))
			return &a->files[i];
	return NULL;
}

void fake_put_file(struct api *a, const char *path, const void *p, size_t n)
{
	size_t i;
	for (i = 0; i < FILES && a->files[i].path && !streq(a->files[i].path, path); i++)
		;
	assert(i < FILES);
	free(a->files[i].path);
	buf_done(&a->files[i].data);
	a->files[i].path = xstrdup(path);
	buf_init(&a->files[i].data, 64 << 20);
	buf_add(&a->files[i].data, p, n);
}

/* --- keys --- */

void api_forget(struct api *a, void *ctx)
{
	(void)a, (void)ctx;
}

int api_authenticate(struct api *a, struct str key, struct caller *ret, struct err *e)
{
	(void)a;
	if (!str_eqz(key, FAKE_KEY))
		return err_set(e, ERR_UNAUTHENTICATED, 0, "not a valid key");
	snprintf(ret->tenant, sizeof(ret->tenant), "t");
	return 0;
}

struct box *fake_lookup(struct api *a, const char *ref, struct err *e)
{
	for (size_t i = 0; i < SANDBOXES; i++)
		if (a->boxes[i].used && (streq(a->boxes[i].id, ref) || streq(a->boxes[i].spec.name, ref)))
			return &a->boxes[i];
	err_set(e, ERR_NOT_FOUND, ENOENT, "no sandbox %s", ref);
	return NULL;
}

int api_authenticate_preview(struct api *a, const char *ref, struct str token, struct caller *ret, struct err *e)
{
	(void)ret;
	return fake_lookup(a, ref, e) && str_eqz(token, FAKE_TOKEN) ? 0 : err_set(e, ERR_UNAUTHENTICATED, 0, "no");
}

int api_owner_of(struct api *a, const char *id, struct caller *ret, struct err *e)
{
	(void)ret;
	return fake_lookup(a, id, e) ? 0 : -ENOENT;
}

void api_sandbox_each(struct api *a, void (*each)(void *ctx, const struct caller *owner, const struct sandbox_view *v), void *ctx)
{
	(void)a, (void)each, (void)ctx; /* nothing of it outlives a server */
}

/* --- sandboxes --- */

static void view_of(const struct box *b, struct sandbox_view *v)
{
	*v = (struct sandbox_view){ .id = b->id, .name = b->spec.name, .state = b->state, .boundary = "process", .spec = &b->spec, .user = "daytona",
		                    .owner = "k", .preview_token = FAKE_TOKEN, .created_ms = 1767225600000, .updated_ms = 1767225600000, .active_ms = 1767225600000 };
}

static void tell(struct api *a, const char *type, const struct box *b, enum sandbox_state old)
{
	struct sandbox_view v;
	view_of(b, &v);
	const struct event_view ev = { .type = type, .sandbox = &v, .old_state = old };
	for (struct subscription *s = a->subscriptions, *next; s; s = next) {
		next = s->next;
		s->on_event(s->ctx, &ev);
	}
}

void api_sandbox_create(struct api *a, const struct caller *c, const struct sandbox_spec *spec, api_sandbox_fn done, void *ctx)
{
	(void)c;
	struct err e = { 0 };
	struct sandbox_view v;
	struct box *b = a->boxes;
	while (b->used)
		b++;
	int rc = spec_validate(spec, &e);
	if (rc == 0 && spec->image && !streq(spec->image, "default") && !streq(spec->image, "debian:12"))
		rc = err_set(&e, ERR_NOT_FOUND, ENOENT, "image %s is not here: default, debian:12 are", spec->image);
	struct err quiet;
	if (rc == 0 && spec->name && fake_lookup(a, spec->name, &quiet))
		rc = err_set(&e, ERR_CONFLICT, EEXIST, "name %s is taken", spec->name);
	if (rc < 0) {
		done(ctx, &e, NULL);
		return;
	}
	if (b->id[0])
		spec_done(&b->spec);
	*b = (struct box){ .used = true, .state = SANDBOX_RUNNING };
	random_uuid(b->id);
	spec_init(&b->spec);
	b->spec.name = xstrdup(spec->name ? spec->name : b->id);
	free(b->spec.image);
	b->spec.image = xstrdup(spec->image);
	b->spec.user = xstrdup(spec->user);
	b->spec.workdir = xstrdup(spec->workdir);
	b->spec.extra = xstrdup(spec->extra);
	b->spec.resources = spec->resources;
	b->spec.lifetime = spec->lifetime;
	b->spec.network = spec->network;
	b->spec.network_allow = strv_copy(spec->network_allow);
	pairs_copy(&b->spec.env, &spec->env);
	pairs_copy(&b->spec.labels, &spec->labels);
	volume_mounts_copy(&b->spec.volumes, &spec->volumes);
	view_of(b, &v);
	tell(a, "sandbox.created", b, SANDBOX_CREATING);
	done(ctx, NULL, &v);
}

int api_sandbox_get(struct api *a, const struct caller *c, const char *ref, struct sandbox_view *ret, struct err *e)
{
	(void)c;
	struct box *b = fake_lookup(a, ref, e);
	if (!b)
		return -ENOENT;
	view_of(b, ret);
	return 0;
}

int api_sandbox_list(struct api *a, const struct caller *c, const struct sandbox_query *q, void (*each)(void *, const struct sandbox_view *), void *ctx,
                     char **ret_next, uint64_t *ret_total, struct err *e)
{
	(void)c, (void)e;
	uint64_t seen = 0, from = q->cursor ? strtoull(q->cursor, NULL, 10) : q->skip, total = 0;
	*ret_next = NULL;
	for (size_t i = 0; i < SANDBOXES; i++) {
		struct box *b = &a->boxes[i];
		bool match = b->used && (!q->states || (q->states & (1U << b->state)));
		for (size_t k = 0; match && k < q->labels.n; k++)
			match = streq(pairs_get(&b->spec.labels, q->labels.v[k].key), q->labels.v[k].value);
		if (!match)
			continue;
		total++;
		if (total <= from || seen >= q->limit)
			continue;
		struct sandbox_view v;
		view_of(b, &v);
		each(ctx, &v);
		seen++;
	}
	if (from + seen < total)
		*ret_next = xasprintf("%llu", (unsigned long long)(from + seen));
	if (ret_total)
		*ret_total = total;
	return 0;
}

static void enter(struct api *a, const char *ref, enum sandbox_state state, api_sandbox_fn done, void *ctx)
{
	struct err e = { 0 };
	struct sandbox_view v;
	struct box *b = fake_lookup(a, ref, &e);
	if (!b) {
		done(ctx, &e, NULL);
		return;
	}
	enum sandbox_state old = b->state;
	b->state = state;
	tell(a, "sandbox.state", b, old);
	view_of(b, &v);
	done(ctx, NULL, &v);
}

void api_sandbox_start(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	(void)c;
	enter(a, ref, SANDBOX_RUNNING, done, ctx);
}
void api_sandbox_stop(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	(void)c;
	enter(a, ref, SANDBOX_STOPPED, done, ctx);
}
void api_sandbox_pause(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	(void)a, (void)c, (void)ref;
	struct err e;
	err_set(&e, ERR_UNSUPPORTED, 0, "this boundary cannot pause");
	done(ctx, &e, NULL);
}
void api_sandbox_resume(struct api *a, const struct caller *c, const char *ref, api_sandbox_fn done, void *ctx)
{
	api_sandbox_pause(a, c, ref, done, ctx);
}
void api_sandbox_delete(struct api *a, const struct caller *c, const char *ref, api_done_fn done, void *ctx)
{
	(void)c;
	struct err e = { 0 };
	struct box *b = fake_lookup(a, ref, &e);
	if (b) {
		b->used = false;
		b->state = SANDBOX_DELETED;
		tell(a, "sandbox.deleted", b, SANDBOX_DELETING);
	}
	done(ctx, b ? NULL : &e);
}
int api_sandbox_set_labels(struct api *a, const struct caller *c, const char *ref, const struct pairs *labels, struct err *e)
{
	(void)c;
	struct box *b = fake_lookup(a, ref, e);
	if (!b)
		return -ENOENT;
	pairs_done(&b->spec.labels);
	pairs_copy(&b->spec.labels, labels);
	return 0;
}
int api_sandbox_set_env(struct api *a, const struct caller *c, const char *ref, const struct pairs *set, char *const *unset, struct err *e)
{
	(void)c;
	struct box *b = fake_lookup(a, ref, e);
	if (!b)
		return -ENOENT;
	struct pairs env = { 0 };
	for (size_t i = 0; i < b->spec.env.n; i++) {
		bool gone = false;
		for (size_t k = 0; unset && unset[k]; k++)
			gone |= streq(unset[k], b->spec.env.v[i].key);
		if (!gone)
			pairs_add(&env, b->spec.env.v[i].key, b->spec.env.v[i].value);
	}
	for (size_t i = 0; i < set->n; i++)
		pairs_add(&env, set->v[i].key, set->v[i].value);
	pairs_done(&b->spec.env);
	b->spec.env = env;
	return 0;
}
int api_sandbox_set_lifetime(struct api *a, const struct caller *c, const char *ref, const struct lifetime *l, struct err *e)
{
	(void)c;
	struct box *b = fake_lookup(a, ref, e);
	if (!b)
		return -ENOENT;
	b->spec.lifetime = *l;
	return 0;
}
void api_sandbox_set_network(struct api *a, const struct caller *c, const char *ref, enum network_mode mode, char *const *allow,
                             char *const *deny, const struct network_limits *limits, api_sandbox_fn done, void *ctx)
{
	struct sandbox_view v;
	struct err e;
	(void)c, (void)deny, (void)limits;
	struct box *b = fake_lookup(a, ref, &e);
	if (!b) {
		done(ctx, &e, NULL);
		return;
	}
	b->spec.network = mode;
	strv_free(b->spec.network_allow);
	b->spec.network_allow = strv_copy(allow);
	view_of(b, &v);
	done(ctx, NULL, &v);
}
int api_sandbox_set_extra(struct api *a, const struct caller *c, const char *ref, const char *extra, struct err *e)
{
	(void)c;
	struct box *b = fake_lookup(a, ref, e);
	if (!b)
		return -ENOENT;
	free(b->spec.extra);
	b->spec.extra = xstrdup(extra);
	return 0;
}
int api_sandbox_touch(struct api *a, const struct caller *c, const char *ref, struct err *e)
{
	(void)c;
	return fake_lookup(a, ref, e) ? 0 : -ENOENT;
}
void api_sandbox_usage(struct api *a, const struct caller *c, const char *ref, api_usage_fn done, void *ctx)
{
	(void)a, (void)c, (void)ref;
	const struct usage u = { .memory_bytes = 100, .memory_limit_bytes = 1000, .cpu_limit = 2, .disk_bytes = 5, .disk_limit_bytes = 50 };
	done(ctx, NULL, &u);
}

/* --- runs --- */

static const char *text_of(const struct run_spec *s)
{
	return s->shell ? s->shell : s->code ? s->code : s->argv[0];
}

static size_t out_length(const struct fake_command *c)
{
	return c->out_n ? c->out_n : strlen(c->out);
}

static bool matches(const struct fake_command *c, const struct run_spec *s)
{
	if (!s->argv)
		return streq(c->text, text_of(s));
	auto_buf struct buf line;
	buf_init(&line, 1 << 20);
	for (size_t i = 0; s->argv[i]; i++)
		buf_addf(&line, "%s ", s->argv[i]);
	return strstr(line.data, c->text);
}

static void run_view_of(const struct fake_run *r, bool ended, struct run_view *v)
{
	*v = (struct run_view){ .id = r->id, .session = r->spec.session, .display = r->spec.display ? r->spec.display : text_of(&r->spec), .pty = r->spec.pty };
	v->state = !ended ? RUN_RUNNING : r->what.lost ? RUN_LOST : r->what.failed ? RUN_FAILED : RUN_EXITED;
	v->exit_code = r->what.code;
	v->timed_out = r->what.timed_out;
	v->oom = r->what.oom;
	v->truncated = r->what.truncated;
	v->message = r->what.failed ? "no such directory" : NULL;
	v->stdout_bytes = out_length(&r->what);
	v->stderr_bytes = strlen(r->what.err);
	v->started_ms = 1767225600000;
}

void api_run_start(struct api *a, const struct caller *c, const char *ref, const struct run_spec *spec, api_run_fn done, void *ctx)
{
	(void)c;
	struct err e = { 0 };
	struct box *b = fake_lookup(a, ref, &e);
	if (!b || run_spec_validate(spec, &e) < 0) {
		done(ctx, &e, NULL);
		return;
	}
	assert(a->n_runs < RUNS);
	struct fake_run *r = &a->runs[a->n_runs++];
	*r = (struct fake_run){ .box = b };
	snprintf(r->id, sizeof(r->id), "run_%zu", a->n_runs);
	run_spec_init(&r->spec);
	r->spec.shell = xstrdup(spec->shell);
	r->spec.code = xstrdup(spec->code);
	r->spec.language = spec->language;
	r->spec.session = xstrdup(spec->session);
	r->spec.display = xstrdup(spec->display);
	r->spec.cwd = xstrdup(spec->cwd);
	r->spec.timeout_ms = spec->timeout_ms;
	r->spec.merge_stderr = spec->merge_stderr;
	r->spec.stdin_open = spec->stdin_open;
	r->spec.pty = spec->pty;
	r->spec.rows = spec->rows;
	r->spec.cols = spec->cols;
	pairs_copy(&r->spec.env, &spec->env);
	r->spec.argv = strv_copy(spec->argv);
	r->spec.stdin_len = spec->stdin_len;
	r->spec.stdin_bytes = spec->stdin_len ? xmemdup(spec->stdin_bytes, spec->stdin_len) : NULL;
	r->pty_open = spec->pty;
	buf_init(&r->in, 1 << 20);
	r->what = (struct fake_command){ .text = text_of(&r->spec), .out = spec->argv ? "" : text_of(&r->spec), .err = "" };
	bool found = false;
	for (size_t i = 0; i < n_commands && !found; i++)
		if ((found = matches(&commands[i], &r->spec)))
			r->what = commands[i];
	struct run_view v;
	run_view_of(r, false, &v);
	done(ctx, NULL, &v);
}

static struct fake_run *find_run(struct api *a, const char *ref, const char *id, struct err *e)
{
	struct box *b = fake_lookup(a, ref, e);
	for (size_t i = 0; b && i < a->n_runs; i++)
		if (a->runs[i].box == b && streq(a->runs[i].id, id))
			return &a->runs[i];
	err_set(e, ERR_NOT_FOUND, ENOENT, "no run %s", id);
	return NULL;
}

int api_run_get(struct api *a, const struct caller *c, const char *ref, const char *run, struct run_view *ret, struct err *e)
{
	(void)c;
	struct fake_run *r = find_run(a, ref, run, e);
	if (!r)
		return -ENOENT;
	run_view_of(r, !r->pty_open && !r->spec.stdin_open, ret);
	return 0;
}

int api_run_list(struct api *a, const struct caller *c, const char *ref, const char *session, void (*each)(void *, const struct run_view *), void *ctx,
                 struct err *e)
{
	(void)c;
	struct box *b = fake_lookup(a, ref, e);
	if (!b)
		return -ENOENT;
	for (size_t i = 0; i < a->n_runs; i++) {
		struct run_view v;
		run_view_of(&a->runs[i], !a->runs[i].pty_open, &v);
		if (a->runs[i].box == b && (!session || streq(session, v.session)))
			each(ctx, &v);
	}
	return 0;
}

int api_run_output(struct api *a, const struct caller *c, const char *ref, const char *run, int stream, uint64_t offset, size_t max, struct buf *out,
                   struct err *e)
{
	(void)c;
	struct fake_run *r = find_run(a, ref, run, e);
	if (!r)
		return -ENOENT;
	const char *text = stream == 1 ? r->what.out : r->what.err;
	size_t n = stream == 1 ? out_length(&r->what) : strlen(text);
	if (offset < n)
		buf_add(out, text + offset, MIN(max, n - offset));
	return 0;
}

int api_run_cancel(struct api *a, const struct caller *c, const char *ref, const char *run, struct err *e)
{
	(void)c;
	struct fake_run *r = find_run(a, ref, run, e);
	if (!r)
		return -ENOENT;
	r->pty_open = false;
	r->what.code = 137;
	return 0;
}
int api_run_resize(struct api *a, const struct caller *c, const char *ref, const char *run, uint16_t rows, uint16_t cols, struct err *e)
{
	(void)c;
	struct fake_run *r = find_run(a, ref, run, e);
	if (!r)
		return -ENOENT;
	r->spec.rows = rows;
	r->spec.cols = cols;
	return 0;
}

int api_run_set_display(struct api *a, const struct caller *c, const char *ref, const char *run, const char *display, struct err *e)
{
	(void)c;
	struct fake_run *r = find_run(a, ref, run, e);
	if (!r)
		return -ENOENT;
	free(r->spec.display);
	r->spec.display = xstrdup(display);
	return 0;
}

/* Takes three bytes at a time; "exit" ends a pty. */
ssize_t api_run_write(struct api *a, const struct caller *c, const char *ref, const char *run, struct str bytes, struct err *e)
{
	(void)c;
	struct fake_run *r = find_run(a, ref, run, e);
	if (!r)
		return -ENOENT;
	if (!r->spec.stdin_open && !r->pty_open)
		return err_set(e, ERR_GONE, EPIPE, "closed");
	size_t n = MIN(bytes.n, 3);
	buf_add(&r->in, bytes.p, n);
	if (r->pty_open && strstr(r->in.data, "exit"))
		r->pty_open = false;
	return (ssize_t)n;
}

static void follower_step(uv_timer_t *t)
{
	struct follower *f = (struct follower *)t;
	const char *texts[2] = { f->run->what.out, f->run->what.err };
	const size_t sizes[2] = { out_length(&f->run->what), strlen(f->run->what.err) };
	for (int i = 0; i < 2 && !f->paused && !f->freed; i++) {
		size_t n = sizes[i];
		if (f->at[i] < n) { /* a little at a time */
			size_t step = MIN(n - f->at[i], 4096);
			uint64_t at = f->at[i];
			f->at[i] += step;
			f->ev.on_output(f->ctx, i + 1, at, (struct str){ texts[i] + at, step });
		}
	}
	if (f->freed || f->ended)
		return;
	if (f->ev.on_stdin_room)
		f->ev.on_stdin_room(f->ctx);
	if (f->freed || f->paused || f->run->pty_open || f->at[0] < sizes[0] || f->at[1] < sizes[1])
		return;
	struct run_view v;
	run_view_of(f->run, true, &v);
	f->ended = true;
	f->ev.on_end(f->ctx, &v);
}

struct follower *api_run_follow(struct api *a, const struct caller *c, const char *ref, const char *run, uint64_t stdout_offset, uint64_t stderr_offset,
                                const struct follower_events *ev, void *ctx, struct err *e)
{
	(void)c;
	struct fake_run *r = find_run(a, ref, run, e);
	if (!r)
		return NULL;
	struct follower *f = xcalloc(1, sizeof(*f));
	*f = (struct follower){ .a = a, .run = r, .ev = *ev, .ctx = ctx, .at = { stdout_offset, stderr_offset } };
	uv_timer_init(a->loop, &f->timer);
	uv_timer_start(&f->timer, follower_step, 1, 1);
	a->pending++;
	return f;
}
void follower_pause(struct follower *f)
{
	f->paused = true;
}
void follower_resume(struct follower *f)
{
	f->paused = false;
}
void fake_free_handle(uv_handle_t *h)
{
	free(h);
}
void follower_free(struct follower *f)
{
	assert(!f->freed);
	f->freed = true;
	f->a->pending--;
	uv_close((uv_handle_t *)&f->timer, fake_free_handle);
}

/* --- sessions --- */

static struct fake_session *find_session(struct api *a, const char *ref, const char *id, struct err *e)
{
	struct box *b = fake_lookup(a, ref, e);
	for (size_t i = 0; b && i < SESSIONS; i++)
		if (a->sessions[i].box == b && streq(a->sessions[i].id, id))
			return &a->sessions[i];
	err_set(e, ERR_NOT_FOUND, ENOENT, "no session %s", id);
	return NULL;
}
void api_session_create(struct api *a, const struct caller *c, const char *ref, const char *id, const char *cwd, const struct pairs *env, api_done_fn done,
                        void *ctx)
{
	(void)c, (void)cwd, (void)env;
	struct err e = { 0 };
	if (find_session(a, ref, id, &e)) {
		err_set(&e, ERR_CONFLICT, EEXIST, "session exists");
		done(ctx, &e);
		return;
	}
	size_t i = 0;
	while (a->sessions[i].id)
		i++;
	a->sessions[i] = (struct fake_session){ fake_lookup(a, ref, &e), xstrdup(id), !streq(id, "dead") };
	done(ctx, NULL);
}
int api_session_list(struct api *a, const struct caller *c, const char *ref, void (*each)(void *, const struct session_view *), void *ctx, struct err *e)
{
	(void)c;
	struct box *b = fake_lookup(a, ref, e);
	for (size_t i = 0; i < SESSIONS; i++)
		if (a->sessions[i].id && a->sessions[i].box == b)
			each(ctx, &(struct session_view){ a->sessions[i].id, a->sessions[i].alive, 0 });
	return 0;
}
int api_session_get(struct api *a, const struct caller *c, const char *ref, const char *id, struct session_view *ret, struct err *e)
{
	(void)c;
	struct fake_session *s = find_session(a, ref, id, e);
	if (!s)
		return -ENOENT;
	*ret = (struct session_view){ s->id, s->alive, 0 };
	return 0;
}
void api_session_delete(struct api *a, const struct caller *c, const char *ref, const char *id, api_done_fn done, void *ctx)
{
	(void)c;
	struct err e = { 0 };
	struct fake_session *s = find_session(a, ref, id, &e);
	if (s) {
		free(s->id);
		*s = (struct fake_session){ 0 };
	}
	done(ctx, s ? NULL : &e);
}
