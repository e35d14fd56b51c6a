#include "wire/guest_int.h"

#include <errno.h>

/* A request is a row of fields {u16 tag, u16 zero, u32 length, bytes}. A tag that is not known is an error: both ends are
 * of one version. */
enum tag {
	TAG_ARG = 1,
	TAG_ENV,
	TAG_CWD,
	TAG_USER,
	TAG_SESSION,
	TAG_SUFFIX,
	TAG_SCRIPT,
	TAG_STDIN,
	TAG_RUN, /* u32 flags, u16 rows, u16 cols, u64 timeout */
	TAG_OP,  /* u32 kind, mode, depth, flags, has_mode, port; u64 offset, length */
	TAG_PATH,
	TAG_PATH2,
	TAG_PATTERN,
	TAG_TEXT,
	TAG_OWNER,
	TAG_GROUP,
	TAG_HOSTNAME,
	TAG_MACHINE,
	TAG_SEED,
	TAG_SETUP, /* u64 time, u64 pids */
	TAG_NETWORK, /* u8 1 if there is a link, 6 bytes address of the device */
	TAG_SUDO,  /* u32 0 or 1 */
	TAG_LINE,  /* GUEST_LINE_BYTES */
	TAG_VOLUME, /* u32 1 if it is read-only, else 0; string path */
};
enum { SETUP_FIELD = 16, NETWORK_FIELD = 7, VOLUME_FIXED = 4, HOSTNAME_MAX = 64, MACHINE_ID = 32 };
enum { FIELD_HEAD = 8, RUN_FIELD = 16, OP_FIELD = 40, END_FIXED = 40, INFO_FIXED = 32 };

/* --- frames --- */

void guest_head_put(uint8_t to[static GUEST_HEAD], uint8_t type, uint8_t channel, uint64_t id, size_t payload)
{
	put_u32(to, (uint32_t)payload);
	to[4] = type;
	to[5] = channel;
	put_u16(to + 6, 0);
	put_u64(to + 8, id);
}

ssize_t guest_frame_next(struct str in, struct guest_frame *ret)
{
	if (in.n < GUEST_HEAD)
		return 0;
	uint32_t len = guest_u32(in.p);
	uint8_t type = (uint8_t)in.p[4];
	if (len > GUEST_PAYLOAD_MAX || type == 0 || type >= GUEST_TYPE_END || get_u16(in.p + 6) != 0)
		return -EPROTO;
	if (in.n - GUEST_HEAD < len)
		return 0;
	*ret = (struct guest_frame){
		.type = type,
		.channel = (uint8_t)in.p[5],
		.id = guest_u64(in.p + 8),
		.payload = { in.p + GUEST_HEAD, len },
	};
	return GUEST_HEAD + (ssize_t)len;
}

/* Head and payload, or nothing: a frame cut by a full buffer would break the stream. */
int guest_frame_put(struct buf *out, uint8_t type, uint8_t channel, uint64_t id, struct str payload)
{
	char *to = payload.n > GUEST_PAYLOAD_MAX ? NULL : buf_reserve(out, GUEST_HEAD + payload.n);

	if (!to)
		return -ENOBUFS;
	guest_head_put((uint8_t *)to, type, channel, id, payload.n);
	if (payload.n)
		memcpy(to + GUEST_HEAD, payload.p, payload.n);
	buf_grew(out, GUEST_HEAD + payload.n);
	return 0;
}

int guest_data_put(struct buf *out, size_t *tail, uint8_t type, uint64_t id, struct str bytes)
{
	/* one whose head has been sent already stays as it is */
	bool grows = *tail >= GUEST_HEAD && *tail <= out->len && bytes.n <= GUEST_PAYLOAD_MAX && *tail - GUEST_HEAD <= GUEST_PAYLOAD_MAX - bytes.n;
	int r = grows ? buf_add(out, bytes.p, bytes.n) : guest_frame_put(out, type, 0, id, bytes);

	if (r < 0)
		return r;
	*tail = bytes.n + (grows ? *tail : (size_t)GUEST_HEAD);
	if (grows)
		guest_head_put((uint8_t *)out->data + out->len - *tail, type, 0, id, *tail - GUEST_HEAD);
	return 0;
}

int guest_message_put(struct buf *out, uint8_t type, uint64_t id, struct str message)
{
	size_t frames = message.n / GUEST_PAYLOAD_MAX + 1;

	if (message.n > GUEST_MESSAGE_MAX || !buf_reserve(out, message.n + frames * GUEST_HEAD))
		return -ENOBUFS;
	for (;;) {
		size_t n = MIN(message.n, (size_t)GUEST_PAYLOAD_MAX);
		bool more = message.n > n;
		int r = guest_frame_put(out, type, more ? GUEST_MORE : 0, id, (struct str){ message.p, n });
		if (r < 0 || !more)
			return r;
		message.p += n;
		message.n -= n;
	}
}

int guest_u64_put(struct buf *out, uint8_t type, uint8_t channel, uint64_t id, uint64_t value)
{
	uint8_t p[8];

	put_u64(p, value);
	return guest_frame_put(out, type, channel, id, (struct str){ (const char *)p, sizeof p });
}

/* --- fields --- */

static int put_field(struct buf *b, enum tag tag, const void *p, size_t n)
{
	uint8_t head[FIELD_HEAD] = { 0 };

	put_u16(head, tag);
	put_u32(head + 4, (uint32_t)n);
	if (n > UINT32_MAX || buf_add(b, head, sizeof head) < 0)
		return -ENOBUFS;
	return buf_add(b, p, n);
}

static void put_text(struct buf *b, enum tag tag, const char *z)
{
	if (z)
		(void)put_field(b, tag, z, strlen(z) + 1); /* overflow is looked at once, at the end */
}

struct field {
	unsigned tag;
	struct str bytes;
};

/* 1 = a field was taken off the front of m, 0 = m was empty. */
static int next_field(struct str *m, struct field *ret)
{
	if (m->n == 0)
		return 0;
	if (m->n < FIELD_HEAD || get_u16(m->p + 2) != 0)
		return -EPROTO;
	uint32_t n = guest_u32(m->p + 4);
	if (m->n - FIELD_HEAD < n)
		return -EPROTO;
	*ret = (struct field){ get_u16(m->p), { m->p + FIELD_HEAD, n } };
	m->p += FIELD_HEAD + n;
	m->n -= FIELD_HEAD + n;
	return 1;
}

/* A string that is a C string where it lies. */
static int as_text(struct str s, const char **ret)
{
	if (s.n == 0 || s.n > GUEST_ARG_MAX || memchr(s.p, '\0', s.n) != s.p + s.n - 1)
		return -EPROTO;
	*ret = s.p;
	return 0;
}

static int as_text_once(struct str s, const char **ret)
{
	return *ret ? -EPROTO : as_text(s, ret);
}

/* Sends what was put together in m as a request, and frees it. */
static int send_fields(struct buf *out, uint8_t type, uint64_t id, struct buf *m)
{
	return m->overflow ? -ENOBUFS : guest_message_put(out, type, id, buf_str(m));
}

int guest_run_request_put(struct buf *out, uint8_t type, uint64_t id, const struct guest_run_request *r)
{
	auto_buf struct buf m;
	uint8_t fixed[RUN_FIELD];

	buf_init(&m, GUEST_MESSAGE_MAX);
	put_u32(fixed, r->flags);
	put_u16(fixed + 4, r->rows);
	put_u16(fixed + 6, r->cols);
	put_u64(fixed + 8, r->timeout_ms);
	(void)put_field(&m, TAG_RUN, fixed, sizeof fixed);
	if (r->argc > GUEST_ARGS_MAX || r->envc > GUEST_ARGS_MAX)
		return -ENOBUFS;
	for (size_t i = 0; i < r->argc; i++)
		put_text(&m, TAG_ARG, r->argv[i]);
	for (size_t i = 0; i < r->envc; i++)
		put_text(&m, TAG_ENV, r->env[i]);
	put_text(&m, TAG_CWD, r->cwd);
	put_text(&m, TAG_USER, r->user);
	put_text(&m, TAG_SESSION, r->session);
	put_text(&m, TAG_SUFFIX, r->script_suffix);
	if (r->script.p)
		(void)put_field(&m, TAG_SCRIPT, r->script.p, r->script.n);
	if (r->stdin_bytes.p)
		(void)put_field(&m, TAG_STDIN, r->stdin_bytes.p, r->stdin_bytes.n);
	return send_fields(out, type, id, &m);
}

void guest_run_request_done(struct guest_run_request *r)
{
	free(r->argv);
	free(r->env);
	r->argv = r->env = NULL;
}

static int get_run_fixed(struct str s, struct guest_run_request *r)
{
	if (s.n != RUN_FIELD)
		return -EPROTO;
	r->flags = guest_u32(s.p);
	r->rows = (uint16_t)get_u16(s.p + 4);
	r->cols = (uint16_t)get_u16(s.p + 6);
	r->timeout_ms = guest_u64(s.p + 8);
	return r->flags & ~(uint32_t)GUEST_RUN_FLAGS ? -EPROTO : 0;
}

/* The value may have the length of an argument, and a name stands before it. */
static int get_env(struct str s, const char **env, size_t *n)
{
	if (s.n == 0 || s.n > 2 * (size_t)GUEST_ARG_MAX || memchr(s.p, '\0', s.n) != s.p + s.n - 1 || s.p[0] == '=' || !strchr(s.p, '='))
		return -EPROTO;
	env[(*n)++] = s.p;
	return 0;
}

static int get_run_field(const struct field *f, struct guest_run_request *r)
{
	switch (f->tag) {
	case TAG_ARG:
		/* a session's command comes as argv[0] and may be as long as a script */
		if (f->bytes.n == 0 || memchr(f->bytes.p, '\0', f->bytes.n) != f->bytes.p + f->bytes.n - 1)
			return -EPROTO;
		r->argv[r->argc++] = f->bytes.p;
		return 0;
	case TAG_ENV:
		return get_env(f->bytes, r->env, &r->envc);
	case TAG_CWD:
		return as_text_once(f->bytes, &r->cwd);
	case TAG_USER:
		return as_text_once(f->bytes, &r->user);
	case TAG_SESSION:
		if (f->bytes.n < 2 || f->bytes.n > GUEST_SESSION_ID_MAX + 1)
			return -EPROTO;
		return as_text_once(f->bytes, &r->session);
	case TAG_SUFFIX:
		if (f->bytes.n > 32 || memchr(f->bytes.p, '/', f->bytes.n))
			return -EPROTO;
		return as_text_once(f->bytes, &r->script_suffix);
	case TAG_SCRIPT:
		if (r->script.p)
			return -EPROTO;
		r->script = f->bytes;
		return 0;
	case TAG_STDIN:
		if (r->stdin_bytes.p)
			return -EPROTO;
		r->stdin_bytes = f->bytes;
		return 0;
	case TAG_RUN:
		return get_run_fixed(f->bytes, r);
	default:
		return -EPROTO;
	}
}

int guest_run_request_get(struct str message, struct guest_run_request *ret)
{
	struct guest_run_request r = { 0 };
	struct str m = message;
	struct field f;
	size_t args = 0, envs = 0;
	int got;

	while ((got = next_field(&m, &f)) > 0) {
		args += f.tag == TAG_ARG;
		envs += f.tag == TAG_ENV;
	}
	if (got < 0 || args > GUEST_ARGS_MAX || envs > GUEST_ARGS_MAX)
		return -EPROTO;
	r.argv = xcalloc(args + 1, sizeof *r.argv);
	r.env = xcalloc(envs + 1, sizeof *r.env);
	while (got == 0 && next_field(&message, &f) > 0)
		got = get_run_field(&f, &r);
	if (got < 0) {
		guest_run_request_done(&r);
		return -EPROTO;
	}
	*ret = r;
	return 0;
}

/* --- set-up --- */

static void put_volumes(struct buf *m, const struct guest_setup *s)
{
	uint8_t field[VOLUME_FIXED + 256];

	if (s->line)
		(void)put_field(m, TAG_LINE, s->line, GUEST_LINE_BYTES);
	for (size_t i = 0; s->line && i < s->volumes_n; i++) {
		const size_t n = MIN(strlen(s->volumes[i].path) + 1, sizeof field - VOLUME_FIXED);
		put_u32(field, s->volumes[i].read_only);
		memcpy(field + VOLUME_FIXED, s->volumes[i].path, n);
		(void)put_field(m, TAG_VOLUME, field, VOLUME_FIXED + n);
	}
}

static int get_volume(struct str bytes, struct guest_setup *s)
{
	if (!s->line || s->volumes_n == GUEST_VOLUMES_MAX || bytes.n <= VOLUME_FIXED || guest_u32(bytes.p) > 1)
		return -EPROTO;
	struct guest_volume *v = &s->volumes[s->volumes_n++];
	v->read_only = guest_u32(bytes.p);
	int r = as_text_once((struct str){ bytes.p + VOLUME_FIXED, bytes.n - VOLUME_FIXED }, &v->path);
	return r < 0 || v->path[0] != '/' ? -EPROTO : 0;
}

int guest_setup_put(struct buf *out, uint64_t id, const struct guest_setup *s)
{
	auto_buf struct buf m;
	uint8_t fixed[SETUP_FIELD];

	buf_init(&m, GUEST_MESSAGE_MAX);
	put_u64(fixed, s->time_ns);
	put_u64(fixed + 8, s->pids);
	(void)put_field(&m, TAG_SETUP, fixed, sizeof fixed);
	if (s->envc > GUEST_ARGS_MAX)
		return -ENOBUFS;
	for (size_t i = 0; i < s->envc; i++)
		put_text(&m, TAG_ENV, s->env[i]);
	put_text(&m, TAG_USER, s->user);
	put_text(&m, TAG_CWD, s->workdir);
	put_text(&m, TAG_HOSTNAME, s->hostname);
	put_text(&m, TAG_MACHINE, s->machine_id);
	if (s->seed.p)
		(void)put_field(&m, TAG_SEED, s->seed.p, s->seed.n);
	if (s->link != GUEST_LINK_NONE) {
		fixed[0] = s->link == GUEST_LINK_UP;
		memcpy(fixed + 1, s->mac, sizeof s->mac);
		(void)put_field(&m, TAG_NETWORK, fixed, NETWORK_FIELD);
	}
	put_u32(fixed, s->sudo == GUEST_SUDO_YES);
	if (s->sudo != GUEST_SUDO_AS_IT_IS)
		(void)put_field(&m, TAG_SUDO, fixed, 4);
	put_volumes(&m, s);
	return send_fields(out, GUEST_SETUP, id, &m);
}

void guest_setup_done(struct guest_setup *s)
{
	free(s->env);
	s->env = NULL;
}

static int get_setup_field(const struct field *f, struct guest_setup *s)
{
	int r;

	switch (f->tag) {
	case TAG_SETUP:
		if (f->bytes.n != SETUP_FIELD)
			return -EPROTO;
		s->time_ns = guest_u64(f->bytes.p);
		s->pids = guest_u64(f->bytes.p + 8);
		return 0;
	case TAG_ENV:
		return get_env(f->bytes, s->env, &s->envc);
	case TAG_USER:
		return as_text_once(f->bytes, &s->user);
	case TAG_CWD:
		return as_text_once(f->bytes, &s->workdir);
	case TAG_HOSTNAME:
		return f->bytes.n < 2 || f->bytes.n > HOSTNAME_MAX ? -EPROTO : as_text_once(f->bytes, &s->hostname);
	case TAG_MACHINE:
		r = as_text_once(f->bytes, &s->machine_id);
		return r < 0 || f->bytes.n != MACHINE_ID + 1 || strspn(s->machine_id, "0123456789abcdef") != MACHINE_ID ? -EPROTO : 0;
	case TAG_SEED:
		if (s->seed.p || f->bytes.n < GUEST_SEED_MIN || f->bytes.n > GUEST_SEED_MAX)
			return -EPROTO;
		s->seed = f->bytes;
		return 0;
	case TAG_NETWORK:
		if (s->link != GUEST_LINK_NONE || f->bytes.n != NETWORK_FIELD || (uint8_t)f->bytes.p[0] > 1 || f->bytes.p[1] & 1)
			return -EPROTO;
		s->link = f->bytes.p[0] ? GUEST_LINK_UP : GUEST_LINK_DOWN;
		memcpy(s->mac, f->bytes.p + 1, sizeof s->mac);
		return 0;
	case TAG_SUDO:
		if (s->sudo != GUEST_SUDO_AS_IT_IS || f->bytes.n != 4 || guest_u32(f->bytes.p) > 1)
			return -EPROTO;
		s->sudo = guest_u32(f->bytes.p) ? GUEST_SUDO_YES : GUEST_SUDO_NO;
		return 0;
	case TAG_LINE:
		if (s->line || f->bytes.n != GUEST_LINE_BYTES)
			return -EPROTO;
		s->line = f->bytes.p;
		return 0;
	case TAG_VOLUME:
		return get_volume(f->bytes, s);
	default:
		return -EPROTO;
	}
}

int guest_setup_get(struct str message, struct guest_setup *ret)
{
	struct guest_setup s = { 0 };
	struct str m = message;
	struct field f;
	size_t envs = 0;
	int got;

	while ((got = next_field(&m, &f)) > 0)
		envs += f.tag == TAG_ENV;
	if (got < 0 || envs > GUEST_ARGS_MAX)
		return -EPROTO;
	s.env = xcalloc(envs + 1, sizeof *s.env);
	while (got == 0 && next_field(&message, &f) > 0)
		got = get_setup_field(&f, &s);
	if (got < 0) {
		guest_setup_done(&s);
		return -EPROTO;
	}
	*ret = s;
	return 0;
}

int guest_op_request_put(struct buf *out, uint64_t id, const struct guest_op_request *r)
{
	auto_buf struct buf m;
	uint8_t fixed[OP_FIELD];

	buf_init(&m, GUEST_MESSAGE_MAX);
	put_u32(fixed, r->kind);
	put_u32(fixed + 4, r->mode);
	put_u32(fixed + 8, r->depth);
	put_u32(fixed + 12, r->flags);
	put_u32(fixed + 16, r->has_mode);
	put_u32(fixed + 20, r->port);
	put_u64(fixed + 24, r->offset);
	put_u64(fixed + 32, r->length);
	(void)put_field(&m, TAG_OP, fixed, sizeof fixed);
	put_text(&m, TAG_USER, r->user);
	put_text(&m, TAG_CWD, r->cwd);
	put_text(&m, TAG_PATH, r->path);
	put_text(&m, TAG_PATH2, r->path2);
	put_text(&m, TAG_PATTERN, r->pattern);
	put_text(&m, TAG_TEXT, r->text);
	put_text(&m, TAG_OWNER, r->owner);
	put_text(&m, TAG_GROUP, r->group);
	return send_fields(out, GUEST_OP_OPEN, id, &m);
}

static int get_op_fixed(struct str s, struct guest_op_request *r)
{
	if (s.n != OP_FIELD)
		return -EPROTO;
	r->kind = guest_u32(s.p);
	r->mode = guest_u32(s.p + 4);
	r->depth = guest_u32(s.p + 8);
	r->flags = guest_u32(s.p + 12);
	uint32_t has_mode = guest_u32(s.p + 16), port = guest_u32(s.p + 20);
	r->offset = guest_u64(s.p + 24);
	r->length = guest_u64(s.p + 32);
	if (r->kind >= GUEST_OP_COUNT || r->flags & ~(uint32_t)GUEST_F_ALL || has_mode > 1 || port > 65535 || r->mode > 07777)
		return -EPROTO;
	r->has_mode = has_mode;
	r->port = (uint16_t)port;
	return 0;
}

/* Replacement text may be longer than an argument. */
static int as_long_text_once(struct str s, const char **ret)
{
	if (*ret || s.n == 0 || memchr(s.p, '\0', s.n) != s.p + s.n - 1)
		return -EPROTO;
	*ret = s.p;
	return 0;
}

static int get_op_field(const struct field *f, struct guest_op_request *r)
{
	switch (f->tag) {
	case TAG_OP:
		return get_op_fixed(f->bytes, r);
	case TAG_USER:
		return as_text_once(f->bytes, &r->user);
	case TAG_CWD:
		return as_text_once(f->bytes, &r->cwd);
	case TAG_PATH:
		return as_text_once(f->bytes, &r->path);
	case TAG_PATH2:
		return as_text_once(f->bytes, &r->path2);
	case TAG_PATTERN:
		return as_long_text_once(f->bytes, &r->pattern);
	case TAG_TEXT:
		return as_long_text_once(f->bytes, &r->text);
	case TAG_OWNER:
		return as_text_once(f->bytes, &r->owner);
	case TAG_GROUP:
		return as_text_once(f->bytes, &r->group);
	default:
		return -EPROTO;
	}
}

int guest_op_request_get(struct str message, struct guest_op_request *ret)
{
	struct guest_op_request r = { .kind = GUEST_OP_COUNT };
	struct field f;
	int got;

	while ((got = next_field(&message, &f)) > 0)
		if ((got = get_op_field(&f, &r)) < 0)
			break;
	if (got < 0 || r.kind >= GUEST_OP_COUNT)
		return -EPROTO;
	*ret = r;
	return 0;
}

/* --- answers --- */

int guest_ready_put(struct buf *out, const struct guest_known_run *runs, size_t n)
{
	auto_buf struct buf m;
	uint8_t p[16] = { 0 };

	buf_init(&m, GUEST_MESSAGE_MAX);
	put_u32(p, GUEST_VERSION);
	put_u32(p + 4, (uint32_t)n);
	(void)buf_add(&m, p, 8);
	for (size_t i = 0; i < n; i++) {
		put_u64(p, runs[i].run);
		put_u64(p + 8, runs[i].ended);
		(void)buf_add(&m, p, sizeof p);
	}
	return send_fields(out, GUEST_READY, GUEST_HELLO_ID, &m);
}

int guest_ready_get(struct str m, struct guest_known_run **ret_runs, size_t *ret_n)
{
	if (m.n < 8)
		return -EPROTO;
	if (guest_u32(m.p) != GUEST_VERSION)
		return -EPROTONOSUPPORT;
	size_t n = guest_u32(m.p + 4);
	if (n > GUEST_RUNS_MAX || m.n != 8 + n * 16)
		return -EPROTO;
	struct guest_known_run *runs = xcalloc(n, sizeof *runs);
	for (size_t i = 0; i < n; i++) {
		uint64_t ended = guest_u64(m.p + 8 + i * 16 + 8);
		runs[i] = (struct guest_known_run){ guest_u64(m.p + 8 + i * 16), ended };
		if (ended > 1) {
			free(runs);
			return -EPROTO;
		}
	}
	*ret_runs = runs;
	*ret_n = n;
	return 0;
}

int guest_run_end_put(struct buf *out, uint64_t id, const struct guest_run_end *e)
{
	uint8_t p[END_FIXED + GUEST_TEXT_MAX];
	size_t n = MIN(e->message.n, (size_t)GUEST_TEXT_MAX);

	put_u32(p, (uint32_t)e->exit_code);
	put_u32(p + 4, e->signal);
	put_u32(p + 8, e->flags);
	put_u32(p + 12, e->errnum);
	put_u64(p + 16, e->bytes[0]);
	put_u64(p + 24, e->bytes[1]);
	put_u64(p + 32, e->duration_ms);
	if (n)
		memcpy(p + END_FIXED, e->message.p, n);
	return guest_frame_put(out, GUEST_RUN_END, 0, id, (struct str){ (const char *)p, END_FIXED + n });
}

int guest_run_end_get(struct str s, struct guest_run_end *ret)
{
	if (s.n < END_FIXED || s.n > END_FIXED + GUEST_TEXT_MAX)
		return -EPROTO;
	struct guest_run_end e = {
		.exit_code = (int32_t)guest_u32(s.p),
		.signal = guest_u32(s.p + 4),
		.flags = guest_u32(s.p + 8),
		.errnum = guest_u32(s.p + 12),
		.bytes = { guest_u64(s.p + 16), guest_u64(s.p + 24) },
		.duration_ms = guest_u64(s.p + 32),
		.message = { s.p + END_FIXED, s.n - END_FIXED },
	};
	if (e.exit_code < 0 || e.exit_code > 255 || e.signal > 64 || e.flags & ~(uint32_t)GUEST_END_FLAGS || e.errnum > 4095)
		return -EPROTO;
	*ret = e;
	return 0;
}

int guest_result_put(struct buf *out, uint8_t type, uint64_t id, const struct guest_result *r)
{
	uint8_t p[8 + GUEST_TEXT_MAX];
	size_t n = MIN(r->text.n, (size_t)GUEST_TEXT_MAX);

	put_u32(p, r->kind);
	put_u32(p + 4, r->errnum);
	if (n)
		memcpy(p + 8, r->text.p, n);
	return guest_frame_put(out, type, 0, id, (struct str){ (const char *)p, 8 + n });
}

int guest_result_get(struct str s, struct guest_result *ret)
{
	if (s.n < 8 || s.n > 8 + GUEST_TEXT_MAX)
		return -EPROTO;
	struct guest_result r = { guest_u32(s.p), guest_u32(s.p + 4), { s.p + 8, s.n - 8 } };
	if (r.kind > 255 || r.errnum > 4095)
		return -EPROTO;
	*ret = r;
	return 0;
}

int guest_session_end_put(struct buf *out, int32_t exit_code, const char *session)
{
	uint8_t p[4 + GUEST_SESSION_ID_MAX + 1];
	size_t n = strlen(session) + 1;

	if (n > GUEST_SESSION_ID_MAX + 1)
		return -EINVAL;
	put_u32(p, (uint32_t)exit_code);
	memcpy(p + 4, session, n);
	return guest_frame_put(out, GUEST_SESSION_END, 0, 0, (struct str){ (const char *)p, 4 + n });
}

int guest_session_end_get(struct str s, int32_t *ret_exit_code, const char **ret_session)
{
	const char *id;

	if (s.n < 6 || s.n > 4 + GUEST_SESSION_ID_MAX + 1 || as_text((struct str){ s.p + 4, s.n - 4 }, &id) < 0)
		return -EPROTO;
	int32_t code = (int32_t)guest_u32(s.p);
	if (code < 0 || code > 255)
		return -EPROTO;
	*ret_exit_code = code;
	*ret_session = id;
	return 0;
}

int guest_info_put(struct buf *out, uint64_t id, const struct guest_info *i)
{
	auto_buf struct buf m;
	uint8_t p[INFO_FIXED] = { 0 };

	buf_init(&m, GUEST_PAYLOAD_MAX);
	put_u64(p, i->size);
	put_u64(p + 8, (uint64_t)i->mtime_ms);
	put_u32(p + 16, i->mode);
	put_u32(p + 20, i->uid);
	put_u32(p + 24, i->gid);
	p[28] = i->type;
	p[29] = i->is_dir;
	(void)buf_add(&m, p, sizeof p);
	put_text(&m, TAG_PATH, i->path);
	put_text(&m, TAG_OWNER, i->owner);
	put_text(&m, TAG_GROUP, i->group);
	put_text(&m, TAG_PATH2, i->target);
	return m.overflow ? -ENOBUFS : guest_frame_put(out, GUEST_OP_INFO, 0, id, buf_str(&m));
}

int guest_info_get(struct str s, struct guest_info *ret)
{
	struct field f;
	int got;

	if (s.n < INFO_FIXED)
		return -EPROTO;
	struct guest_info i = {
		.size = guest_u64(s.p),
		.mtime_ms = (int64_t)guest_u64(s.p + 8),
		.mode = guest_u32(s.p + 16),
		.uid = guest_u32(s.p + 20),
		.gid = guest_u32(s.p + 24),
		.type = (uint8_t)s.p[28],
		.is_dir = s.p[29] != 0,
	};
	bool bad = i.type >= GUEST_FILE_TYPES || (uint8_t)s.p[29] > 1 || get_u16(s.p + 30) != 0 || i.mode > 07777;
	s.p += INFO_FIXED;
	s.n -= INFO_FIXED;
	while ((got = next_field(&s, &f)) > 0 && !bad) {
		const char **to = f.tag == TAG_PATH ? &i.path : f.tag == TAG_OWNER ? &i.owner : f.tag == TAG_GROUP ? &i.group :
		                  f.tag == TAG_PATH2 ? &i.target : NULL;
		bad = !to || as_text_once(f.bytes, to) < 0;
	}
	if (bad || got < 0 || !i.path || !i.owner || !i.group)
		return -EPROTO;
	*ret = i;
	return 0;
}

int guest_match_put(struct buf *out, uint64_t id, const char *path, uint64_t line, struct str text)
{
	size_t path_n = strlen(path) + 1;
	auto_buf struct buf m;
	uint8_t p[12];

	buf_init(&m, GUEST_PAYLOAD_MAX);
	put_u64(p, line);
	put_u32(p + 8, (uint32_t)path_n);
	(void)buf_add(&m, p, sizeof p);
	(void)buf_add(&m, path, path_n);
	(void)buf_add(&m, text.p, text.n);
	return m.overflow ? -ENOBUFS : guest_frame_put(out, GUEST_OP_MATCH, 0, id, buf_str(&m));
}

int guest_match_get(struct str s, const char **ret_path, uint64_t *ret_line, struct str *ret_text)
{
	const char *path;

	if (s.n < 12)
		return -EPROTO;
	size_t n = guest_u32(s.p + 8);
	if (n > s.n - 12 || as_text((struct str){ s.p + 12, n }, &path) < 0)
		return -EPROTO;
	*ret_path = path;
	*ret_line = guest_u64(s.p);
	*ret_text = (struct str){ s.p + 12 + n, s.n - 12 - n };
	return 0;
}

int guest_value_add(struct buf *values, const char *name, const char *value)
{
	put_text(values, TAG_TEXT, name);
	put_text(values, TAG_PATTERN, value);
	return values->overflow ? -ENOBUFS : 0;
}

int guest_value_next(struct str *values, const char **ret_name, const char **ret_value)
{
	struct field name, value;
	int got = next_field(values, &name);

	if (got <= 0)
		return got;
	if (next_field(values, &value) <= 0 || name.tag != TAG_TEXT || value.tag != TAG_PATTERN)
		return -EPROTO;
	if (as_text(name.bytes, ret_name) < 0 || as_text(value.bytes, ret_value) < 0)
		return -EPROTO;
	return 1;
}
