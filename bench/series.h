/* What one thing took, again and again, and how it is told: rows of a Markdown table. */
#ifndef CAISSON_BENCH_SERIES_H
#define CAISSON_BENCH_SERIES_H

#include "base/util.h"

struct series {
	double *v; /* milliseconds */
	size_t n, cap;
};

void series_add(struct series *s, double ms);
void series_sort(struct series *s);
double series_at(const struct series *s, double q); /* of a sorted one */
void series_head(const char *title);
void series_row(const char *what, const struct series *s); /* without the end of the line */
void series_alone(const char *what, struct series *s, double budget_ms); /* one row; emptied. 0: it has no budget */
/* Two rows and their ratio; both are emptied. */
void series_report(const char *what, const char *bare_what, struct series *ours, struct series *bare, double budget);

#endif
