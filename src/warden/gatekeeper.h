/* Keeps the edge running and the gates of the sandboxes in its hands.
 *
 * The edge is started with the first sandbox that has a network, and again whenever it ends; it then gets the sockets of every gate anew,
 * and the daemon one end of a new pair by which it says what each sandbox may. Between two edges nobody serves the gates, and they refuse. */
#ifndef CAISSON_WARDEN_GATEKEEPER_H
#define CAISSON_WARDEN_GATEKEEPER_H

#include "warden/gate.h"

#include <sys/types.h>

struct gatekeeper {
	char *const *command; /* of the edge, for the program that we are; NULL: no sandbox gets a network */
	struct netns_maker *netns;
	int epoll, daemon; /* borrowed */
	int edge;	   /* its socket, or negative */
	int pidfd;
	bool ready;
	bool hand_all; /* it runs and does not have the gates of before yet */
	uint64_t started_ms, again_ms; /* 0 = not to be started again */
};

void gatekeeper_init(struct gatekeeper *k, char *const *command, struct netns_maker *netns);
/* Ends the edge; the gates are the sandboxes' still. */
void gatekeeper_done(struct gatekeeper *k);

/* Sees that the edge runs and has given up its rights: to be called before a gate is made. */
int gatekeeper_ready(struct gatekeeper *k, struct err *e);
/* The edge lets go of it and the sandbox's interface goes. *gate is closed. */
void gatekeeper_detach(struct gatekeeper *k, const char *id, int *gate);
/* The same for a sandbox in which nothing lives any more: its interface goes with the namespaces, and nobody waits for that (the kernel
 * takes 10 ms and more for one that is asked for). */
void gatekeeper_let_go(struct gatekeeper *k, const char *id, int *gate);

/* The edge has ended (its pidfd is in the epoll set with the gatekeeper as its data). */
void gatekeeper_ended(struct gatekeeper *k);
/* Milliseconds until gatekeeper_again should be called; -1 = not at all. */
int gatekeeper_due(const struct gatekeeper *k);
/* Starts it again if it is time. True: it runs, and every gate must be handed over (gatekeeper_hand). */
bool gatekeeper_again(struct gatekeeper *k);
/* The sockets of the gate with that namespace go to the edge. */
void gatekeeper_hand(struct gatekeeper *k, const char *id, int gate);

#endif
