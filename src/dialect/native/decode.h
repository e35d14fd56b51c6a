/* From JSON and query strings to structs, by a table per request: what is unknown, of the wrong type, doubled or out of range is
 * handled here once, for all of them, and the message names the field. Pure but for asking the request for its query. */
#ifndef CAISSON_DIALECT_NATIVE_DECODE_H
#define CAISSON_DIALECT_NATIVE_DECODE_H

#include "base/err.h"
#include "model/spec.h"
#include "server/server.h"

#include <jansson.h>

enum field_kind { /* the C type at `offset` */
	FIELD_STRING,  /* char *, heap */
	FIELD_BOOL,    /* bool */
	FIELD_U64,     /* uint64_t in min..max */
	FIELD_I64,     /* int64_t in min..max */
	FIELD_U16,     /* uint16_t in min..max */
	FIELD_NUMBER,  /* double in min..max */
	FIELD_STRINGS, /* char **, heap, NULL-terminated; in a query: the parameter may be repeated */
	FIELD_PAIRS,   /* struct pairs */
	FIELD_OBJECT,  /* whatever `sub` says, at the same base + offset */
	FIELD_CUSTOM,  /* `set` gets the struct and the value */
};

struct field {
	const char *name; /* NULL ends a table */
	enum field_kind kind;
	size_t offset;
	bool required;
	double min, max;  /* of numbers; max 0 = no bound but the type's */
	const struct field *sub;
	/* where: "field \"signal\"", for the message */
	int (*set)(void *into, const char *where, const json_t *value, struct err *e);
};

/* One JSON object; an empty body counts as {}. On failure `into` may be half filled: its owner frees it as usual. */
int decode_body(struct str body, const struct field *fields, void *into, struct err *e);
int decode_query(const struct request *r, const struct field *fields, void *into, struct err *e);
/* The same on a value that is there already (a message of a WebSocket). */
int decode_object(const json_t *object, const struct field *fields, void *into, struct err *e);
int decode_one(const struct field *field, const json_t *value, void *into, struct err *e);
json_t *decode_json(struct str text, struct err *e); /* NULL and e when it is no JSON */

/* "0755" -> 0755 */
int decode_mode(const char *where, const json_t *value, uint32_t *ret, struct err *e);
/* "TERM", "SIGTERM", 15 -> 15 */
int decode_signal(const char *where, const json_t *value, int *ret, struct err *e);
const char *signal_name(int signo); /* "SIGTERM"; NULL when it has none */

#endif
