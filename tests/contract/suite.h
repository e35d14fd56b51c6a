/* Shared by the parts of the contract suite. */
#ifndef CAISSON_TESTS_SUITE_H
#define CAISSON_TESTS_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "contract.h"
#include "drive.h"

struct suite {
	const struct contract_kind *kind;
	uv_loop_t loop;
	struct boundary *b;
	char id[40];       /* one started sandbox for all tests */
	struct drive d;    /* connected to it */
};
extern struct suite suite;

struct boundary_spec suite_spec(const char *id, bool ephemeral);
bool suite_create(const char *id, bool ephemeral, struct err *e);
bool suite_create_for(const char *id, const char *user, bool sudo, struct err *e); /* ephemeral */
bool suite_create_from(const char *id, const char *snapshot, bool ephemeral, struct err *e);
bool suite_start(const char *id, struct err *e);
bool suite_ask(void (*op)(struct boundary *, const char *, boundary_done_fn, void *), const char *id, struct err *e);
int suite_open_guest(const char *id);
size_t suite_amount(size_t whole); /* so much; of a kind that is emulated a fifth, but with CAISSON_TEST_ALL */
bool suite_reconnect(void); /* a new connection in place of the old one */

extern const struct CMUnitTest run_tests[], session_tests[], file_tests[], life_tests[], snapshot_tests[], sudo_tests[], volume_tests[];
extern const size_t run_tests_n, session_tests_n, file_tests_n, life_tests_n, snapshot_tests_n, sudo_tests_n, volume_tests_n;

#endif
