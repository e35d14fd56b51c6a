#include "series.h"

#include <stdio.h>

void series_add(struct series *s, double ms)
{
	if (s->n == s->cap)
		s->v = xreallocarray(s->v, s->cap = s->cap * 2 + 64, sizeof *s->v);
	s->v[s->n++] = ms;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double series_at(const struct series *s, double q)
{
	return s->n ? s->v[MIN(s->n - 1, (size_t)((double)s->n * q))] : 0;
}

void series_sort(struct series *s)
{
	qsort(s->v, s->n, sizeof *s->v, by_value);
}

void series_row(const char *what, const struct series *s)
{
	printf("| %s | %zu | %.2f | %.2f | %.2f | %.2f |", what, s->n, series_at(s, 0), series_at(s, 0.5), series_at(s, 0.95), series_at(s, 0.99));
}

void series_report(const char *what, const char *bare_what, struct series *ours, struct series *bare, double budget)
{
	series_sort(ours);
	series_sort(bare);
	series_row(what, ours);
	printf(" **%.2f**", series_at(ours, 0.5) / series_at(bare, 0.5));
	if (budget > 0)
		printf(" (budget %.2f)", budget);
	printf(" |\n");
	series_row(bare_what, bare);
	printf(" 1 |\n");
	fflush(stdout);
	free(ours->v);
	free(bare->v);
	*ours = *bare = (struct series){ 0 };
}

void series_alone(const char *what, struct series *s, double budget_ms)
{
	series_sort(s);
	series_row(what, s);
	if (budget_ms > 0)
		printf(" (budget %.0f ms)", budget_ms);
	printf(" |\n");
	fflush(stdout);
	free(s->v);
	*s = (struct series){ 0 };
}

void series_head(const char *title)
{
	printf("\n### %s\n\n| what | n | min ms | median | p95 | p99 | ratio of medians |\n|---|---|---|---|---|---|---|\n", title);
	fflush(stdout);
}
