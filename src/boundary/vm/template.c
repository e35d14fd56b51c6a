#include "boundary/vm/template.h"

#include "base/log.h"
#include "boundary/vm/build.h"
#include "boundary/vm/vmdir.h"
#include "boundary/vm/template_int.h"
#include "boundary/vm/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

/* Theory of operation. An entry is in the table from when it is first wanted.
 *
 *   QUEUED -> LOADING (from FOLDER/KEY) -> READY
 *      |          | not there, damaged
 *      +----------+-> BUILDING (in FOLDER/.new-KEY) -> READY, while it is stored -> renamed to KEY
 *
 * What is built while something that it depends on is replaced is nobody's: those who wait for it wait for one of the new.
 *
 * One is loading or building at a time; the others are QUEUED. READY ones are at most MAX_READY: the one unused for the longest goes. An
 * entry that fails is gone, with those that waited told why, and the next who wants it has it tried again. */

enum { MAX_READY = 8, MAX_REFRESHED = 4, BOOT_MS = 180000, KVM_TRIAL_MS = 30000, WATCH_BEATS = 6, RECENT_MS = 3600 * 1000 };
enum entry_state { QUEUED, LOADING, BUILDING, READY };

struct waiter {
	template_fn done;
	void *ctx;
	struct waiter *next;
};

struct entry {
	struct templates *all;
	UT_hash_handle hh;
	struct template t;
	struct template_need need; /* image ours */
	enum entry_state state;
	struct waiter *waiters;
	struct build *build;
	struct transfer *transfer;
	char *path; /* of its folder, while it is loading, building or being stored */
	int dir;
	int stored[TEMPLATE_FILES]; /* while they are read or written */
	struct template_sums sums;
	char *host; /* template_host_sum of what it was built with, to be written down */
	uint64_t used_ms;
};

struct templates {
	struct template_host host;
	char *folder, *fixed; /* fixed: all that the key depends on and that stays while we run */
	struct entry *entries;
	struct entry *busy;
	uv_timer_t watch;
	char *sum; /* template_host_sum of a moment ago */
	bool settled; /* host.kvm has been seen to be right */
	char *no_kvm; /* why not host.kvm */
};

static void go_on(struct templates *t);
static void want(struct templates *t, const struct template_need *need, bool bounded);

/* --- entries --- */

/* Nothing that it depends on has been replaced since it was first wanted. */
static bool is_of_now(const struct entry *e)
{
	char key[TEMPLATE_KEY + 1];

	template_key(&e->all->host, e->all->fixed, &e->need, key);
	return streq(key, e->t.key);
}

static void close_files(struct entry *e)
{
	for (size_t i = 0; i < TEMPLATE_FILES; i++)
		e->stored[i] = close_fd(e->stored[i]);
	e->dir = close_fd(e->dir);
}

static struct entry *new_entry(struct templates *t, const char *key, const struct template_need *need)
{
	struct entry *e = xcalloc(1, sizeof *e);

	e->all = t;
	e->t.files = template_no_files();
	snprintf(e->t.key, sizeof e->t.key, "%s", key);
	e->need = *need;
	e->need.image = xstrdup(need->image);
	e->dir = -EBADF;
	for (size_t i = 0; i < TEMPLATE_FILES; i++)
		e->stored[i] = -EBADF;
	HASH_ADD_STR(t->entries, t.key, e);
	return e;
}

static void stop_work(struct entry *e)
{
	build_free(take_ptr(&e->build));
	transfer_free(take_ptr(&e->transfer));
	close_files(e);
}

static void drop(struct entry *e, bool stored_too)
{
	struct templates *t = e->all;

	HASH_DEL(t->entries, e);
	if (t->busy == e)
		t->busy = NULL;
	bool unfinished = e->path != NULL;
	stop_work(e);
	if (unfinished)
		template_folder_remove(e->path);
	if (stored_too) {
		auto_free char *path = xasprintf("%s/%s", t->folder, e->t.key);
		template_folder_remove(path);
	}
	template_files_close(&e->t.files);
	free(e->path);
	free(e->host);
	free((void *)(uintptr_t)e->need.image);
	free(e);
}

static void tell_waiters(struct entry *e, const struct err *why)
{
	struct template t = e->t; /* a callback may make the entry go */

	while (e->waiters) {
		struct waiter *w = e->waiters;
		template_fn done = w->done;
		void *ctx = w->ctx;
		e->waiters = w->next;
		free(w);
		done(ctx, why, why ? NULL : &t);
	}
}

/* It is of no use any more: those who wait for it wait for the one that is made instead. */
static void make_another(struct entry *e)
{
	struct templates *t = e->all;
	struct waiter *w = take_ptr(&e->waiters);
	struct template_need need = e->need;
	auto_free char *image = xstrdup(need.image);

	need.image = image;
	drop(e, true);
	want(t, &need, false);
	while (w) {
		struct waiter *next = w->next;
		templates_get(t, &need, w->done, w->ctx);
		free(w);
		w = next;
	}
	go_on(t);
}

static void without_kvm(struct entry *e, const struct err *why)
{
	struct templates *t = e->all;

	log_warn("msg=\"no machine comes up with this host's KVM, so machines are emulated: %s\"", why->message);
	t->host.kvm = false;
	t->no_kvm = xasprintf("no machine came up with this host's KVM: %s", why->message);
	t->settled = true;
	template_no_kvm_write(&t->host);
	make_another(e);
}

static void fail(struct entry *e, const struct err *why)
{
	struct templates *t = e->all;
	struct err copy = *why;

	if (!t->settled && t->host.kvm && e->state == BUILDING) {
		without_kvm(e, why);
		return;
	}

	err_prefix(&copy, "no template of this image could be made");
	log_warn("key=%.12s msg=\"%s\"", e->t.key, copy.message);
	t->busy = NULL;
	e->state = READY; /* not to be begun again by somebody whom a callback brings */
	tell_waiters(e, &copy);
	drop(e, true);
	go_on(t);
}

static void evict(struct templates *t)
{
	struct entry *e, *next, *oldest = NULL;
	size_t n = 0;

	HASH_ITER(hh, t->entries, e, next) {
		if (e->state != READY)
			continue;
		n++;
		if (!e->path && (!oldest || e->used_ms < oldest->used_ms))
			oldest = e;
	}
	if (n > MAX_READY && oldest)
		drop(oldest, true);
}

static void ready(struct entry *e)
{
	struct templates *t = e->all;

	e->state = READY;
	e->used_ms = now_ms();
	t->busy = NULL;
	log_debug("key=%.12s msg=\"template ready\"", e->t.key);
	tell_waiters(e, NULL);
	evict(t);
	go_on(t);
}

static void move(struct entry *e, const int from[static TEMPLATE_FILES], const int to[static TEMPLATE_FILES], transfer_fn done)
{
	struct transfer_file files[TEMPLATE_FILES];

	for (size_t i = 0; i < TEMPLATE_FILES; i++)
		files[i] = (struct transfer_file){ .from = from[i], .to = to[i] };
	e->transfer = transfer_new(e->all->host.qemu->loop, files, done, e);
}

/* --- storing --- */

static void on_stored(void *ctx, int r, const struct transfer_file files[TEMPLATE_FILES])
{
	struct entry *e = ctx;
	auto_free char *path = xasprintf("%s/%s", e->all->folder, e->t.key);
	struct template_sums sums;

	for (size_t i = 0; i < TEMPLATE_FILES; i++)
		snprintf(sums.v[i], sizeof sums.v[i], "%s", files[i].sum);
	if (r == 0)
		r = template_meta_write(e->dir, &e->need, e->host, &sums);
	template_folder_remove(path); /* one that was damaged */
	if (r == 0 && rename(e->path, path) < 0)
		r = -errno;
	if (r < 0) {
		log_warn("key=%.12s errno=%d msg=\"the template could not be stored and is made again after a restart\"", e->t.key, -r);
		template_folder_remove(e->path);
	}
	free(take_ptr(&e->path));
	e->transfer = NULL;
	close_files(e);
	if (!is_of_now(e))
		make_another(e);
}

static void on_built(void *ctx, const struct err *why, const struct template_files *files)
{
	struct entry *e = ctx;

	if (why) {
		fail(e, why);
		return;
	}
	build_free(take_ptr(&e->build));
	e->all->settled = true;
	e->t.files = *files;
	e->host = template_host_sum(&e->all->host, e->all->fixed);
	if (!is_of_now(e)) {
		make_another(e);
		return;
	}
	(void)unlinkat(e->dir, "guest", 0);
	(void)unlinkat(e->dir, "qmp", 0);
	(void)unlinkat(e->dir, "id", 0);
	for (size_t i = 0; i < TEMPLATE_FILES; i++)
		e->stored[i] = openat(e->dir, template_names[i], O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	move(e, e->t.files.fds, e->stored, on_stored);
	ready(e);
}

static void build(struct entry *e)
{
	struct err why;

	e->state = BUILDING;
	e->path = xasprintf("%s/.new-%s", e->all->folder, e->t.key);
	template_folder_remove(e->path);
	if (mkdir(e->path, 0700) == 0)
		e->dir = open(e->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (e->dir < 0) {
		(void)err_sys(&why, ERR_UNAVAILABLE, errno, "make the folder %s", e->path);
		fail(e, &why);
		return;
	}
	e->build = build_new(&e->all->host, &e->need, e->dir, e->all->settled ? BOOT_MS : KVM_TRIAL_MS, on_built, e, &why);
	if (!e->build)
		fail(e, &why);
}

/* --- loading --- */

static void on_loaded(void *ctx, int r, const struct transfer_file files[TEMPLATE_FILES])
{
	struct entry *e = ctx;

	for (size_t i = 0; i < TEMPLATE_FILES && r == 0; i++)
		if (!streq(files[i].sum, e->sums.v[i]))
			r = -EBADMSG;
	e->transfer = NULL;
	if (r == 0)
		r = template_files_seal(&e->t.files);
	close_files(e);
	if (r == 0) {
		e->all->settled = true;
		ready(e);
		return;
	}
	log_warn("key=%.12s errno=%d msg=\"the stored template is damaged, and made again\"", e->t.key, -r);
	template_files_close(&e->t.files);
	build(e);
}

/* false: there is none that can be read. */
static bool load(struct entry *e)
{
	auto_free char *path = xasprintf("%s/%s", e->all->folder, e->t.key);
	struct template_need need = { 0 };
	auto_free char *host = NULL;

	e->dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = e->dir < 0 ? -errno : template_meta_read(e->dir, &need, &host, &e->sums);
	free((void *)(uintptr_t)need.image);
	for (size_t i = 0; i < TEMPLATE_FILES && r == 0; i++) {
		e->stored[i] = vmdir_open_file(e->dir, template_names[i], O_RDONLY);
		r = MIN(e->stored[i], 0);
	}
	if (r == 0)
		r = template_files_make(&e->t.files, (const uint64_t[TEMPLATE_FILES]){ 0 });
	if (r < 0) {
		close_files(e);
		return false;
	}
	e->state = LOADING;
	move(e, e->stored, e->t.files.fds, on_loaded);
	return true;
}

/* Those that somebody waits for go first. */
static void go_on(struct templates *t)
{
	struct entry *e, *next, *first = NULL;

	if (t->busy)
		return;
	HASH_ITER(hh, t->entries, e, next) {
		if (e->state == QUEUED && (!first || (e->waiters && !first->waiters)))
			first = e;
	}
	if (!first)
		return;
	t->busy = first;
	if (!load(first))
		build(first);
}

/* --- the outside --- */

void templates_get(struct templates *t, const struct template_need *need, template_fn done, void *ctx)
{
	char key[TEMPLATE_KEY + 1];
	struct entry *e;

	template_key(&t->host, t->fixed, need, key);
	HASH_FIND_STR(t->entries, key, e);
	if (e && e->state == READY && e->t.files.fds[TEMPLATE_RAM] >= 0) {
		struct template copy = e->t;
		e->used_ms = now_ms();
		done(ctx, NULL, &copy);
		return;
	}
	if (!e)
		e = new_entry(t, key, need);
	struct waiter *w = xcalloc(1, sizeof *w), **at = &e->waiters;
	*w = (struct waiter){ .done = done, .ctx = ctx };
	while (*at)
		at = &(*at)->next;
	*at = w;
	go_on(t);
}

void templates_cancel(struct templates *t, void *ctx)
{
	struct entry *e, *next;

	HASH_ITER(hh, t->entries, e, next) {
		for (struct waiter **at = &e->waiters; *at;) {
			struct waiter *w = *at;
			if (w->ctx != ctx) {
				at = &w->next;
				continue;
			}
			*at = w->next;
			free(w);
		}
	}
}

void templates_doubt(struct templates *t, const char *key)
{
	struct entry *e;

	HASH_FIND_STR(t->entries, key, e);
	if (e && e->state == READY && !e->waiters)
		drop(e, true);
}

static void want(struct templates *t, const struct template_need *need, bool bounded)
{
	char key[TEMPLATE_KEY + 1];
	struct entry *e;

	template_key(&t->host, t->fixed, need, key);
	HASH_FIND_STR(t->entries, key, e);
	if (!e && (!bounded || HASH_COUNT(t->entries) < MAX_REFRESHED))
		(void)new_entry(t, key, need);
}

static void refresh(void *ctx, const struct template_need *need)
{
	want(ctx, need, true);
}

/* Something that templates depend on has been replaced: who comes next should not have to wait for a boot. */
static void on_watch(uv_timer_t *h)
{
	struct templates *t = h->data;
	char *sum = template_host_sum(&t->host, t->fixed);
	struct entry *e, *next;
	size_t n = 0;

	bool same = streq(sum, t->sum);
	free(t->sum);
	t->sum = sum;
	if (same)
		return;
	log_info("msg=\"QEMU or the kernel has changed: templates are made again\"");
	HASH_ITER(hh, t->entries, e, next) { /* (Added ones come at the end, and are not READY.) */
		if (e->state != READY || e->path || is_of_now(e))
			continue;
		if (now_ms() - e->used_ms < RECENT_MS && n++ < MAX_REFRESHED)
			want(t, &e->need, false);
		drop(e, true);
	}
	go_on(t);
}

struct templates *templates_new(const struct template_host *h)
{
	struct templates *t = xcalloc(1, sizeof *t);

	t->host = *h;
	t->folder = xstrdup(h->folder);
	t->fixed = template_fixed(h);
	(void)mkdir(t->folder, 0700);
	auto_free char *host = template_host_sum(h, t->fixed);
	t->no_kvm = xstrdup(h->no_kvm);
	if (h->kvm && !h->kvm_only && template_no_kvm(h)) {
		t->host.kvm = false;
		t->no_kvm = xstrdup("no machine has come up with this host's KVM since it was started");
	}
	t->settled = !t->host.kvm || h->kvm_only;
	template_sweep(h, t->folder, host, refresh, t);
	t->sum = take_ptr(&host);
	uv_timer_init(h->qemu->loop, &t->watch);
	t->watch.data = t;
	uv_timer_start(&t->watch, on_watch, WATCH_BEATS * h->qemu->beat_ms, WATCH_BEATS * h->qemu->beat_ms);
	go_on(t);
	return t;
}

bool templates_kvm(const struct templates *t)
{
	return t->host.kvm;
}

const char *templates_no_kvm(const struct templates *t)
{
	return t->no_kvm;
}

bool templates_settled(const struct templates *t)
{
	return t->settled;
}

static void on_watch_closed(uv_handle_t *h)
{
	free(h->data);
}

void templates_free(struct templates *t)
{
	struct entry *e, *next;

	HASH_ITER(hh, t->entries, e, next) {
		while (e->waiters) {
			struct waiter *w = e->waiters;
			e->waiters = w->next;
			free(w);
		}
		drop(e, false);
	}
	free(t->folder);
	free(t->fixed);
	free(t->sum);
	free(t->no_kvm);
	uv_close((uv_handle_t *)&t->watch, on_watch_closed);
}
