/* The audit log: who did what, and what became of it; appended, never changed, each line bound to all before it.
 *
 * Theory of operation. A line is one JSON object:
 *
 *   {"seq":17,"at":"2026-11-30T01:02:03.456Z","type":"run.started","tenant":"default", ... ,"hash":"<64 hex digits>"}
 *
 * seq counts from 1 without a gap. The hash is SHA-256 over the hash of the line before it (64 hex digits; zeros before the first) and over
 * the bytes of this line up to `,"hash":`. So a line that was changed, taken out, put in or moved breaks the chain, for whoever has only the
 * file. Lines are in files audit-<seq of the first line, 20 digits>.log; the first line of each ("audit.file") repeats in "prev" the hash that it
 * goes on from, so that a file can be checked when those before it are gone.
 *
 * What a chain cannot tell is that its end was cut off. For that there is `head`: how far the log went, and the first line that is still
 * kept. It is written after each sync, when a file is begun and at the end; so the log may go on after it, and never ends before it. Who can
 * write all of these files can make another chain: the hash of a line that is known elsewhere (a webhook's receiver has it, `export` prints it)
 * tells (audit_verify's `expect`).
 *
 * A line is with the kernel before append returns: a kill -9 of this process loses none. It is on the disk within about a second
 * (audit_sync, which a worker thread may call); a power failure may take that second. A line that was cut short by a kill is cut off by the
 * next open. What is found broken there is left as it is, said in a line ("audit.damaged"), and a new file begins. */
#ifndef CAISSON_AUDIT_AUDIT_H
#define CAISSON_AUDIT_AUDIT_H

#include "base/buf.h"
#include "base/err.h"

#define AUDIT_HASH_SIZE 65 /* hex digits and a NUL */
#define AUDIT_TEXT_MAX	1024 /* bytes of a text in a line; longer ones are cut, and end in "..." */
#define AUDIT_LINE_MAX	(16U << 10)

struct audit;
struct audit_options {
	const char *dir;     /* is made (0700) when it is not there */
	uint64_t file_bytes; /* a file is full after this many; 0 = 8 MiB */
	uint64_t keep_bytes; /* the oldest files go when there are more; 0 = none ever */
};
int audit_open(const struct audit_options *o, struct audit **ret, struct err *e);
void audit_close(struct audit *a); /* syncs; accepts NULL */

/* --- writing: begin, add what there is to say, end --- */
struct audit_line {
	struct buf b;
};
/* tenant NULL: the server's own. type: "run.started". One line at a time. */
struct audit_line *audit_begin(struct audit *a, const char *type, const char *tenant);
void audit_text(struct audit_line *l, const char *key, const char *text); /* NULL: left out; not UTF-8: U+FFFD */
void audit_u64(struct audit_line *l, const char *key, uint64_t v);
void audit_flag(struct audit_line *l, const char *key, bool v); /* false: left out */
void audit_texts(struct audit_line *l, const char *key, char *const *texts); /* NULL: left out; 32 at most, then "..." */
/* Writes it. 0, or a negative errno: it could not be written, is counted, and a line will say how many were lost. */
int audit_end(struct audit *a);
/* Is there room for what is to come? When not, new work is to be refused; what ends can still be written for a while. */
int audit_ready(struct audit *a, struct err *e);
/* A descriptor to be fdatasync'ed and closed, by any thread; then audit_sync_end, by this one, writes the head. -ENOENT: nothing to do. */
int audit_sync_begin(struct audit *a);
void audit_sync_end(struct audit *a);
uint64_t audit_seq(const struct audit *a); /* of the last line */
const char *audit_hash(const struct audit *a);

/* --- reading --- */
struct audit_filter {
	const char *tenant;  /* only lines of this one; NULL = all */
	const char *type;    /* only types that are this or begin with it and a dot; NULL = all */
	const char *sandbox; /* only of this sandbox; NULL = all */
};
/* Lines after `after`, at most `limit` and at most a few megabytes looked at, each without its line break. *ret_next: to go on from; there may be
 * more when it is less than audit_seq. Lines that are no longer kept are passed over. */
int audit_read(struct audit *a, uint64_t after, size_t limit, const struct audit_filter *f, void (*each)(void *ctx, uint64_t seq, struct str line),
	       void *ctx, uint64_t *ret_next, struct err *e);

bool audit_type_is(struct str line, const char *type); /* this, or one that begins with it and a dot */

/* --- verifying: of a folder (also one that is being written to), or of one file with a part of the chain --- */
struct audit_report {
	uint64_t first, last; /* seq of the lines looked at; 0 = none */
	size_t files, problems;
	char hash[AUDIT_HASH_SIZE]; /* of the last line */
};
/* `expect`: "SEQ:HASH" known from elsewhere, or NULL. `problem` is called for each thing that is wrong. 0 when the files could be read: look at
 * ret->problems. */
int audit_verify(const char *path, const char *expect, void (*problem)(void *ctx, const char *what), void *ctx, struct audit_report *ret,
		 struct err *e);

#endif
