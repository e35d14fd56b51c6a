/* Gates: the network namespace in which a sandbox's connections end.
 *
 * Theory of operation. A sandbox with a network has one interface, eth0; its other end is in a namespace of its own, the gate, which has
 * no other link. Every address in the world is local to the gate, so the kernel there ends the sandbox's connections whatever they
 * were meant for: TCP goes to one listening socket, datagrams to another (nft tproxy keeps the address that was dialled), those to port 53 to a
 * third; answers of the former go back as whole packets by a raw socket, since each has another source. Without these sockets all is refused by
 * the kernel's own "nobody listens here", which a client sees at once. Nothing is forwarded, translated or tracked. The
 * sockets are handed to the edge, which has no part in the namespace itself. Without listeners everything is refused: a gate that nobody
 * serves is closed.
 *
 * The host's own interfaces, routes and rules are never touched. Sources that are not the sandbox's are dropped first of all (each would get an entry in the
 * kernel's table of neighbours, of which the host has one for everybody), and destinations that it takes for nonsense from outside (127/8,
 * 0/8, ::1) die in its routing.
 *
 * The sandbox's end is a veth, or the tap of a virtual machine (tap.h), which is in the gate itself. A gate lives as long as a descriptor of its
 * namespace, one of its sockets or that tap; with it goes the sandbox's interface. */
#ifndef CAISSON_WARDEN_GATE_H
#define CAISSON_WARDEN_GATE_H

#include "base/err.h"
#include "sys/netns.h"
#include "wire/edge.h"

/* A new gate for the network namespace `inside` (fresh, or of a live sandbox without one). Returns the gate's namespace, or a negative
 * errno with the reason. */
int gate_new(struct netns_maker *m, int inside, struct err *e);
/* Makes a gate of the namespace of a tap: 0 or a negative errno with the reason. Also of one that was a gate before. */
int gate_raise(struct netns_maker *m, int tap, struct err *e);
/* Takes the sandbox's interface away (a tap goes down); open connections die. */
void gate_cut(struct netns_maker *m, int gate);
/* The sockets of a gate, for the edge. */
int gate_listen(struct netns_maker *m, int gate, int ret_fds[static EDGE_GATE_FDS], struct err *e);

/* Can this host make gates? Tried. 0 or the reason, with what to do in it. */
int gate_probe(struct err *e);

#endif
