#include "warden/serve.h"
#include "warden/snapshot.h"
#include "warden/volume.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#define PAUSE_WITHIN_MS 5000

/* What a request may meet. */
enum {
	IN_ABSENT = 1 << 0,
	IN_STOPPED = 1 << 1,
	IN_RUNNING = 1 << 2,
	IN_ENDING = 1 << 3,
	IN_SWEEPING = 1 << 4,
	IN_MAKING = 1 << 5,
	IN_ANY = IN_STOPPED | IN_RUNNING | IN_ENDING | IN_SWEEPING,
};

static const char *const life_names[] = {
	[LIFE_STOPPED] = "stopped", [LIFE_RUNNING] = "running", [LIFE_ENDING] = "ending", [LIFE_SWEEPING] = "ending", [LIFE_MAKING] = "being made"
};

/* 0 = done, answer it; 1 = answered later or already; negative = failed, e says why. */
typedef int (*handler)(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e);

static int do_probe(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	/* That it answers is the news: a host that cannot do it ends the warden at its start. And where the guests' sockets are. */
	struct warden_answer a = { .magic = WARDEN_MAGIC, .op = WARDEN_ANSWER, .serial = rq->serial };

	(void)s;
	if ((size_t)snprintf(a.message, sizeof a.message, "%s", w->place.run) >= sizeof a.message)
		return err_set(e, ERR_UNAVAILABLE, ENAMETOOLONG, "the path of the run folder is too long");
	warden_send(w, &a);
	return 1;
}

static int do_list(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)s, (void)e;
	for (size_t b = 0; b < BUCKETS; b++)
		for (struct sandbox *one = w->buckets[b]; one; one = one->next_in_bucket) {
			struct warden_answer a = { .magic = WARDEN_MAGIC, .op = WARDEN_ITEM, .serial = rq->serial, .oom = one->oom };
			if (one->record.machine)
				continue;
			memcpy(a.id, one->record.id, sizeof a.id);
			a.started = one->life == LIFE_RUNNING;
			one->untold = false;
			warden_send(w, &a);
		}
	return 0;
}

static int do_create(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)s;
	struct sandbox *new = warden_add(w, rq->id);
	int rc = sandbox_create(&w->keeper, new, rq, e);

	if (new->life == LIFE_MAKING) {
		warden_wait(new, rq, 0);
		warden_set_busy(w, new, true);
		return 1;
	}
	if (rc == 0 && (rc = warden_watch(w, new)) < 0)
		(void)err_sys(e, ERR_UNAVAILABLE, -rc, "watch the sandbox");
	if (rc < 0)
		warden_forget(w, new);
	return rc;
}

static int do_start(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	s->oom = s->untold = false;
	int rc = sandbox_boot(&w->keeper, s, rq, e);
	return rc < 0 ? rc : warden_watch(w, s);
}

static int do_stop(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)w, (void)e;
	s->untold = false;
	if (s->life == LIFE_STOPPED)
		return 0;
	warden_kill(w, s);
	warden_wait(s, rq, 0);
	return 1;
}

void request_destroy(struct warden *w, struct sandbox *s, const struct warden_request *rq)
{
	snapshot_cancel(w, rq->id);
	if (s && s->life == LIFE_MAKING) {
		struct err e;
		sandbox_unmake(&w->keeper, s);
		(void)err_set(&e, ERR_GONE, ESRCH, "the sandbox was deleted before it was made");
		warden_answer_waiters(w, s, &e);
		warden_forget(w, s);
		warden_answer(w, rq->serial, rq->id, NULL);
		return;
	}
	/* One that nobody knows may have left things all the same: a disk of before a reboot, a half-made group. */
	if (!s) {
		s = warden_add(w, rq->id);
		memcpy(s->record.id, rq->id, sizeof s->record.id);
		sandbox_await_sweep(s);
		cgroup_kill(&w->groups, rq->id);
	}
	s->destroying = true;
	s->untold = false;
	warden_wait(s, rq, 0);
	if (s->life == LIFE_RUNNING)
		warden_kill(w, s);
	else if (s->life != LIFE_ENDING)
		warden_sweep(w, s);
}

static int do_destroy(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)e;
	request_destroy(w, s, rq);
	return 1;
}

static int do_pause(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	int rc = sandbox_freeze(&w->keeper, s, true);

	if (rc < 0)
		return err_sys(e, ERR_UNAVAILABLE, -rc, "freeze the sandbox");
	if (cgroup_is_frozen(&w->groups, s->record.id))
		return 0;
	warden_wait(s, rq, PAUSE_WITHIN_MS);
	warden_set_busy(w, s, true);
	return 1;
}

static int do_resume(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)rq;
	int rc = sandbox_freeze(&w->keeper, s, false);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "thaw the sandbox") : 0;
}

static int do_network(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	return sandbox_network(&w->keeper, s, rq->network, e);
}

static int do_usage(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	struct warden_answer a = { .magic = WARDEN_MAGIC, .op = WARDEN_ANSWER, .serial = rq->serial };

	(void)e;
	memcpy(a.id, rq->id, sizeof a.id);
	sandbox_measure(&w->keeper, s, &a);
	warden_send(w, &a);
	return 1;
}

static int do_snapshot(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	return snapshot_take(w, s, rq, e);
}

static int do_clone(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)s;
	return snapshot_clone(w, rq, e);
}

static int do_drop_snapshot(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)s;
	int rc = snapshot_drop(w, rq->snapshot);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "remove the snapshot") : 0;
}

static int do_list_snapshots(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)s;
	int rc = snapshot_list(w, SNAPSHOT_FILES, rq->serial);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "list the snapshots") : 0;
}

static int do_make_volume(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)s;
	return snapshot_make_volume(w, rq, e);
}

static int do_drop_volume(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)s;
	int rc = snapshot_drop_volume(w, rq->id);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "remove the volume") : 0;
}

static int do_list_volumes(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	(void)s;
	int rc = snapshot_list(w, VOLUME_FILES, rq->serial);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "list the volumes") : 0;
}

static int do_resize(struct warden *w, struct sandbox *s, const struct warden_request *rq, struct err *e)
{
	return sandbox_set_limits(&w->keeper, s, rq, e);
}

/* The policy: what may be asked, of a sandbox in which life, with which part of the record read. */
static const struct entry {
	const char *name;
	handler handle;
	bool one;	    /* names a sandbox */
	bool snapshot;	    /* names a snapshot */
	bool volume;	    /* its id is a volume's */
	bool size;	    /* reads disk_mib, as spec does */
	bool limits;	    /* reads limits */
	bool spec;	    /* reads image, limits, host name and the guest's words */
	unsigned permitted; /* with `one` */
} table[WARDEN_LAST_REQUEST + 1] = {
	[WARDEN_PROBE] = { "probe", do_probe, .one = false },
	[WARDEN_LIST] = { "list", do_list, .one = false },
	[WARDEN_CREATE] = { "create", do_create, .one = true, .spec = true, .permitted = IN_ABSENT },
	[WARDEN_START] = { "start", do_start, .one = true, .spec = true, .permitted = IN_STOPPED },
	[WARDEN_STOP] = { "stop", do_stop, .one = true, .permitted = IN_ANY },
	[WARDEN_DESTROY] = { "destroy", do_destroy, .one = true, .permitted = IN_ANY | IN_MAKING | IN_ABSENT },
	[WARDEN_PAUSE] = { "pause", do_pause, .one = true, .permitted = IN_RUNNING },
	[WARDEN_RESUME] = { "resume", do_resume, .one = true, .permitted = IN_RUNNING },
	[WARDEN_NETWORK] = { "network", do_network, .one = true, .permitted = IN_RUNNING },
	[WARDEN_USAGE] = { "usage", do_usage, .one = true, .permitted = IN_ANY },
	[WARDEN_RESIZE] = { "resize", do_resize, .one = true, .limits = true, .permitted = IN_RUNNING },
	[WARDEN_SNAPSHOT] = { "snapshot", do_snapshot, .one = true, .snapshot = true, .permitted = IN_RUNNING | IN_STOPPED },
	[WARDEN_CLONE] = { "clone", do_clone, .one = true, .snapshot = true, .permitted = IN_ABSENT },
	[WARDEN_DROP_SNAPSHOT] = { "drop a snapshot", do_drop_snapshot, .snapshot = true },
	[WARDEN_LIST_SNAPSHOTS] = { "list snapshots", do_list_snapshots },
	[WARDEN_MAKE_VOLUME] = { "make a volume", do_make_volume, .volume = true, .size = true },
	[WARDEN_DROP_VOLUME] = { "drop a volume", do_drop_volume, .volume = true },
	[WARDEN_LIST_VOLUMES] = { "list volumes", do_list_volumes },
};

static bool text_ends(const char *p, size_t size)
{
	return memchr(p, '\0', size) != NULL;
}

bool request_digest_valid(const char *d)
{
	if (strncmp(d, "sha256:", 7) != 0 || strlen(d) != 7 + 64)
		return false;
	return strspn(d + 7, "0123456789abcdef") == 64;
}

static bool hostname_valid(const char *h)
{
	size_t n = strlen(h);
	return n > 0 && n < 64 && strspn(h, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == n;
}

/* NAME=value NUL ...: split here, never understood. */
static bool env_valid(const struct warden_request *rq)
{
	if (rq->env_len > sizeof rq->env || (rq->env_len && rq->env[rq->env_len - 1] != '\0'))
		return false;
	for (const char *p = rq->env; p < rq->env + rq->env_len; p += strlen(p) + 1)
		if (*p == '\0' || *p == '=' || !strchr(p, '='))
			return false;
	return true;
}

static bool within(uint64_t v, uint64_t low, uint64_t high)
{
	return v >= low && v <= high;
}

static int check_limits(const struct warden_request *rq, struct err *e)
{
	if (!within(rq->memory_mib, 16, 1ULL << 20))
		return err_set(e, ERR_INVALID, EINVAL, "memory: 16 MiB to 1 TiB");
	if (!within(rq->pids, 4, 1000000))
		return err_set(e, ERR_INVALID, EINVAL, "pids: 4 to 1000000");
	if (!within(rq->cpu_millis, 10, 1024000))
		return err_set(e, ERR_INVALID, EINVAL, "cpus: 0.01 to 1024");
	return 0;
}

static int check_size(const struct warden_request *rq, struct err *e)
{
	return within(rq->disk_mib, 1, 16ULL << 20) ? 0 : err_set(e, ERR_INVALID, EINVAL, "disk: 1 MiB to 16 TiB");
}

int request_volumes_check(const struct warden_volume *volumes, uint32_t n, struct err *e)
{
	if (n > WARDEN_VOLUMES_MAX)
		return err_set(e, ERR_INVALID, EINVAL, "volumes: at most %d", WARDEN_VOLUMES_MAX);
	for (uint32_t i = 0; i < n; i++) {
		const struct warden_volume *v = &volumes[i];
		if (!record_id_valid(v->id) || !text_ends(v->path, sizeof v->path) || !text_ends(v->subpath, sizeof v->subpath) || v->path[0] != '/' ||
		    v->read_only > 1)
			return err_set(e, ERR_INVALID, EINVAL, "volumes: not an id, a path and a subpath");
	}
	return 0;
}

static int check_spec(const struct warden_request *rq, struct err *e)
{
	if (!text_ends(rq->image_digest, sizeof rq->image_digest) || !request_digest_valid(rq->image_digest))
		return err_set(e, ERR_INVALID, EINVAL, "image: not a digest");
	if (!text_ends(rq->hostname, sizeof rq->hostname) || !hostname_valid(rq->hostname))
		return err_set(e, ERR_INVALID, EINVAL, "hostname: 1 to 63 letters, digits and hyphens");
	if (!text_ends(rq->user, sizeof rq->user) || !text_ends(rq->workdir, sizeof rq->workdir))
		return err_set(e, ERR_INVALID, EINVAL, "user or workdir: too long");
	if (!env_valid(rq))
		return err_set(e, ERR_INVALID, EINVAL, "env: not NAME=value pairs");
	if (check_size(rq, e) < 0 || request_volumes_check(rq->volumes, rq->volumes_n, e) < 0)
		return -EINVAL;
	if (rq->network > 1)
		return err_set(e, ERR_INVALID, EINVAL, "network: 0 or 1");
	if (rq->ephemeral > 1 || rq->fresh > 1 || rq->sudo > 1)
		return err_set(e, ERR_INVALID, EINVAL, "ephemeral, fresh, sudo: 0 or 1");
	return 0;
}

static int check_permitted(const struct entry *entry, const struct sandbox *s, const char *id, struct err *e)
{
	unsigned is = !s ? IN_ABSENT : 1u << (s->life + 1);

	if (s && s->record.machine)
		return err_set(e, ERR_CONFLICT, EEXIST, "%s: %s is a machine of the vm boundary's", entry->name, id);
	if (entry->permitted & is)
		return 0;
	if (!s)
		return err_set(e, ERR_NOT_FOUND, ENOENT, "there is no sandbox %s here", id);
	if (s->destroying)
		return err_set(e, ERR_CONFLICT, EBUSY, "%s: the sandbox is being deleted", entry->name);
	if (entry->permitted == IN_STOPPED && is & (IN_ENDING | IN_SWEEPING))
		return err_set(e, ERR_UNAVAILABLE, EBUSY, "%s: the sandbox is still ending", entry->name);
	return err_set(e, ERR_CONFLICT, EEXIST, "%s: the sandbox is %s", entry->name, life_names[s->life]);
}

void request_handle(struct warden *w, const struct warden_request *rq, size_t size)
{
	struct err e = { 0 };
	struct sandbox *s = NULL;

	/* Not a record of this build: nothing in it can be believed, the serial neither. */
	if (size != sizeof *rq || rq->magic != WARDEN_MAGIC || rq->serial == 0) {
		log_warn("msg=\"a message that is no request was ignored\" size=%zu", size);
		return;
	}
	const struct entry *entry = rq->op <= WARDEN_LAST_REQUEST ? &table[rq->op] : NULL;
	if (!entry || !entry->handle) {
		(void)err_set(&e, ERR_INVALID, EINVAL, "no such request");
		warden_answer(w, rq->serial, "", &e);
		return;
	}
	int rc = 0;
	if ((entry->one || entry->volume) && !record_id_valid(rq->id))
		rc = err_set(&e, ERR_INVALID, EINVAL, "id: 36 characters of 0-9, a-f and -");
	if (entry->snapshot && rc == 0 && !record_id_valid(rq->snapshot))
		rc = err_set(&e, ERR_INVALID, EINVAL, "snapshot: 36 characters of 0-9, a-f and -");
	if (entry->size && rc == 0)
		rc = check_size(rq, &e);
	const char *id = (entry->one || entry->volume) && rc == 0 ? rq->id : "";
	if (rc == 0 && (entry->spec || entry->limits))
		rc = check_limits(rq, &e);
	if (rc == 0 && entry->spec)
		rc = check_spec(rq, &e);
	if (rc == 0 && entry->one) {
		s = warden_find(w, rq->id);
		rc = check_permitted(entry, s, rq->id, &e);
	}
	if (rc == 0)
		rc = entry->handle(w, s, rq, &e);
	log_debug("op=%s sandbox=%s result=%d", entry->name, id, rc);
	if (rc <= 0)
		warden_answer(w, rq->serial, id, rc < 0 ? &e : NULL);
}
