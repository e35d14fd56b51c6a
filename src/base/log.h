/* Logging: one line an event, `level key=value ... msg="..."`, on stderr.
 *
 * ERROR means that an operator must act. Libraries never log above debug. Every byte outside printable ASCII comes out as \xNN, so
 * whatever a peer sent, a line stays a line and a terminal stays a terminal. */
#ifndef CAISSON_BASE_LOG_H
#define CAISSON_BASE_LOG_H

#include "base/util.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_set_level(enum log_level level); /* default LOG_WARN; CAISSON_LOG=debug|info|warn|error is read by bin */
void log_set_name(const char *name);      /* static string: "caissond", "warden" */
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool log_enabled(enum log_level level);

#define log_debug(...) (log_enabled(LOG_DEBUG) ? log_write(LOG_DEBUG, __VA_ARGS__) : (void)0)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_write(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

#endif
