/* Numbers as the guest's frames have them: little-endian. */
#ifndef CAISSON_WIRE_GUEST_INT_H
#define CAISSON_WIRE_GUEST_INT_H

#include "wire/guest.h"

static inline void put_u16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static inline void put_u32(uint8_t *p, uint32_t v)
{
	put_u16(p, v & 0xffff);
	put_u16(p + 2, v >> 16);
}

static inline void put_u64(uint8_t *p, uint64_t v)
{
	put_u32(p, (uint32_t)v);
	put_u32(p + 4, (uint32_t)(v >> 32));
}

static inline unsigned get_u16(const char *p)
{
	return (unsigned)(unsigned char)p[0] | (unsigned)(unsigned char)p[1] << 8;
}

#endif
