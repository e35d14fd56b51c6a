#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/guest.h"

/* The only message in b, put together. */
static struct str only_message(struct guest_assembly *a, const struct buf *b, uint8_t type, uint64_t id)
{
	struct str in = buf_str(b), message = { NULL, 0 };
	struct guest_frame f;
	ssize_t n;
	int got = 0;

	while ((n = guest_frame_next(in, &f)) > 0) {
		assert_int_equal(got, 0);
		assert_int_equal(f.type, type);
		assert_true(f.id == id);
		got = guest_assembly_feed(a, &f, &message);
		in.p += n;
		in.n -= (size_t)n;
	}
	assert_int_equal(n, 0);
	assert_int_equal(in.n, 0);
	assert_int_equal(got, 1);
	return message;
}

static void head_is_as_documented(void **state)
{
	(void)state;
	auto_buf struct buf b;
	static const char want[] = "\x03\0\0\0\x06\x01\0\0\x08\x07\x06\x05\x04\x03\x02\x01"
	                           "abc";
	buf_init(&b, 1000);
	assert_int_equal(guest_frame_put(&b, GUEST_RUN_STDIN, 1, 0x0102030405060708, STR("abc")), 0);
	assert_int_equal(b.len, sizeof want - 1);
	assert_memory_equal(b.data, want, b.len);
}

static void broken_heads_are_refused(void **state)
{
	(void)state;
	struct guest_frame f;
	uint8_t head[GUEST_HEAD];
	struct str in = { (const char *)head, sizeof head };

	for (size_t n = 0; n < GUEST_HEAD; n++) {
		guest_head_put(head, GUEST_HELLO, 0, 1, 0);
		assert_int_equal(guest_frame_next((struct str){ in.p, n }, &f), 0);
	}
	guest_head_put(head, GUEST_HELLO, 0, 1, GUEST_PAYLOAD_MAX + 1);
	assert_int_equal(guest_frame_next(in, &f), -EPROTO);
	guest_head_put(head, GUEST_HELLO, 0, 1, GUEST_PAYLOAD_MAX);
	assert_int_equal(guest_frame_next(in, &f), 0);
	guest_head_put(head, 0, 0, 1, 0);
	assert_int_equal(guest_frame_next(in, &f), -EPROTO);
	guest_head_put(head, GUEST_TYPE_END, 0, 1, 0);
	assert_int_equal(guest_frame_next(in, &f), -EPROTO);
	guest_head_put(head, GUEST_HELLO, 0, 1, 0);
	head[6] = 1;
	assert_int_equal(guest_frame_next(in, &f), -EPROTO);
}

/* Takes the frames off the front: their payloads together, and how many there were. */
static size_t data_of(struct buf *b, struct buf *to)
{
	struct guest_frame f;
	size_t frames = 0;

	for (ssize_t n; (n = guest_frame_next(buf_str(b), &f)) > 0; frames++) {
		assert_int_equal(f.type, GUEST_OP_DATA);
		assert_true(f.id == 7 && f.channel == 0);
		assert_int_equal(buf_add(to, f.payload.p, f.payload.n), 0);
		buf_consume(b, (size_t)n);
	}
	assert_int_equal(b->len, 0);
	return frames;
}

static void small_pieces_of_data_share_a_frame(void **state)
{
	enum { PIECES = 3 * GUEST_PAYLOAD_MAX };
	auto_buf struct buf b, got;
	size_t tail = 0;

	(void)state;
	buf_init(&b, 1 << 20);
	buf_init(&got, 1 << 20);
	for (int i = 0; i < PIECES; i++)
		assert_int_equal(guest_data_put(&b, &tail, GUEST_OP_DATA, 7, (struct str){ i % 2 ? "b" : "a", 1 }), 0);
	assert_int_equal(b.len, PIECES + 3 * GUEST_HEAD);
	assert_int_equal(data_of(&b, &got), 3);
	assert_int_equal(got.len, PIECES);
	for (size_t i = 0; i < PIECES; i++)
		assert_int_equal(got.data[i], i % 2 ? 'b' : 'a');
	/* one whose beginning has gone on its way says already how long it is */
	buf_reset(&got);
	tail = 0;
	assert_int_equal(guest_data_put(&b, &tail, GUEST_OP_DATA, 7, STR("first")), 0);
	char head[4];
	memcpy(head, b.data, sizeof head);
	buf_consume(&b, sizeof head);
	assert_int_equal(guest_data_put(&b, &tail, GUEST_OP_DATA, 7, STR("second")), 0);
	assert_int_equal(guest_data_put(&b, &tail, GUEST_OP_DATA, 7, STR("third")), 0);
	auto_buf struct buf whole;
	buf_init(&whole, 1000);
	buf_add(&whole, head, sizeof head);
	buf_add(&whole, b.data, b.len);
	assert_int_equal(data_of(&whole, &got), 2);
	assert_string_equal(got.data, "firstsecondthird");
	/* a full buffer keeps what it had */
	auto_buf struct buf small;
	buf_init(&small, GUEST_HEAD + 4);
	tail = 0;
	assert_int_equal(guest_data_put(&small, &tail, GUEST_OP_DATA, 7, STR("abc")), 0);
	assert_int_equal(guest_data_put(&small, &tail, GUEST_OP_DATA, 7, STR("de")), -ENOBUFS);
	buf_reset(&got);
	assert_int_equal(data_of(&small, &got), 1);
	assert_string_equal(got.data, "abc");
}

static void a_full_buffer_takes_no_half_frame(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, GUEST_HEAD + 2);
	assert_int_equal(guest_frame_put(&b, GUEST_RUN_STDIN, 0, 1, STR("abc")), -ENOBUFS);
	assert_int_equal(b.len, 0);
	char big[100] = { 0 };
	struct guest_run_request r = { .script = { big, sizeof big } };
	assert_int_equal(guest_run_request_put(&b, GUEST_RUN_START, 1, &r), -ENOBUFS);
	assert_int_equal(b.len, 0);
}

static void run_request_round_trip(void **state)
{
	(void)state;
	auto_buf struct buf b;
	struct guest_assembly a;
	size_t n = 3 * GUEST_PAYLOAD_MAX + 5; /* several frames */
	auto_free char *script = xmalloc(n);
	memset(script, 'x', n);
	script[7] = '\0';
	const char *argv[] = { "sh", "", "a\xff" "b", NULL }, *env[] = { "A=", "B=c=d", NULL };
	struct guest_run_request in = { .argv = argv, .argc = 3, .env = env, .envc = 2, .cwd = "/x", .user = "u", .session = "s",
		                        .script_suffix = ".ts", .script = { script, n }, .stdin_bytes = { "", 0 }, .flags = GUEST_RUN_PTY,
		                        .rows = 65535, .cols = 1, .timeout_ms = UINT64_MAX }, out;
	buf_init(&b, 1 << 20);
	guest_assembly_init(&a);
	assert_int_equal(guest_run_request_put(&b, GUEST_RUN_START, 77, &in), 0);
	struct str m = only_message(&a, &b, GUEST_RUN_START, 77);
	assert_int_equal(guest_run_request_get(m, &out), 0);
	assert_int_equal(out.argc, 3);
	assert_int_equal(out.envc, 2);
	for (int i = 0; i < 3; i++)
		assert_string_equal(out.argv[i], argv[i]);
	assert_string_equal(out.env[1], "B=c=d");
	assert_null(out.env[2]);
	assert_string_equal(out.cwd, "/x");
	assert_string_equal(out.user, "u");
	assert_string_equal(out.session, "s");
	assert_string_equal(out.script_suffix, ".ts");
	assert_int_equal(out.script.n, n);
	assert_memory_equal(out.script.p, script, n);
	assert_non_null(out.stdin_bytes.p);
	assert_int_equal(out.stdin_bytes.n, 0);
	assert_int_equal(out.flags, GUEST_RUN_PTY);
	assert_int_equal(out.rows, 65535);
	assert_true(out.timeout_ms == UINT64_MAX);
	guest_run_request_done(&out);
	/* every way of cutting it short is refused, except at the end of a field */
	size_t good = 0;
	for (size_t cut = 0; cut < 200; cut++)
		if (guest_run_request_get((struct str){ m.p, cut }, &out) == 0) {
			good++;
			guest_run_request_done(&out);
		}
	assert_true(good > 0 && good < 14);
	guest_assembly_done(&a);
}

/* Fields by hand: tag, length, bytes. */
static void add_field(struct buf *b, unsigned tag, const char *bytes, size_t n)
{
	unsigned char head[8] = { (unsigned char)tag, 0, 0, 0, (unsigned char)n, (unsigned char)(n >> 8), (unsigned char)(n >> 16), 0 };
	buf_add(b, head, 8);
	buf_add(b, bytes, n);
}

static void bad_fields_are_refused(void **state)
{
	(void)state;
	static const struct {
		unsigned tag;
		const char *bytes;
		size_t n;
	} bad[] = {
		{ 99, "x", 2 },             /* unknown */
		{ 1, "ab", 2 },             /* no NUL */
		{ 1, "a\0b", 4 },           /* a NUL inside */
		{ 1, "", 0 },
		{ 2, "NOEQUALS", 9 },
		{ 2, "=x", 3 },
		{ 5, "", 1 },               /* empty session id */
		{ 6, ".a/b", 5 },           /* a path in a suffix */
		{ 9, "\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16 }, /* unknown flags */
		{ 9, "x", 1 },
	};
	struct guest_run_request r;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_buf struct buf b;
		buf_init(&b, 1000);
		add_field(&b, bad[i].tag, bad[i].bytes, bad[i].n);
		assert_int_equal(guest_run_request_get(buf_str(&b), &r), -EPROTO);
	}
	auto_buf struct buf b;
	buf_init(&b, 1000);
	add_field(&b, 3, "/a", 3);
	assert_int_equal(guest_run_request_get(buf_str(&b), &r), 0);
	guest_run_request_done(&r);
	add_field(&b, 3, "/b", 3); /* twice */
	assert_int_equal(guest_run_request_get(buf_str(&b), &r), -EPROTO);
}

static void op_request_round_trip(void **state)
{
	(void)state;
	auto_buf struct buf b;
	struct guest_assembly a;
	struct guest_op_request in = { .kind = GUEST_CHMOD, .mode = 07777, .depth = 3, .flags = GUEST_F_ALL, .has_mode = true, .port = 65535,
		                       .offset = 1ull << 40, .length = UINT64_MAX, .user = "u", .cwd = "c", .path = "\xfe", .path2 = "2",
		                       .pattern = "", .text = "t", .owner = "o", .group = "g" }, out;
	buf_init(&b, 10000);
	guest_assembly_init(&a);
	assert_int_equal(guest_op_request_put(&b, 5, &in), 0);
	assert_int_equal(guest_op_request_get(only_message(&a, &b, GUEST_OP_OPEN, 5), &out), 0);
	assert_true(out.kind == in.kind && out.mode == in.mode && out.depth == in.depth && out.flags == in.flags && out.has_mode);
	assert_true(out.port == in.port && out.offset == in.offset && out.length == in.length);
	assert_string_equal(out.path, in.path);
	assert_string_equal(out.pattern, "");
	assert_string_equal(out.group, "g");
	in = (struct guest_op_request){ .kind = GUEST_OP_COUNT };
	buf_reset(&b);
	assert_int_equal(guest_op_request_put(&b, 5, &in), 0);
	assert_int_equal(guest_op_request_get(only_message(&a, &b, GUEST_OP_OPEN, 5), &out), -EPROTO);
	assert_int_equal(guest_op_request_get((struct str){ NULL, 0 }, &out), -EPROTO);
	guest_assembly_done(&a);
}

static void pieces_must_be_contiguous(void **state)
{
	(void)state;
	struct guest_assembly a;
	struct str m;
	struct guest_frame first = { GUEST_RUN_START, GUEST_MORE, 1, STR("ab") }, other = { GUEST_RUN_CANCEL, 0, 2, { NULL, 0 } },
	                   wrong_id = { GUEST_RUN_START, 0, 2, STR("c") }, last = { GUEST_RUN_START, 0, 1, STR("c") },
	                   empty = { GUEST_RUN_START, GUEST_MORE, 1, { NULL, 0 } };
	guest_assembly_init(&a);
	assert_int_equal(guest_assembly_feed(&a, &first, &m), 0);
	assert_int_equal(guest_assembly_feed(&a, &other, &m), -EPROTO);
	guest_assembly_done(&a);
	assert_int_equal(guest_assembly_feed(&a, &first, &m), 0);
	assert_int_equal(guest_assembly_feed(&a, &wrong_id, &m), -EPROTO);
	guest_assembly_done(&a);
	assert_int_equal(guest_assembly_feed(&a, &empty, &m), -EPROTO);
	guest_assembly_done(&a);
	assert_int_equal(guest_assembly_feed(&a, &first, &m), 0);
	assert_int_equal(guest_assembly_feed(&a, &last, &m), 1);
	assert_true(str_eqz(m, "abc"));
	assert_int_equal(guest_assembly_feed(&a, &other, &m), 1);
	guest_assembly_done(&a);
}

static void answers_round_trip(void **state)
{
	(void)state;
	auto_buf struct buf b;
	struct guest_assembly a;
	struct guest_frame f;
	buf_init(&b, 1 << 20);
	guest_assembly_init(&a);
	struct guest_known_run known[5000], *got;
	size_t n;
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		known[i] = (struct guest_known_run){ i * 3, i % 2 };
	assert_int_equal(guest_ready_put(&b, known, ARRAY_LEN(known)), 0);
	assert_int_equal(guest_ready_get(only_message(&a, &b, GUEST_READY, GUEST_HELLO_ID), &got, &n), 0);
	assert_int_equal(n, ARRAY_LEN(known));
	assert_true(got[4999].run == 4999 * 3 && got[4999].ended);
	free(got);
	buf_reset(&b);
	struct guest_run_end e = { .exit_code = 255, .signal = 9, .flags = GUEST_END_FLAGS, .errnum = 4095, .bytes = { 1, UINT64_MAX }, .duration_ms = 5, .message = STR("why") }, e2;
	assert_int_equal(guest_run_end_put(&b, 1, &e), 0);
	assert_true(guest_frame_next(buf_str(&b), &f) > 0);
	assert_int_equal(guest_run_end_get(f.payload, &e2), 0);
	assert_true(e2.exit_code == 255 && e2.signal == 9 && e2.flags == GUEST_END_FLAGS && e2.bytes[1] == UINT64_MAX && str_eqz(e2.message, "why"));
	e.exit_code = 256;
	buf_reset(&b);
	assert_int_equal(guest_run_end_put(&b, 1, &e), 0);
	assert_true(guest_frame_next(buf_str(&b), &f) > 0);
	assert_int_equal(guest_run_end_get(f.payload, &e2), -EPROTO);
	buf_reset(&b);
	struct guest_info i = { .size = 1ull << 41, .mtime_ms = -5, .mode = 0644, .uid = 1, .gid = 2, .type = 2, .is_dir = true, .path = "p", .owner = "o", .group = "g", .target = "t" }, i2;
	assert_int_equal(guest_info_put(&b, 1, &i), 0);
	assert_true(guest_frame_next(buf_str(&b), &f) > 0);
	assert_int_equal(guest_info_get(f.payload, &i2), 0);
	assert_true(i2.size == i.size && i2.mtime_ms == -5 && i2.is_dir && streq(i2.target, "t"));
	for (size_t cut = 0; cut < f.payload.n; cut++) /* the target comes last and is optional */
		assert_int_equal(guest_info_get((struct str){ f.payload.p, cut }, &i2), cut == f.payload.n - 10 ? 0 : -EPROTO);
	buf_reset(&b);
	const char *path;
	uint64_t line;
	struct str text;
	assert_int_equal(guest_match_put(&b, 1, "p", 7, STR("text")), 0);
	assert_true(guest_frame_next(buf_str(&b), &f) > 0);
	assert_int_equal(guest_match_get(f.payload, &path, &line, &text), 0);
	assert_true(line == 7 && str_eqz(text, "text") && streq(path, "p"));
	for (size_t cut = 0; cut < 14; cut++)
		assert_int_equal(guest_match_get((struct str){ f.payload.p, cut }, &path, &line, &text), -EPROTO);
	buf_reset(&b);
	int32_t code;
	const char *id;
	assert_int_equal(guest_session_end_put(&b, 3, "id"), 0);
	assert_true(guest_frame_next(buf_str(&b), &f) > 0);
	assert_int_equal(guest_session_end_get(f.payload, &code, &id), 0);
	assert_true(code == 3 && streq(id, "id"));
	guest_assembly_done(&a);
}

static void setup_round_trip(void **state)
{
	(void)state;
	auto_buf struct buf b;
	struct guest_assembly a;
	static const char *env[] = { "A=1", "B=", NULL };
	char seed[GUEST_SEED_MAX + 1];
	struct guest_setup s = { .hostname = "box", .machine_id = "0123456789abcdef0123456789abcdef", .user = "daytona", .workdir = "/w", .env = env,
		                 .envc = 2, .seed = { seed, GUEST_SEED_MAX }, .time_ns = 1700000000123456789, .pids = 77, .sudo = GUEST_SUDO_NO, .line = "0123456789abcdef",
		                 .volumes = { { "/data", false }, { "/data/in", true } }, .volumes_n = 2 }, s2;

	memset(seed, 's', sizeof seed);
	buf_init(&b, 1 << 20);
	guest_assembly_init(&a);
	assert_int_equal(guest_setup_put(&b, 9, &s), 0);
	assert_int_equal(guest_setup_get(only_message(&a, &b, GUEST_SETUP, 9), &s2), 0);
	assert_true(s2.time_ns == s.time_ns && s2.pids == 77 && s2.sudo == GUEST_SUDO_NO && s2.envc == 2 && str_eq(s2.seed, s.seed));
	assert_true(streq(s2.hostname, "box") && streq(s2.machine_id, s.machine_id) && streq(s2.user, "daytona") && streq(s2.workdir, "/w"));
	assert_true(streq(s2.env[1], "B=") && !s2.env[2]);
	assert_true(memcmp(s2.line, s.line, GUEST_LINE_BYTES) == 0 && s2.volumes_n == 2 && streq(s2.volumes[0].path, "/data") && !s2.volumes[0].read_only);
	assert_true(streq(s2.volumes[1].path, "/data/in") && s2.volumes[1].read_only);
	guest_setup_done(&s2);
	guest_assembly_done(&a);
}

static void bad_setups_are_refused(void **state)
{
	(void)state;
	char seed[GUEST_SEED_MAX + 1] = { 0 }, host[70];
	static const char *env[] = { "=x", NULL };
	memset(host, 'h', sizeof host);
	host[64] = '\0';
	const struct guest_setup bad[] = {
		{ .hostname = "" }, { .hostname = host }, { .machine_id = "0123456789ABCDEF0123456789abcdef" }, { .machine_id = "0123" },
		{ .env = env, .envc = 1 }, { .seed = { seed, GUEST_SEED_MIN - 1 } }, { .seed = { seed, GUEST_SEED_MAX + 1 } },
		{ .line = seed, .volumes = { { "data", false } }, .volumes_n = 1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		auto_buf struct buf b;
		struct guest_assembly a;
		struct guest_setup got;
		buf_init(&b, 1 << 20);
		guest_assembly_init(&a);
		assert_int_equal(guest_setup_put(&b, 1, &bad[i]), 0);
		assert_int_equal(guest_setup_get(only_message(&a, &b, GUEST_SETUP, 1), &got), -EPROTO);
		guest_assembly_done(&a);
	}
}

static void ready_of_another_version(void **state)
{
	(void)state;
	struct guest_known_run *runs;
	size_t n;
	assert_int_equal(guest_ready_get(STR("\x02\0\0\0\0\0\0\0"), &runs, &n), -EPROTONOSUPPORT);
	assert_int_equal(guest_ready_get(STR("\x01\0\0\0\x01\0\0\0"), &runs, &n), -EPROTO);
	assert_int_equal(guest_ready_get(STR("\x01\0\0\0\xff\xff\xff\xff"), &runs, &n), -EPROTO);
	assert_int_equal(guest_ready_get(STR("\x01"), &runs, &n), -EPROTO);
}

static void values_one_by_one(void **state)
{
	(void)state;
	auto_buf struct buf b;
	const char *name, *value;
	buf_init(&b, 1000);
	assert_int_equal(guest_value_add(&b, "a", "1"), 0);
	assert_int_equal(guest_value_add(&b, "b", ""), 0);
	struct str s = buf_str(&b);
	assert_int_equal(guest_value_next(&s, &name, &value), 1);
	assert_true(streq(name, "a") && streq(value, "1"));
	assert_int_equal(guest_value_next(&s, &name, &value), 1);
	assert_true(streq(name, "b") && streq(value, ""));
	assert_int_equal(guest_value_next(&s, &name, &value), 0);
	s = (struct str){ b.data, 10 }; /* a name without its value */
	assert_int_equal(guest_value_next(&s, &name, &value), -EPROTO);
}

static void a_serial_line_is_synchronised(void **state)
{
	(void)state;
	auto_buf struct buf b;
	buf_init(&b, 1000);
	buf_addz(&b, "half a frame of before");
	size_t noise = b.len;
	assert_int_equal(guest_frame_put(&b, GUEST_HELLO, 0, GUEST_HELLO_ID, STR("\1\0\0\0")), 0);
	assert_int_equal(guest_noise(buf_str(&b), GUEST_HELLO), noise);
	for (size_t n = noise + 5; n < b.len; n++) /* however much of it is there */
		assert_int_equal(guest_noise((struct str){ b.data, n }, GUEST_HELLO), noise);
	assert_true(guest_noise(buf_str(&b), GUEST_READY) > noise);
}

static void verdicts(void **state)
{
	static const struct str bad[] = {
		{ "\2\1\0\0\0\0\0\0/x\0", 11 }, { "\1\0\0\0\0\0\0\0/x\0", 11 }, { "\1\4\0\0\0\0\0\0/x\0", 11 }, { "\1\1\0\0\0\0\0\0x\0", 10 },
		{ "\1\1\0\0\0\0\0\0/x", 10 }, { "\1\1\0\0\0\0\0\0/\0x\0", 12 }, { "\1\1\0\0\0\0\0\0", 8 }, { "", 0 },
	};
	struct guest_verdict v = { .allowed = true, .kind = 1, .rule = 3, .untold = 70000, .path = "/usr/bin/id" }, got;
	struct guest_frame f;
	auto_buf struct buf b;

	(void)state;
	buf_init(&b, 1000);
	assert_int_equal(guest_verdict_put(&b, 9, GUEST_BY_RULE, &v), 0);
	assert_true(guest_frame_next(buf_str(&b), &f) > 0 && f.type == GUEST_VERDICT && f.id == 9);
	assert_int_equal(guest_verdict_get(f.payload, &got), 0);
	assert_true(got.allowed && got.kind == 1 && got.rule == 3 && got.untold == 70000 && streq(got.path, v.path));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(guest_verdict_get(bad[i], &got), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(head_is_as_documented),    cmocka_unit_test(broken_heads_are_refused),
		cmocka_unit_test(small_pieces_of_data_share_a_frame), cmocka_unit_test(a_full_buffer_takes_no_half_frame), cmocka_unit_test(run_request_round_trip),
		cmocka_unit_test(bad_fields_are_refused),   cmocka_unit_test(op_request_round_trip),
		cmocka_unit_test(pieces_must_be_contiguous), cmocka_unit_test(answers_round_trip),
		cmocka_unit_test(ready_of_another_version), cmocka_unit_test(values_one_by_one),
		cmocka_unit_test(a_serial_line_is_synchronised), cmocka_unit_test(setup_round_trip),
		cmocka_unit_test(bad_setups_are_refused),   cmocka_unit_test(verdicts),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
