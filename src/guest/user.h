/* Users of the sandbox, from its own /etc/passwd and /etc/group: files a tenant may have written, so nothing in them is
 * believed beyond what it says about the inside. */
#ifndef CAISSON_GUEST_USER_H
#define CAISSON_GUEST_USER_H

#include "base/err.h"
#include "base/util.h"

enum { USER_GROUPS_MAX = 64 };

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX];
	size_t ngroups;
	char name[64], home[256], shell[256];
};

/* "name", "uid", "name:group", "uid:gid". A number that has no entry is a user without a name, home "/". */
int user_find(const char *text, struct user *ret, struct err *e);
/* A numeric or named id for chown: 0 or -ENOENT. */
int user_id_of(const char *text, bool group, uint32_t *ret);
/* The name of an id, or its digits. `ret` is small on purpose: longer names come as digits. */
void user_name_of(uint32_t id, bool group, char ret[static 64]);
/* The user owns what it is given (a pipe, a terminal), so that it can open /dev/stdout and the like. Without the right to do so
 * it goes on without. */
void user_give(const struct user *u, int fd, bool group);
/* Becomes the user for good, by raw system calls: safe in a child that shares its parent's memory. 0 or -errno. */
int user_become(const struct user *u);

#endif
