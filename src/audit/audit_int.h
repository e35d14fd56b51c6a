/* What the files of the audit log share. */
#ifndef CAISSON_AUDIT_AUDIT_INT_H
#define CAISSON_AUDIT_AUDIT_INT_H

#include "audit/audit.h"

#define AUDIT_FILE_DEFAULT (8U << 20)
#define AUDIT_RESERVE	   (256U << 10) /* bytes of disk that only what ends may still use */
#define AUDIT_EXTEND	   (1U << 20)	/* taken of the disk at a time */
#define HASH_KEY	   ",\"hash\":\""
#define ZERO_HASH	   "0000000000000000000000000000000000000000000000000000000000000000"
#define NAME_SIZE	   40

/* --- chain.c: pure --- */

/* What is asked of every line, wherever it comes from. */
struct parsed {
	uint64_t seq;
	struct str type, tenant; /* as they are in the line: ours have no escapes in the type */
	struct str prev;	 /* of an "audit.file" line; else p NULL */
	struct str body;	 /* what is hashed */
	char hash[AUDIT_HASH_SIZE];
};
/* line: without its line break. False: not a line of ours. */
bool line_parse(struct str line, struct parsed *ret);
/* The value of a text member as it is written; p NULL: there is none. Only right for keys whose values have no quotes in them. */
struct str line_text(struct str line, const char *key);
void chain_hash(const char prev[static AUDIT_HASH_SIZE], struct str body, char ret[static AUDIT_HASH_SIZE]);

struct head {
	uint64_t first, seq;
	char hash[AUDIT_HASH_SIZE];
};
bool head_parse(struct str text, struct head *ret);
size_t head_format(const struct head *h, char ret[static 160]);

/* --- files, read.c --- */
struct file_list { /* in order */
	uint64_t *first;
	size_t n;
};
int files_list(int dir, struct file_list *ret);
void files_done(struct file_list *f);
void file_name(uint64_t first, char ret[static NAME_SIZE]);
/* The whole of a small file or of one of the log's; heap. At most 1 GiB. */
int file_read(int dir, const char *name, char **ret, size_t *ret_n);
int head_read(int dir, struct head *ret); /* -ENOENT, -EBADMSG */

struct cursor { /* where a former page ended */
	uint64_t first, seq; /* file; the line before which `at` is, is seq + 1 */
	uint64_t at;
};

struct audit {
	int dir, fd;
	uint64_t file_bytes, keep_bytes;
	uint64_t file_first, file_len, reserved; /* of the file that is written to */
	uint64_t kept_first;			 /* first line that is still there */
	uint64_t seq;
	struct head synced; /* where the log was when the sync that is under way began */
	char hash[AUDIT_HASH_SIZE];
	struct audit_line line;
	uint64_t lost;	 /* lines for which there was no room */
	int full;	 /* errno of the last attempt to take more of the disk; 0 = there is room */
	bool dirty;
	struct cursor cursors[4];
	unsigned next_cursor;
};

#endif
