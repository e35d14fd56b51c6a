/* An api in memory for test-daytona: sandboxes that only remember, commands with set results, files in a table. Everything
 * that may come late comes late (from a timer), and operations take and give a few bytes at a time, so that back-pressure
 * and order are exercised. Used from the loop's thread only, but for fake_*. */
#ifndef CAISSON_TESTS_DAYTONA_FAKE_H
#define CAISSON_TESTS_DAYTONA_FAKE_H

#include "api/api.h"

#define FAKE_KEY "e2b_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define FAKE_TOKEN "pt_0123456789"

struct fake_file {
	char *path;
	struct buf data;
};
/* What a command text does; the first match counts, the default prints the command. A list of arguments matches when the text
 * is somewhere in it, with blanks between them; its default prints nothing. */
struct fake_command {
	const char *text, *out, *err;
	size_t out_n; /* of output with NULs in it; 0 = to the first */
	int code;
	bool timed_out, lost, failed, oom, truncated;
};
void fake_set_commands(const struct fake_command *c, size_t n);
struct api *fake_new(uv_loop_t *loop);
void fake_free(struct api *a);
const struct fake_file *fake_file(struct api *a, const char *path);
void fake_put_file(struct api *a, const char *path, const void *p, size_t n);
const struct run_spec *fake_last_run(struct api *a);
const struct run_spec *fake_run_before(struct api *a, size_t back); /* 0 = the last */
const struct sandbox_spec *fake_last_spec(struct api *a);
size_t fake_pending(struct api *a); /* operations, followers and waiters not given back */
const char *fake_seen_head(struct api *a); /* what came in through a connection */

#endif
