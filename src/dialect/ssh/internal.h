/* What the files of the SSH dialect share.
 *
 * Theory of operation. libssh never blocks here and has no loop of its own: when a connection's socket is ready it is given one turn
 * (ssh_event_dopoll without waiting), in which it reads, decrypts and calls us back. A connection proves itself by a token, which is
 * the user's name; that says the sandbox and the caller. A channel then becomes one run, its output goes to the channel as far as
 * the client's window allows, and waits at the follower beyond that; its input is taken as far as the run has room, and beyond that
 * stays in libssh, whose window closes. Channels and connections are freed only at the end of a turn: libssh is not left standing on
 * what is gone. */
#ifndef CAISSON_DIALECT_SSH_INTERNAL_H
#define CAISSON_DIALECT_SSH_INTERNAL_H

#include "dialect/ssh/lib.h"
#include "dialect/ssh/ssh.h"

#define CHANNELS_MAX 32 /* of a connection */

struct peer;

struct ssh_server {
	uv_loop_t *loop;
	struct api *api;
	ssh_bind bind;
	int listener;
	uv_poll_t poll;
	uv_timer_t sweep;
	struct peer *peers;
	size_t n_peers;
	unsigned handles; /* not yet closed */
	bool resting;     /* no connection is taken until the next sweep */
	bool freed;
};

struct chan {
	struct peer *peer;
	ssh_channel raw;
	struct ssh_channel_callbacks_struct events;
	struct run_spec spec; /* what came before the command: terminal, environment */
	char *run;            /* id, once it has begun */
	struct follower *follower;
	struct buf input;     /* what the run has not taken yet */
	struct buf out[2];    /* what the client's window has no room for */
	int exit_code, signo;
	bool asked, ended, over, paused;
	bool held; /* libssh has input that there was no room for */
	bool eof;  /* there will be no more of it */
	bool unread; /* nobody reads what the run says */
	bool pushing; /* libssh has its output in hand */
	bool blocked; /* its output waits for what libssh has to write first */
	uint64_t thrown; /* bytes of it since then */
	struct chan *next;
};

struct peer { /* a connection */
	struct ssh_server *server;
	ssh_session session;
	ssh_event event;
	int fd;
	uv_poll_t poll;
	int events; /* that the poll handle waits for */
	struct ssh_server_callbacks_struct callbacks;
	struct caller caller;
	char sandbox[40]; /* empty until it has proved itself */
	char token[GRANT_TOKEN_SIZE]; /* that it did so with */
	unsigned tries;
	uint64_t since_ms;
	bool exchanged, over, turning;
	struct chan *channels;
	size_t n_channels;
	struct peer *prev, *next;
};

/* Writes what waits to be written, lets go what has ended, and waits for the socket as it needs. Does nothing in a turn, whose end does it:
 * libssh may be in one of our callbacks, and every write to it may call others. */
void peer_settle(struct peer *p);

/* channel.c */
ssh_channel chan_open(struct peer *p);
void chan_take(struct chan *c); /* what is held, as far as there is room now */
void chan_flush(struct chan *c); /* what is waiting, as far as the window has room now */
bool chan_could_go_on(const struct chan *c); /* chan_flush or chan_take would find what they stopped at gone */
void chan_unread(struct chan *c); /* its client takes no more output */
void chan_free(struct chan *c); /* cancels its run if that has not ended */

#endif
