/* What a warden leaves for the next one: a file per sandbox in RUN/state, root-only, replaced atomically.
 *
 * Sandboxes outlive an upgrade, so the format only grows: new fields go to the end, and zero in them means what was so before they
 * were there. A shorter record is filled up with zeros. A longer one is of a later version: read if all beyond our end is zero,
 * else refused, since what it says would be lost. */
#ifndef CAISSON_WARDEN_RECORD_H
#define CAISSON_WARDEN_RECORD_H

#include "base/err.h"
#include "base/util.h"

#define RECORD_MAGIC	  0x43525231u
#define RECORD_SIZE_FIRST 232u /* as it was at first; no valid one is shorter */

struct record {
	uint32_t magic, size;
	char id[40];
	char image_digest[80];
	char boot_id[40];
	int32_t pid;	     /* 0 = not running */
	uint32_t slot;	     /* valid while pid is not 0 */
	uint64_t start_time; /* of pid, in ticks after boot */
	uint32_t disk_kind;  /* enum disk_kind */
	uint32_t loop;
	uint32_t ephemeral, paused;
	uint64_t memory_mib, disk_mib, pids, cpu_millis;
	uint32_t machine, zero; /* 1: a QEMU of the vm boundary's (machine.h) */
	uint64_t network; /* it has a gate while it runs */
};

/* 36 characters [0-9a-f-]: also what keeps an id a safe file name. */
bool record_id_valid(const char id[static 40]);
/* 0; -EINVAL: no record; -E2BIG: one of a later version that says more than we know of. */
int record_parse(const void *bytes, size_t n, struct record *ret);
int record_write(int state_fd, const struct record *r);
void record_remove(int state_fd, const char *id);
/* Calls each for every valid record; what is none is left alone and logged. ERR_CONFLICT, and nothing called, when there is one of
 * a later version. */
int record_each(int state_fd, void (*each)(void *ctx, const struct record *r), void *ctx, struct err *e);

#endif
