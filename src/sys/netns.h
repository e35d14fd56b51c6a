/* Network namespaces with nothing but a loopback that is up. */
#ifndef CAISSON_SYS_NETNS_H
#define CAISSON_SYS_NETNS_H

/* A new one, owned by the user namespace of the caller: whoever is put in holds no capability over it. The caller's own is as
 * before on return. Ports from 0 are free to bind inside and ping sockets are allowed to all groups: both matter to a
 * root that has no capability here. Connections have buffers of at most 1 MiB each way. Returns a descriptor, or a negative errno. Not for a process with threads. */
struct netns_maker {
	int own;  /* the caller's namespace */
	int proc; /* a /proc of our own, or negative */
	unsigned uses;
};
int netns_maker_init(struct netns_maker *m);
void netns_maker_done(struct netns_maker *m);
int netns_new(struct netns_maker *m);
/* One that `fill` makes ready, called inside it with a /proc that shows it. An error of its is the result. */
int netns_make(struct netns_maker *m, int (*fill)(void *ctx, int proc), void *ctx);
/* The same in one that is there already. */
int netns_in(struct netns_maker *m, int fd, int (*fill)(void *ctx, int proc), void *ctx);
int netns_enter(int fd);
int netns_loopback_up(void); /* of the caller's */

#endif
