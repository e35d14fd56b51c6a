/* Network namespaces with nothing but a loopback that is up. */
#ifndef CAISSON_SYS_NETNS_H
#define CAISSON_SYS_NETNS_H

/* A new one, owned by the user namespace of the caller: whoever is put in holds no capability over it. The caller's own is as
 * before on return. Ports from 0 are free to bind inside and ping sockets are allowed to all groups: both matter to a
 * root that has no capability here. Returns a descriptor, or a negative errno. Not for a process with threads. */
int netns_new(int own_netns_fd);
int netns_enter(int fd);

#endif
