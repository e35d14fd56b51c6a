/* What a command prints: tables in which no text can move the cursor or forge a column, and JSON. */
#ifndef CAISSON_CLI_OUT_H
#define CAISSON_CLI_OUT_H

#include "base/buf.h"

#include <jansson.h>
#include <stdio.h>

/* Printable UTF-8 as it is; control characters, bytes that are not UTF-8, and characters that reorder or hide text come out as
 * \xNN or \u{NNNN}; a backslash stays. Returns the number of columns (one per character). */
size_t out_inert(struct buf *to, const char *text);

/* A table: a row of headings, then rows of cells; columns are as wide as their widest cell. */
struct table {
	size_t columns, n;
	char **cells; /* inert already */
	size_t *widths;
};
void table_init(struct table *t, size_t columns, const char *const *headings);
void table_add(struct table *t, const char *const *cells); /* copies; NULL is shown as "-" */
void table_print(struct table *t);
void table_done(struct table *t);
#define auto_table __attribute__((cleanup(table_done)))

/* "512 MiB", "1.5 GiB"; into text. */
void out_size(char *text, size_t n, uint64_t bytes);

/* One line of JSON on stdout, ASCII only; consumes o. Returns 0 or CLI_FAILED. */
int out_json(json_t *take);
/* JSON text of libcaisson as a value to put into another; {} when it can't be read (which is its bug). */
json_t *out_parse(const char *json);

/* Flushes stdout; tells when it could not all be written. Returns code, or what went wrong. */
int out_finish(int code);

#endif
