#include "cli/out.h"

#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>

/* The length of the UTF-8 character at p (0: not one), and its value. */
static size_t character(const char *p, unsigned *ret)
{
	unsigned char c = (unsigned char)*p;
	size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;

	if (n == 0 || strnlen(p, n) < n || !utf8_valid((struct str){ p, n }))
		return 0;
	unsigned v = n == 1 ? c : c & (0x7fu >> n);
	for (size_t i = 1; i < n; i++)
		v = v << 6 | ((unsigned char)p[i] & 0x3fu);
	*ret = v;
	return n;
}

/* Characters that act on a terminal, or on how a reader sees the ones beside them. */
static bool acts(unsigned v)
{
	return v < 0x20 || (v >= 0x7f && v < 0xa0) || v == 0xad || v == 0x61c || (v >= 0x200b && v <= 0x200f) || (v >= 0x2028 && v <= 0x202e) ||
	       (v >= 0x2060 && v <= 0x206f) || v == 0xfeff || (v >= 0xfff9 && v <= 0xfffb) || (v >= 0xe0000 && v <= 0xe0fff);
}

size_t out_inert(struct buf *to, const char *text)
{
	size_t columns = 0, before;

	while (*text) {
		unsigned v = 0;
		size_t n = character(text, &v);
		before = to->len;
		if (n && !acts(v)) {
			buf_add(to, text, n);
			columns++;
		} else {
			if (n && v >= 0x80)
				buf_addf(to, "\\u{%x}", v);
			else
				buf_addf(to, "\\x%02x", (unsigned char)*text);
			columns += to->len - before;
		}
		text += n ? n : 1;
	}
	return columns;
}

/* --- tables --- */

void table_init(struct table *t, size_t columns, const char *const *headings)
{
	*t = (struct table){ .columns = columns };
	t->widths = xcalloc(columns, sizeof *t->widths);
	table_add(t, headings);
}

void table_add(struct table *t, const char *const *cells)
{
	t->cells = xreallocarray(t->cells, t->n + t->columns, sizeof *t->cells);
	for (size_t i = 0; i < t->columns; i++) {
		struct buf b;
		buf_init(&b, 1 << 20);
		buf_add(&b, "", 0);
		size_t width = out_inert(&b, cells[i] ? cells[i] : "-");
		t->widths[i] = MAX(t->widths[i], width);
		t->cells[t->n++] = buf_take(&b);
	}
}

static size_t columns_of(const char *inert)
{
	size_t n = 0;

	for (; *inert; inert++)
		n += (*inert & 0xc0) != 0x80;
	return n;
}

void table_print(struct table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		size_t column = i % t->columns;
		fputs(t->cells[i], stdout);
		if (column + 1 == t->columns)
			putchar('\n');
		else
			for (size_t pad = columns_of(t->cells[i]); pad < t->widths[column] + 2; pad++)
				putchar(' ');
	}
}

void table_done(struct table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->cells[i]);
	free(t->cells);
	free(t->widths);
	*t = (struct table){ 0 };
}

void out_size(char *text, size_t n, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)bytes;
	size_t u = 0;

	for (; v >= 1024 && u + 1 < ARRAY_LEN(units); u++)
		v /= 1024;
	snprintf(text, n, v < 10 && u && v != (double)(uint64_t)v ? "%.1f %s" : "%.0f %s", v, units[u]);
}

/* --- JSON --- */

int out_json(json_t *take)
{
	auto_free char *text = json_dumps(take, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);

	json_decref(take);
	if (!text)
		return cli_fail("can't make JSON of the answer");
	puts(text);
	return 0;
}

json_t *out_parse(const char *json)
{
	json_t *o = json ? json_loads(json, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL) : NULL;

	return o ? o : json_object();
}

int out_finish(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	if (errno == EPIPE)
		return code ? code : CLI_BROKEN_PIPE;
	return cli_fail("writing to standard output: %s", strerror(errno));
}

/* --- messages --- */

static bool json_errors; /* process-wide, as stderr is */

void cli_set_json_errors(bool on)
{
	json_errors = on;
}

static void say(const char *kind, const char *text)
{
	auto_buf struct buf b;

	buf_init(&b, 1 << 16);
	if (kind && json_errors) {
		json_t *o = json_pack("{s:{s:s,s:s}}", "error", "kind", kind, "message", text);
		auto_free char *line = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
		json_decref(o);
		if (line) {
			fprintf(stderr, "%s\n", line);
			return;
		}
	}
	buf_addz(&b, "caisson: ");
	out_inert(&b, text);
	buf_addc(&b, '\n');
	fwrite(b.data, 1, b.len, stderr);
}

enum { TEXT_MAX = 2048 };

void cli_warn(const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	say(NULL, text);
}

int cli_fail(const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	say("local", text);
	return CLI_FAILED;
}

int cli_usage(const struct cli *cli, const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (cli->command) {
		size_t n = strlen(text);
		snprintf(text + n, sizeof text - n, " (see: caisson help %s)", cli->command->name);
	} else {
		size_t n = strlen(text);
		snprintf(text + n, sizeof text - n, " (see: caisson help)");
	}
	say("usage", text);
	return CLI_USAGE;
}

static const char *hint_of(const struct caisson_error *e)
{
	if (e->kind == CAISSON_ERR_UNAUTHENTICATED)
		return ": set CAISSON_API_KEY, or run as the server's user so that its api-key file can be read";
	return "";
}

int cli_fail_error(const struct caisson_error *e)
{
	char text[1024];

	snprintf(text, sizeof text, "%s%s", e->message, hint_of(e));
	say(caisson_error_kind_name(e->kind), text);
	return CLI_FAILED;
}

int cli_fail_err(const struct err *e)
{
	say(err_kind_name(e->kind), e->message);
	return CLI_FAILED;
}
