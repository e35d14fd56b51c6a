/* What the machine's kernel remembers, and what it has open: numbers for descriptors. */
#include "volumes/server_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { KEPT_BACK = 64 }; /* descriptors for a moment's use */

int nodes_init(struct server *s, unsigned files_max)
{
	if (files_max < 4 * LOCKS_MAX)
		return -EMFILE;
	s->handles_max = files_max / 4;
	s->nodes_max = files_max - s->handles_max - LOCKS_MAX - KEPT_BACK;
	s->nodes = xcalloc(s->nodes_max, sizeof *s->nodes);
	s->handles = xcalloc(s->handles_max, sizeof *s->handles);
	for (uint32_t i = 0; i < s->nodes_max; i++)
		s->nodes[i] = (struct node){ .fd = -EBADF, .next = i + 1 < s->nodes_max ? i + 1 : NONE };
	for (uint32_t i = 0; i < s->handles_max; i++)
		s->handles[i] = (struct handle){ .fd = -EBADF, .next = i + 1 < s->handles_max ? i + 1 : NONE };
	for (size_t i = 0; i < NODE_BUCKETS; i++)
		s->buckets[i] = NONE;
	return 0;
}

void nodes_done(struct server *s)
{
	for (uint32_t i = 0; s->nodes && i < s->nodes_max; i++)
		close_fd(s->nodes[i].fd);
	for (uint32_t i = 0; s->handles && i < s->handles_max; i++)
		close_fd(s->handles[i].fd);
	free(s->nodes);
	free(s->handles);
}

void proc_name(int fd, char ret[static 16])
{
	snprintf(ret, 16, "%d", fd);
}

static uint32_t *bucket_of(struct server *s, uint8_t volume, uint64_t ino)
{
	return &s->buckets[(ino * 11400714819323198485u + volume) % NODE_BUCKETS];
}

uint64_t node_number(const struct server *s, uint32_t node)
{
	return node == s->roots[s->nodes[node].volume] ? FUSE_ROOT_ID : (uint64_t)node + FUSE_ROOT_ID + 1;
}

int node_find(const struct server *s, uint64_t number, uint32_t *ret_node)
{
	if (number == FUSE_ROOT_ID) {
		*ret_node = s->roots[s->volume];
		return 0;
	}
	uint64_t node = number - FUSE_ROOT_ID - 1;
	if (number <= FUSE_ROOT_ID || node >= s->nodes_max || s->nodes[node].fd < 0 || s->nodes[node].volume != s->volume || node == s->roots[s->volume])
		return -ESTALE;
	*ret_node = (uint32_t)node;
	return 0;
}

int node_add(struct server *s, int fd, const struct stat *st, uint32_t *ret_node)
{
	uint32_t *bucket = bucket_of(s, s->volume, st->st_ino);
	uint32_t i = *bucket;

	/* Everything is of one file system (the mount has no others below it), and a descriptor keeps the number from being used again. */
	while (i != NONE && (s->nodes[i].ino != st->st_ino || s->nodes[i].volume != s->volume))
		i = s->nodes[i].next;
	if (i != NONE) {
		(void)close(fd);
		s->nodes[i].lookups++;
		*ret_node = i;
		return 0;
	}
	if ((i = s->nodes_free) == NONE) {
		(void)close(fd);
		return -ENFILE;
	}
	struct node *n = &s->nodes[i];
	s->nodes_free = n->next;
	s->nodes_n++;
	*n = (struct node){ .fd = fd, .volume = s->volume, .type = st->st_mode & S_IFMT, .ino = st->st_ino, .lookups = 1,
			    .generation = ++s->generation, .next = *bucket };
	*bucket = i;
	*ret_node = i;
	return 0;
}

void node_forget(struct server *s, uint64_t number, uint64_t lookups)
{
	uint32_t i;

	if (node_find(s, number, &i) < 0 || i == s->roots[s->volume])
		return;
	struct node *n = &s->nodes[i];
	n->lookups -= MIN(lookups, n->lookups);
	if (n->lookups)
		return;
	lock_node_gone(s, i);
	uint32_t *at = bucket_of(s, n->volume, n->ino);
	while (*at != i)
		at = &s->nodes[*at].next;
	*at = n->next;
	close_fd(n->fd);
	*n = (struct node){ .fd = -EBADF, .next = s->nodes_free };
	s->nodes_free = i;
	s->nodes_n--;
}

int node_open(const struct server *s, uint32_t node, int flags)
{
	char name[16];

	/* A fifo's or a device's open does something: the machine's kernel does not ask for it. */
	if (s->nodes[node].type != S_IFREG && s->nodes[node].type != S_IFDIR)
		return -EINVAL;
	proc_name(s->nodes[node].fd, name);
	int fd = openat(s->proc, name, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

int handle_add(struct server *s, int fd, bool folder, uint64_t *ret_number)
{
	uint32_t i = s->handles_free;

	if (i == NONE) {
		(void)close(fd);
		return -ENFILE;
	}
	s->handles_free = s->handles[i].next;
	s->handles[i] = (struct handle){ .fd = fd, .volume = s->volume, .folder = folder };
	*ret_number = i;
	return 0;
}

int handle_find(const struct server *s, uint64_t number, bool folder, struct handle **ret)
{
	if (number >= s->handles_max || s->handles[number].fd < 0 || s->handles[number].volume != s->volume || s->handles[number].folder != folder)
		return -EBADF;
	*ret = &s->handles[number];
	return 0;
}

void handle_drop(struct server *s, struct handle *h)
{
	close_fd(h->fd);
	*h = (struct handle){ .fd = -EBADF, .next = s->handles_free };
	s->handles_free = (uint32_t)(h - s->handles);
}
