/* What a warden leaves for the next one: a file per sandbox in RUN/state, root-only, replaced atomically. */
#ifndef CAISSON_WARDEN_RECORD_H
#define CAISSON_WARDEN_RECORD_H

#include "base/util.h"

#define RECORD_MAGIC 0x43525231u

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
};

/* 36 characters [0-9a-f-]: also what keeps an id a safe file name. */
bool record_id_valid(const char id[static 40]);
int record_write(int state_fd, const struct record *r);
void record_remove(int state_fd, const char *id);
/* Calls each for every valid record; others are left alone and logged. */
int record_each(int state_fd, void (*each)(void *ctx, const struct record *r), void *ctx);

#endif
