/* The opener: ends the TLS of one sandbox where its secrets may go or its rules about methods are for, puts the secrets into requests, judges requests by
 * the rules, and speaks TLS to the true host.
 *
 * Theory of operation. One process for each sandbox that has secrets or such rules, started by the daemon, which alone tells it what they are. It has no
 * network: the edge accepts, judges and dials as ever, and hands over one end of a pair for each side of a connection; all that
 * goes out still goes through the edge's limits and its counting. A filter leaves it reading, writing, and taking descriptors.
 *
 *   HELLO     the client's first message is read and set aside
 *   UPSTREAM  the true host is spoken to: its certificate must be good for the name that the client asked for, by the host's own trust store
 *   ACCEPT    the client is answered with a certificate of our own for that name, and with the protocol that the true host chose
 *   OPEN      requests and answers pass (http1.c, http2.c); every head is judged by place.h, bodies stream
 *   LINGER    an answer of ours is the last; what the client still sends is dropped for a moment, so that it reads it
 *
 * What is sent without TLS to a host of such rules comes here, too, and begins in OPEN; no secret goes into it.
 *
 * HTTP/1.1 and HTTP/2 are offered to the host as far as the client offers them, and none is made of the other; no request crosses to another
 * connection. Whatever fails closes.
 *
 * opener.c  the loop, orders, connections      tls.c    certificates and the two ends
 * http1.c   what passes                         http2.c, http2-head.c   the same in HTTP/2
 * methods.c rules about methods, and requests that wait for an answer
 * cage.c    giving everything up */
#ifndef CAISSON_EGRESS_OPENER_H
#define CAISSON_EGRESS_OPENER_H

#include "base/log.h"

#define OPENER_COMMAND "opener" /* first argument of the program, for the daemon only; then the log level. The daemon's socket is 3 */

/* Serves until the daemon's end of its socket closes. Returns an exit status. The descriptor is taken. caged false: tests. */
int opener_main(int daemon, enum log_level level, bool caged);

#endif
