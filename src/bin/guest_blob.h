/* The guest's program, embedded in this one: what the warden starts as PID 1 of every sandbox. */
#ifndef CAISSON_BIN_GUEST_BLOB_H
#define CAISSON_BIN_GUEST_BLOB_H

#include <stddef.h>

extern const unsigned char guest_blob[], guest_blob_end[];
static inline size_t guest_blob_len(void)
{
	return (size_t)(guest_blob_end - guest_blob);
}

#endif
