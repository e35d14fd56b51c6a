/* What this host can give, found out by trying, and what to do about what it cannot. Knows nothing of the daemon. */
#ifndef CAISSON_WARDEN_DOCTOR_H
#define CAISSON_WARDEN_DOCTOR_H

#include "base/err.h"
#include "base/util.h"

struct doctor_line {
	const char *name; /* "namespaces" */
	bool ok;
	bool required;	  /* the process boundary does not start without it */
	char detail[160]; /* what was found */
	char advice[240]; /* what to do; empty when ok */
};

#define DOCTOR_LINES_MAX 16
struct doctor_report {
	struct doctor_line lines[DOCTOR_LINES_MAX];
	size_t n;
	bool process_ok; /* every required line is ok */
};

/* images: the folder of images, absolute; it need not be there yet.
 * Tries in children of its own: nothing of the caller's is changed. Up to a few tens of milliseconds. Without root most
 * cannot be tried; those lines say so. */
void doctor_examine(struct doctor_report *r, const char *images);

/* 0, or ERR_UNAVAILABLE with the first required thing that is missing and the advice. */
int doctor_require_process(const char *images, struct err *e);

#endif
