/* Taps: what a virtual machine's network device leads to.
 *
 * Each is in a network namespace of its own that has nothing else, down: a frame that QEMU writes is refused, and nothing is ever read. That is
 * how it stays for a machine without a network. For one that gets a network, a gate is made of that namespace (gate_raise), and with the network
 * taken away the tap goes down again. The namespace lives as long as somebody has the tap open, so a machine keeps its own whatever becomes
 * of the warden, and the next warden finds it by the tap. */
#ifndef CAISSON_WARDEN_TAP_H
#define CAISSON_WARDEN_TAP_H

#include "base/err.h"
#include "sys/netns.h"

#define TAP_NAME "tap"

/* In the namespace `in`. A descriptor with vnet header, of which QEMU needs no right to make use. */
int tap_new(struct netns_maker *m, int in, struct err *e);
/* The namespace of the tap that a process has as descriptor `number`; the process may lie about that, at its own expense: it has no other. */
int tap_namespace(int pidfd, int number);

/* Can this host make them? Tried: 0 or the reason. */
int tap_probe(struct err *e);

#endif
