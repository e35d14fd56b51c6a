#include "warden/pool.h"

#include "sys/fs.h"
#include "sys/mnt.h"
#include "sys/netns.h"
#include "sys/process.h"
#include "warden/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS_KEPT 64  /* free ones that keep their descriptors */
#define SLOTS_WARM 256 /* with fewer sandboxes than this, those in use keep theirs, too */

int pool_open(struct pool *p, struct place *place, struct helper *disk_helper, struct helper *space_helper, struct err *e)
{
	const struct warden_options *o = place->options;

	*p = (struct pool){ .place = place,
			    .disk_helper = disk_helper,
			    .space_helper = space_helper,
			    .namespace_max = o->spare_namespaces ? o->spare_namespaces : 16,
			    .disk_max = o->spare_disks ? o->spare_disks : 2 };
	p->namespaces = xcalloc(p->namespace_max, sizeof *p->namespaces);
	auto_free char *state = place_state_folder(place);
	return ranges_open(&p->ranges, o->ranges ? o->ranges : "/run/caisson/ranges", state, e);
}

static void slot_free(struct slot *s)
{
	s->userns = close_fd(s->userns);
	s->lower = close_fd(s->lower);
	free(s);
}

static void spare_free(struct pool *p, struct spare_disk *d)
{
	disk_close(&d->made.disk);
	(void)disk_remove_file(p->place, d->made.name);
	free(d);
}

void pool_close(struct pool *p, bool empty)
{
	while (p->free_slots) {
		struct slot *s = p->free_slots;
		p->free_slots = s->next;
		slot_free(s);
	}
	while (p->images) {
		struct image_use *i = p->images;
		p->images = i->next;
		close_fd(i->folder);
		free(i);
	}
	while (p->namespace_count)
		close_fd(p->namespaces[--p->namespace_count]);
	while (p->gate_count) {
		const struct spare_gate *g = &p->gates[--p->gate_count];
		close_fd(g->inside);
		close_fd(g->gate);
	}
	free(take_ptr(&p->namespaces));
	while (p->disks) {
		struct spare_disk *d = p->disks;
		p->disks = d->next;
		spare_free(p, d);
	}
	if (p->ranges.state_folder)
		ranges_close(&p->ranges, empty);
}

int pool_image_get(struct pool *p, const char *digest, struct image_use **ret, struct err *e)
{
	for (struct image_use *i = p->images; i; i = i->next)
		if (streq(i->digest, digest)) {
			i->users++;
			*ret = i;
			return 0;
		}

	char name[80];
	snprintf(name, sizeof name, "sha256-%s", digest + strlen("sha256:"));
	auto_fd int folder = openat(p->place->images_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (folder < 0)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no image %s", digest);
	if (flock(folder, LOCK_SH | LOCK_NB) < 0)
		return err_set(e, ERR_CONFLICT, EBUSY, "the image %s is being removed", digest);
	struct stat st;
	if (fstatat(folder, "rootfs", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return err_set(e, ERR_UNAVAILABLE, ENOTDIR, "the image %s has no rootfs: remove it and add it again", digest);
	struct image_use *i = xcalloc(1, sizeof *i);
	i->dev = st.st_dev;
	i->ino = st.st_ino;
	snprintf(i->digest, sizeof i->digest, "%s", digest);
	i->folder = take_fd(&folder);
	i->users = 1;
	i->next = p->images;
	p->images = i;
	*ret = i;
	return 0;
}

void pool_image_put(struct pool *p, const char *digest)
{
	for (struct image_use **at = &p->images; *at; at = &(*at)->next) {
		struct image_use *i = *at;
		if (!streq(i->digest, digest))
			continue;
		if (--i->users == 0) {
			/* The lock goes at once; a free slot's view of the image does not keep anybody from removing it. */
			*at = i->next;
			close_fd(i->folder);
			free(i);
		}
		return;
	}
}

struct slot *pool_slot_get(struct pool *p, struct err *e)
{
	struct slot *s = p->free_slots;

	if (s) {
		p->free_slots = s->next;
		p->slots_free--;
	} else {
		uint32_t number;
		if (range_take(&p->ranges, &number, e) < 0)
			return NULL;
		s = xcalloc(1, sizeof *s);
		*s = (struct slot){ .number = number, .userns = -EBADF, .lower = -EBADF };
	}
	if (s->userns < 0) {
		s->userns = process_userns(range_uid(s->number), RANGE_SIZE);
		if (s->userns < 0) {
			(void)err_sys(e, ERR_UNAVAILABLE, -s->userns, "make a user namespace (see user.max_user_namespaces)");
			range_release(&p->ranges, s->number);
			slot_free(s);
			return NULL;
		}
	}
	p->slots_live++;
	return s;
}

struct slot *pool_slot_adopt(struct pool *p, uint32_t number)
{
	if (range_take_slot(&p->ranges, number) < 0)
		return NULL;
	struct slot *s = xcalloc(1, sizeof *s);
	*s = (struct slot){ .number = number, .userns = -EBADF, .lower = -EBADF };
	p->slots_live++;
	return s;
}

void pool_slot_put(struct pool *p, struct slot *s)
{
	p->slots_live--;
	if (p->slots_free >= SLOTS_KEPT) {
		range_release(&p->ranges, s->number);
		slot_free(s);
		return;
	}
	s->next = p->free_slots;
	p->free_slots = s;
	p->slots_free++;
}

void pool_slot_rest(struct pool *p, struct slot *s)
{
	if (p->slots_live <= SLOTS_WARM)
		return;
	s->userns = close_fd(s->userns);
	if (s->lower >= 0) /* to close a detached mount is to wait for a grace period */
		helper_let_go(p->space_helper, s->lower, false);
	s->lower = -EBADF;
}

int pool_slot_lower(struct pool *p, struct slot *s, struct image_use *image, struct err *e)
{
	const char *why = "";

	if (s->lower >= 0 && s->lower_dev == image->dev && s->lower_ino == image->ino && p->place->layers_by_fd)
		return s->lower;
	s->lower = close_fd(s->lower);
	int fd = mnt_idmapped(image->folder, "rootfs", s->userns, &why);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, -fd, "image %s: %s", image->digest, why);
	s->lower = fd;
	s->lower_dev = image->dev;
	s->lower_ino = image->ino;
	return fd;
}

/* One after the other, so that a helper that is wanted for more does not have many in front of it. */
static void order_namespace(struct pool *p)
{
	if (p->namespace_count < p->namespace_max && !p->namespaces_failing && p->space_helper->namespaces == 0)
		helper_make_namespace(p->space_helper);
}

int pool_namespace_get(struct pool *p, struct err *e)
{
	if (p->namespace_count <= p->namespace_max / 4) /* else in a quiet moment: there are only so many processors */
		order_namespace(p);
	if (p->namespace_count)
		return p->namespaces[--p->namespace_count];
	int fd = netns_new(&p->place->netns);
	if (fd < 0)
		return err_sys(e, ERR_UNAVAILABLE, -fd, "make a network namespace");
	return fd;
}

/* Two milliseconds each, so that they are worth having; and a third of a megabyte, so that only who needs them has them. */
static void order_gate(struct pool *p)
{
	if (p->gates_wanted && p->gate_count < POOL_GATES && !p->gates_failing && p->space_helper->gates == 0)
		helper_make_gate(p->space_helper);
}

int pool_gate_get(struct pool *p, struct spare_gate *ret, struct err *e)
{
	p->gates_wanted = true;
	if (p->gate_count <= POOL_GATES / 4)
		order_gate(p);
	if (p->gate_count) {
		*ret = p->gates[--p->gate_count];
		return 0;
	}
	auto_fd int inside = pool_namespace_get(p, e);
	int gate = inside < 0 ? inside : gate_new(&p->place->netns, inside, e);
	if (gate < 0)
		return gate;
	*ret = (struct spare_gate){ take_fd(&inside), gate };
	return 0;
}

static bool make_disk(struct pool *p, uint64_t mib, bool journal)
{
	char name[SPARE_NAME_MAX];

	snprintf(name, sizeof name, "spare-%d-%llu", (int)getpid(), (unsigned long long)p->disk_serial++);
	return helper_make_disk(p->disk_helper, name, mib, journal);
}

static void order_disk(struct pool *p)
{
	struct err e;

	if (p->disk_mib && p->disk_count < p->disk_max && !p->disks_failing && p->disk_helper->disks == 0 &&
	    disk_check(p->place, DISK_FILE, p->disk_mib, &e) == 0)
		(void)make_disk(p, p->disk_mib, true);
}

static bool take_spare(struct pool *p, const char *id, uint64_t mib, bool journal, struct disk *ret)
{
	char from[64], to[64];

	for (struct spare_disk **at = &p->disks; *at; at = &(*at)->next) {
		struct spare_disk *d = *at;
		if (d->made.mib != mib || d->made.journal != journal)
			continue;
		snprintf(from, sizeof from, "%s.img", d->made.name);
		snprintf(to, sizeof to, "%s.img", id);
		if (renameat(p->place->disks_fd, from, p->place->disks_fd, to) < 0)
			return false;
		*at = d->next;
		p->disk_count--;
		*ret = d->made.disk;
		free(d);
		return true;
	}
	return false;
}

int pool_disk_get(struct pool *p, const char *id, uint64_t mib, bool journal, struct disk *ret, struct err *e)
{
	if (journal)
		p->disk_mib = mib;
	if (take_spare(p, id, mib, journal, ret)) {
		order_disk(p);
		return 0;
	}
	if (!p->disks_failing && make_disk(p, mib, journal))
		return -EINPROGRESS;
	return disk_make_file(p->place, id, mib, journal, ret, e);
}

int pool_disk_take(struct pool *p, const char *id, uint64_t mib, bool journal, struct disk *ret, struct err *e)
{
	if (take_spare(p, id, mib, journal, ret))
		return 0;
	return p->disks_failing ? disk_make_file(p->place, id, mib, journal, ret, e) : 1;
}

/* Spares of a size that nobody asks for any more. */
static void drop_stale_disks(struct pool *p)
{
	for (struct spare_disk **at = &p->disks; *at;) {
		struct spare_disk *d = *at;
		if (d->made.mib == p->disk_mib && d->made.journal) {
			at = &d->next;
			continue;
		}
		*at = d->next;
		p->disk_count--;
		spare_free(p, d);
		helper_empty_trash(p->space_helper);
	}
}

static void keep_disk(struct pool *p, const struct helper_news *made)
{
	struct spare_disk *d = xcalloc(1, sizeof *d);

	*d = (struct spare_disk){ .made = *made, .next = p->disks };
	p->disks = d;
	p->disk_count++;
}

bool pool_take(struct pool *p, struct helper *from)
{
	struct helper_news news;
	int rc = helper_take(from, &news);

	if (rc == -EAGAIN)
		return true;
	if (rc == -EPIPE) { /* whoever asks for a disk or a namespace gets it made on the spot, or is told why not */
		p->disks_failing |= from == p->disk_helper;
		p->namespaces_failing |= from == p->space_helper;
		p->gates_failing |= from == p->space_helper;
		return false;
	}
	if (rc < 0) {
		static const char *const what[] = { [HELPER_DISK] = "disk", [HELPER_NAMESPACE] = "network namespace", [HELPER_GATE] = "gate" };
		log_warn("msg=\"no %s can be made in advance\" errno=%d", what[news.kind], -rc);
		p->disks_failing |= news.kind == HELPER_DISK;
		p->namespaces_failing |= news.kind == HELPER_NAMESPACE;
		p->gates_failing |= news.kind == HELPER_GATE;
	} else if (news.kind == HELPER_DISK) {
		keep_disk(p, &news);
	} else if (news.kind == HELPER_GATE) {
		p->gates[p->gate_count++] = (struct spare_gate){ news.namespace, news.gate };
	} else {
		p->namespaces[p->namespace_count++] = news.namespace;
	}
	return true;
}

void pool_fill(struct pool *p)
{
	order_namespace(p);
	order_gate(p);
	order_disk(p);
	drop_stale_disks(p);
}
