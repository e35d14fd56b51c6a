/* Shared by the parts of the volume server. */
#ifndef CAISSON_VOLUMES_SERVER_INT_H
#define CAISSON_VOLUMES_SERVER_INT_H

#include "volumes/server.h"

#include <sys/stat.h>

enum { NODE_BUCKETS = 8192, LOCKS_MAX = 1024, WAITING_MAX = 256, NONE = UINT32_MAX };

struct node { /* something that the machine's kernel remembers */
	int fd; /* O_PATH; negative = free */
	uint8_t volume;
	mode_t type;
	uint64_t ino, lookups, generation;
	uint32_t next; /* in its bucket, or of the free ones */
};

struct handle { /* something that is open there */
	int fd; /* negative = free */
	uint8_t volume;
	bool folder;
	uint32_t next; /* of the free ones */
};

struct owner { /* the record locks that one process of the machine has on one file */
	uint32_t node;
	uint64_t id;
	int fd;
};

struct waiting { /* a request for a lock that is not to be had yet */
	uint8_t volume;
	struct fuse_request rq; /* without views */
};

struct server {
	int line, proc; /* proc: /proc/self/fd */
	unsigned volumes;
	uint32_t roots[VOLUMES_MAX]; /* their nodes */
	struct node *nodes;
	struct handle *handles;
	uint32_t nodes_max, nodes_n, nodes_free, handles_max, handles_free;
	uint32_t buckets[NODE_BUCKETS];
	uint64_t generation, asked_ms, retried_ms;
	struct owner owners[LOCKS_MAX];
	unsigned owners_n;
	struct waiting waiting[WAITING_MAX];
	unsigned waiting_n;
	uid_t uid;
	gid_t gid;
	uint8_t volume; /* of the request that is being done */
	struct buf out;
};

/* node.c: numbers on the line are an index and one; a root is 1. Functions return a negative errno for what is not there. */
int nodes_init(struct server *s, unsigned files_max);
void nodes_done(struct server *s);
int node_find(const struct server *s, uint64_t number, uint32_t *ret_node);
/* Takes fd. One lookup more of what it is. */
int node_add(struct server *s, int fd, const struct stat *st, uint32_t *ret_node);
void node_forget(struct server *s, uint64_t number, uint64_t lookups);
uint64_t node_number(const struct server *s, uint32_t node);
/* The file itself, by its node: open(2)'s flags. */
int node_open(const struct server *s, uint32_t node, int flags);
int handle_add(struct server *s, int fd, bool folder, uint64_t *ret_number); /* takes fd */
int handle_find(const struct server *s, uint64_t number, bool folder, struct handle **ret);
void handle_drop(struct server *s, struct handle *h);
void proc_name(int fd, char ret[static 16]); /* in s->proc */

/* tree.c, file.c, lock.c: they answer, or return a negative errno that is the answer. 1 = answered later. */
int tree_do(struct server *s, const struct fuse_request *r);
int file_do(struct server *s, const struct fuse_request *r);
int lock_do(struct server *s, const struct fuse_request *r);
void fill_attr(const struct stat *st, struct fuse_attr *ret);
void lock_flush(struct server *s, uint32_t node, uint64_t owner);
void lock_node_gone(struct server *s, uint32_t node);
void lock_interrupt(struct server *s, uint64_t unique);
void lock_retry(struct server *s);
/* Whoever makes something is its owner. Undone by as_oneself. */
int as_owner(const struct server *s, const struct fuse_request *r);
void as_oneself(const struct server *s);

#endif
