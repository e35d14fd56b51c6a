/* What the files of the edge share. */
#ifndef CAISSON_EGRESS_EDGE_INT_H
#define CAISSON_EGRESS_EDGE_INT_H

#include "egress/edge.h"
#include "model/policy.h"
#include "wire/dns.h"
#include "wire/edge.h"
#include "wire/hello.h"
#include "wire/http.h"
#include "wire/packet.h"

#include <netinet/in.h>
#include <uthash.h>
#include <utlist.h>

#define FLOWS_MAX	NETWORK_CONNECTIONS_MAX /* open connections of a sandbox */
#define FLOWS_FAIR	1024 /* the same when half of the descriptors are in use: there is to be room for the others' */
#define LOOKUPS_MAX	128   /* names of a sandbox that are being looked up */
#define PINS_MAX	1024  /* of a sandbox */
#define FIRST_MAX	16384 /* bytes that are looked at before a connection is judged */
#define FIRST_WITHIN_MS 10000
#define DIAL_WITHIN_MS	30000
#define DRAIN_WITHIN_MS 60000 /* in which something is taken */
#define COPY_BUFFER	(256U << 10)
#define KEPT_MAX	(16U << 20) /* bytes of a sandbox's that wait here; beyond, each connection gets KEPT_LITTLE */
#define KEPT_LITTLE	4096U
#define RESOLVERS_MAX	3

enum source_kind { SOURCE_WARDEN, SOURCE_DAEMON, SOURCE_HOST, SOURCE_LISTENER, SOURCE_NAMES, SOURCE_DATAGRAMS, SOURCE_CLIENT, SOURCE_SERVER, SOURCE_FAR, SOURCE_UPSTREAM };

struct source { /* what an epoll event leads to */
	enum source_kind kind;
	int fd;
	void *owner;
};

struct bucket { /* of a rate */
	double tokens;
	uint64_t at_ms;
};
/* One more, at most so many a second with bursts of `burst`? */
bool bucket_take(struct bucket *b, double rate, double burst);
void bucket_fill(struct bucket *b, double rate, double burst); /* what time has brought */

struct pin {
	char *name;
	struct addr addr;
	uint64_t until_ms;
	struct pin *prev, *next;
};

struct udp_flow { /* what goes between a port of the sandbox's and one of a host by datagrams */
	struct box *box;
	struct packet_ends ends; /* as the sandbox sends */
	struct source far;	 /* connected to the host, for this flow alone */
	struct addr addr;
	char *name; /* that it goes by, or NULL */
	bool answered;
	uint64_t up_bytes, down_bytes, started_ms, last_ms;
	struct udp_flow *prev, *next;
	UT_hash_handle hh;
};
#define UDP_TOLD 8
struct udp_box {
	struct udp_flow *by_ends, *flows; /* all of them, twice; the longest silent first */
	size_t n;
	struct bucket news; /* to the sandbox that nobody takes its datagrams */
	struct {
		struct addr addr;
		uint16_t port;
		uint64_t until_ms;
	} told[UDP_TOLD]; /* refused lately, and the daemon knows */
	unsigned next_told;
	uint32_t next_id; /* of a datagram that goes to it in parts */
};

struct box { /* a sandbox */
	char id[40];
	struct edge *edge;
	struct policy policy;
	bool has_policy;
	struct policy asked; /* names that somebody has to be asked for, if the policy allows them at all */
	struct policy read;   /* names to which nothing goes unread: by the opener, with TLS and without, or not at all */
	struct policy opened; /* more names whose TLS goes to the opener */
	int opener;	      /* its socket, or negative */
	bool has_gate;
	struct source gate[EDGE_GATE_FDS];
	struct flow *flows;
	size_t n_flows, n_lookups, n_pins;
	size_t n_behind; /* of the flows: not connections of the sandbox's own */
	struct udp_box udp;
	size_t kept; /* bytes of its connections that are read and not yet taken by the other side */
	size_t held; /* by the kernel for them, at most */
	struct pin *pins;
	struct lookup *lookups;
	struct bucket new_flows, questions, events;
	struct network_limits limits;
	struct bucket up_bytes, down_bytes; /* that may pass now, under limits.bytes_per_second */
	uint64_t moved; /* bytes both ways */
	bool throttled; /* some of its connections wait for the next of these */
	uint32_t events_lost;
	UT_hash_handle hh;
};

/* One direction of a connection. */
struct half {
	struct source *from, *to;
	bool readable, writable; /* as far as we know: edge-triggered */
	bool ended, told;	 /* no more will come; the other side knows */
	char *rest;		 /* read and not yet written */
	size_t rest_at, rest_len;
	uint64_t bytes;
};

enum flow_state { FLOW_FIRST, FLOW_ASK, FLOW_DIAL, FLOW_DRAIN, FLOW_OPEN, FLOW_DEAD };

struct flow {
	struct box *box;
	enum flow_state state;
	struct source client, server;
	struct half up, down;
	struct addr addr;
	uint16_t port;
	bool by_name;		 /* allowed only as one of the names pinned to addr */
	bool unjudged;		 /* the first bytes have not been seen yet */
	bool to_open;		 /* it is for the opener */
	bool plain;		 /* without TLS, that is */
	bool handed;		 /* it has gone there */
	bool behind;		 /* the part of such a one between opener and server: told and counted as the part before it */
	struct http_parser *http; /* plain HTTP under a policy of names: every request is looked at */
	struct hello_after *tls; /* TLS under a policy of names, until no other hello can come in the open */
	bool hold;		 /* an upgrade was asked for: nothing more goes up until the server has answered */
	bool first_request;
	char *name; /* that it goes by, or NULL */
	struct ask *ask; /* FLOW_ASK */
	uint64_t started_ms, deadline_ms;
	size_t held; /* by the kernel */
	bool narrow; /* with small buffers, for its sandbox has its share */
	size_t owed; /* FLOW_DRAIN: bytes that have not been taken */
	bool queued;
	struct flow *prev, *next;	    /* of its box */
	struct flow *wait_prev, *wait_next; /* of edge->waiting */
	struct flow *run_next;
};

struct edge {
	int epoll;
	struct source warden, daemon, host;
	struct box *boxes;
	struct policy_host net;
	int dump; /* netlink socket for asking */
	bool has_v6;
	struct addr resolvers[RESOLVERS_MAX];
	size_t n_resolvers;
	struct flow *waiting; /* in FLOW_FIRST, FLOW_ASK, FLOW_DIAL and FLOW_DRAIN */
	struct flow *run;     /* have had their turn and could go on */
	struct flow *dead;    /* freed when the events of this turn are through */
	struct lookup *dead_lookups;
	struct udp_flow *dead_udp;
	size_t n_lookups, n_udp, n_flows;
	size_t held, held_max; /* bytes of the kernel's, for all */
	size_t many_flows; /* with so many, half of the descriptors are in use */
	int reserve;		  /* a descriptor that is let go of to refuse a connection when there is no other */
	uint8_t *buffer;	  /* COPY_BUFFER */
	uint8_t *room;		  /* HELLO_MAX */
	bool throttled; /* some box is */
	bool ending;
};

/* edge.c */
int edge_watch(struct edge *e, struct source *s, uint32_t events);
void edge_unwatch(struct edge *e, struct source *s); /* and close */
/* The only connect() of the program. Non-blocking: 0 or -EINPROGRESS with the socket in *ret_fd; else an errno. `upstream`: to a name server that
 * the operator has set; anything else must be an address that could be reachable at all. */
socklen_t socket_address(const struct addr *a, uint16_t port, struct sockaddr_storage *ret);
int edge_dial(struct edge *e, const struct addr *a, uint16_t port, int type, bool upstream, int *ret_fd);
/* Tells the daemon; text fields may be NULL. */
struct verdict_text {
	const struct addr *addr;
	const char *name, *reason;
	enum policy_proto proto;
};
struct flow_end {
	uint64_t up_bytes, down_bytes, started_ms;
};
bool edge_tell(struct box *b, enum edge_event_kind kind, bool allowed, unsigned port, struct verdict_text t, const struct flow_end *ended); /* false: no room */
bool asks_for_name(const struct box *b, const char *name);

/* flow.c */
void flow_accept(struct box *b, struct source *listener);
void flow_on_client(struct flow *f, uint32_t events);
void flow_on_server(struct flow *f, uint32_t events);
void flow_run(struct flow *f);		    /* goes on where it left off */
void flow_kill(struct flow *f, bool reset); /* closes both sides; freed at the end of the turn */
void flows_after_throttle(struct box *b);   /* time has passed: they may have some more */
void flow_rejudge(struct flow *f);	    /* the policy has changed */
void flows_sweep(struct edge *e, uint64_t now);
void flow_free(struct flow *f);
void flow_ask_again(struct flow *f); /* its time for the next question begins */
struct flow *flow_behind(struct flow *f, int fd); /* from fd to the server that f had */
bool is_ourselves(int fd, const struct addr *a); /* what was dialled is this host */
/* With so many open, is one more too much for it (or too soon)? NULL, or why. */
const char *over_limits(struct box *b, size_t open);
/* What it may move now in this direction, under a limit of its rate; NULL: there is none. Whoever moves something takes it from there by box_moved. */
struct bucket *box_rate(struct box *b, bool up);
bool box_moved(struct box *b, bool up, size_t n); /* false: more than it may altogether */
extern const char used_up[];
struct addr addr_of(const struct sockaddr_storage *ss, uint16_t *ret_port);

/* hold.c */
void hold_prepare(struct edge *e);
void hold_weigh(struct flow *f);  /* after it has moved bytes */
void hold_join(struct flow *f);	  /* it has its server */
void hold_forget(struct flow *f); /* it ends */
void hold_sweep(struct edge *e);

/* udp.c */
void udp_take(struct box *b, struct source *s);
void udp_on_far(struct udp_flow *f);
void udp_rejudge(struct box *b); /* the policy, or what is opened, has changed */
void udp_drop(struct box *b);
bool udp_give_way(struct box *b); /* one that has been silent for a while ends */
void udp_sweep(struct edge *e, uint64_t now);
void udp_bury(struct edge *e);

/* hand.c: to the opener */
bool opens_port(const struct box *b, uint16_t port); /* could a connection to this port be one for it? */
bool opens_name(const struct box *b, const char *name, uint16_t port); /* or is read */
bool reads_port(const struct box *b, uint16_t port); /* the same of hosts whose requests are read */
bool reads_name(const struct box *b, const char *name, uint16_t port);
bool reads_addr(struct box *b, const struct addr *a, uint16_t port); /* an address that was given for the name of one */
/* Its server is the opener from now on, and another connection goes on from there. False: it could not be. */
bool flow_hand_over(struct flow *f);

/* first.c */
enum first { FIRST_WAIT, FIRST_PASS, FIRST_REFUSE };
/* Looks at what the client has sent so far (nothing is taken from it). *ret_reason for a refusal. */
enum first first_judge(struct flow *f, const uint8_t *p, size_t n, const char **ret_reason);
/* The next bytes of a connection whose HTTP or TLS is followed. */
enum first first_follow(struct flow *f, const uint8_t *p, size_t n, const char **ret_reason);
void first_server_says(struct flow *f, const uint8_t *p, size_t n);
void first_done(struct flow *f); /* nothing of it is followed any more */

/* ask.c: questions by connections */
void ask_begin(struct flow *f);
void ask_run(struct flow *f); /* reads on, unless an answer is waited for */
void ask_answer(struct flow *f, const uint8_t *p, size_t n); /* at most DNS_TCP_MAX */
void ask_waits(struct flow *f, struct lookup *l); /* NULL: no longer */
struct lookup *ask_lookup(const struct flow *f);
/* More of a message of at most `max` bytes, which has its length before it. 1: it is all in `in`, 0: later, negative: there will be none. */
int ask_read(int fd, uint8_t *in, size_t max, size_t *have);

/* name.c */
struct asker { /* who asked, and whom */
	struct flow *flow;     /* by this connection; NULL: by a datagram, and then */
	struct source *names;  /* to this socket */
	struct sockaddr_storage from;
	socklen_t from_len;
	struct addr to;
};
/* A question. False: no answer is due. */
bool name_take(struct box *b, const struct asker *a, const uint8_t *p, size_t n);
void name_forget(struct lookup *l); /* who asked has gone */
void name_ask(struct box *b, struct source *s);
void name_reply(struct lookup *l);
void names_sweep(struct edge *e, uint64_t now);
void names_rejudge(struct box *b);
void names_drop(struct box *b); /* lookups and pins */
void lookups_bury(struct edge *e);
/* Is there a pin of this address whose name may be used for that port? name NULL: any; then the best one is chosen (raw first). Returns the
 * pin's name, or NULL. */
const char *pin_find(struct box *b, const struct addr *a, uint16_t port, enum policy_proto proto, const char *name, bool *ret_raw);
bool pin_of_name(struct box *b, const struct addr *a, const char *name); /* was it given for the name, whatever the policy says? */
bool pin_of_rules(struct box *b, const struct addr *a, uint16_t port, const struct policy *p); /* for a name that p allows on the port? */
int resolvers_read(struct edge *e, const char *text);

/* host.c */
int host_open(struct edge *e);
void host_changed(struct edge *e);

/* jail.c */
int jail_edge(const struct edge_options *o);

#endif
