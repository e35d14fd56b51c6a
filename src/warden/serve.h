/* The warden at work: its sandboxes, its loop, its answers. Private to warden.c and request.c. */
#ifndef CAISSON_WARDEN_SERVE_H
#define CAISSON_WARDEN_SERVE_H

#include "warden/machine-root.h"
#include "warden/sandbox.h"

#define BUCKETS 4096u

struct snapshot_job; /* snapshot.h */

struct warden {
	int daemon; /* its socket */
	int machines; /* the vm boundary's, or negative */
	int epoll;
	struct helper disk_helper, space_helper;
	struct place place;
	struct pool pool;
	struct cgroup_host groups;
	struct gatekeeper gates;
	struct keeper keeper;
	struct machine_root machine_root;
	struct sandbox *buckets[BUCKETS];
	struct sandbox *busy; /* to be looked at on every tick */
	size_t count;
	struct snapshot_job *jobs;
};

struct sandbox *warden_find(struct warden *w, const char *id);
struct sandbox *warden_add(struct warden *w, const char *id); /* stopped, empty record */
void warden_forget(struct warden *w, struct sandbox *s);
int warden_watch(struct warden *w, struct sandbox *s); /* its pidfd */
void warden_set_busy(struct warden *w, struct sandbox *s, bool busy);
void warden_wait(struct sandbox *s, const struct warden_request *rq, uint64_t within_ms);
void warden_answer_waiters(struct warden *w, struct sandbox *s, const struct err *e);
/* RUNNING -> ENDING; nothing else. */
void warden_kill(struct warden *w, struct sandbox *s);
/* The process is gone: sweeps, and answers whoever waits if that is all. */
void warden_sweep(struct warden *w, struct sandbox *s);

void warden_send(struct warden *w, const struct warden_answer *a);
void warden_answer(struct warden *w, uint64_t serial, const char *id, const struct err *e); /* e NULL = done */
/* The same through another door; fd, unless negative, comes along. */
void warden_send_with(int door, const struct warden_answer *a, int fd);
void warden_answer_at(int door, uint64_t serial, const char *id, const struct err *e);

bool request_digest_valid(const char *digest);
int request_volumes_check(const struct warden_volume *volumes, uint32_t n, struct err *e);
/* What WARDEN_DESTROY does; s NULL: leftovers of one that is not known. */
void request_destroy(struct warden *w, struct sandbox *s, const struct warden_request *rq);
/* One message from the daemon: validated, judged by the table, carried out. */
void request_handle(struct warden *w, const struct warden_request *rq, size_t size);

#endif
