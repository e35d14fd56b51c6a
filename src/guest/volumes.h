/* The volumes of a virtual machine: folders of the host's that it shares with others.
 *
 * Theory of operation. Each is a FUSE file system. What our kernel asks about it goes, as it is, by the serial port "volumes" to the server
 * on the host (wire/fuse.h), and the answers come back; the one who carries them is a process of ours, the relay, so that nothing that
 * PID 1 does can wait for itself. When the port's other end goes, so does the relay, and with it what was mounted: whoever touches that is told
 * ENOTCONN, at once, and nobody waits.
 *
 * SETUP says what there is. A copy of a running machine has the mounts of that machine still in its memory, whose server knows nothing of it:
 * they are taken off, and its own are mounted at the same places. What was open in them is lost. */
#ifndef CAISSON_GUEST_VOLUMES_H
#define CAISSON_GUEST_VOLUMES_H

#include "guest/guest.h"

/* Instead of those that were there. ERR_INVALID: something that is no folder is where one is to be. */
int volumes_set(struct guest *g, const struct guest_setup *s, struct err *e);
/* A child of PID 1's has ended: true if it was the relay. */
bool volumes_reaped(struct guest *g, pid_t pid);

/* The relay itself (relay.c), until there is nothing left to do. Control: a byte for each file system that has been mounted, its number. */
struct relay_ends {
	int port, control, fuse[GUEST_VOLUMES_MAX];
	unsigned n;
};
void relay_run(const struct relay_ends *ends, const char nonce[static GUEST_LINE_BYTES]);

#endif
