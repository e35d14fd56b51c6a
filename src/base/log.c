#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static enum log_level threshold = LOG_WARN; /* process-wide by nature: there is one stderr */
static const char *program = "caisson";

void log_set_level(enum log_level level)
{
	threshold = level;
}

void log_set_name(const char *name)
{
	program = name;
}

bool log_enabled(enum log_level level)
{
	return level >= threshold;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	static const char *const names[] = { "debug", "info", "warn", "error" };
	char text[1024], line[2 * sizeof text], when[25];
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	format_iso8601(now_unix_ms(), when);
	int at = snprintf(line, sizeof line, "%s %s[%d] %s ", when, program, (int)getpid(), names[level]);
	for (const char *p = text; *p && (size_t)at + 6 < sizeof line; p++) {
		unsigned char c = (unsigned char)*p;
		if (c < 0x20 || c == 0x7f || c >= 0x80)
			at += snprintf(line + at, sizeof line - (size_t)at, "\\x%02x", c);
		else
			line[at++] = (char)c;
	}
	line[at++] = '\n';
	ssize_t ignored = write(STDERR_FILENO, line, (size_t)at); /* one write, so that lines of several processes stay whole */
	(void)ignored;
}
