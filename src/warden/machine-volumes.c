#include "warden/machine-volumes.h"

#include "sys/mnt.h"
#include "sys/process.h"
#include "volumes/server.h"
#include "warden/volume.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static_assert((int)VOLUMES_MAX == (int)WARDEN_VOLUMES_MAX, "a server has as many folders as a sandbox");
static_assert(sizeof((struct machine_request *)NULL)->line == (size_t)LINE_NONCE, "the line begins with what the request brings");

/* Empty but for where it mounts, and nobody's inside: it cannot write there. */
static int make_root(uint32_t n, struct err *e)
{
	static const struct mnt_option options[] = { { "mode", "0755" }, { "size", "64k" }, { "nr_inodes", "32" }, { 0 } };
	auto_fd int root = mnt_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL);
	char name[] = "0";
	int rc = root < 0 ? root : mkdirat(root, "proc", 0555) < 0 ? -errno : 0;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		name[0] = (char)('0' + i);
		rc = mkdirat(root, name, 0755) < 0 ? -errno : 0;
	}
	if (rc == 0)
		rc = mnt_readonly(root, false);
	return rc < 0 ? err_sys(e, ERR_UNAVAILABLE, -rc, "make the root of the server of volumes") : take_fd(&root);
}

static int clone_server(struct keeper *k, struct sandbox *s, const struct machine_request *rq, int offered[static INSIDE_END], int group, struct err *e)
{
	static const int give[] = { INSIDE_NULL, INSIDE_NULL, INSIDE_NULL, INSIDE_LINE };
	struct warden_volume at[WARDEN_VOLUMES_MAX] = { 0 };
	char name[] = VOLUMES_ARGV0, nonce[2 * LINE_NONCE + 1], count[12], *argv[] = { name, nonce, count, NULL };
	struct sandbox self = { .record = s->record, .slot = s->slot, .pidfd = -EBADF }; /* of the machine's groups and range */
	const struct inside in = {
		.kind = INSIDE_IS_VOLUMES,
		.hostname = "volumes",
		.files_max = MIN(k->files_max, (uint64_t)VOLUMES_FILES_MAX),
		.argv = argv,
		.give = give,
		.give_n = ARRAY_LEN(give),
		.volumes = at,
		.volumes_n = rq->volumes_n,
	};
	struct inside its = in;

	static_assert(ARRAY_LEN(give) == VOLUMES_LINE_FD + 1, "the line is the last one");
	hex_encode(rq->line, LINE_NONCE, nonce);
	snprintf(count, sizeof count, "%u", rq->volumes_n);
	for (uint32_t i = 0; i < rq->volumes_n; i++)
		snprintf(at[i].path, sizeof at[i].path, "/%u", i);
	auto_fd int net = pool_namespace_get(k->pool, e);
	int rc = net < 0 ? net : sandbox_clone(k, &self, &its, offered, INSIDE_VOLUME + (int)rq->volumes_n, group, net, e);
	if (rc == 0)
		s->server = self.pidfd;
	else
		err_prefix(e, "the server of volumes");
	return rc;
}

int machine_volumes_start(struct keeper *k, struct sandbox *s, const struct machine_request *rq, int group, int *ret_line, struct err *e)
{
	int pair[2], offered[INSIDE_END];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, ERR_UNAVAILABLE, errno, "make the line of the volumes");
	auto_fd int ours = pair[0], line = pair[1];
	for (size_t i = 0; i < ARRAY_LEN(offered); i++)
		offered[i] = -EBADF;
	auto_fd int root = rq->volumes_n ? make_root(rq->volumes_n, e) : -EBADF;
	int rc = rq->volumes_n && root < 0 ? root : 0;
	for (uint32_t i = 0; i < rq->volumes_n && rc == 0; i++)
		rc = MIN(offered[INSIDE_VOLUME + i] = volume_mount(k->place, &rq->volumes[i], s->slot->userns, e), 0);
	offered[INSIDE_ROOT] = root;
	offered[INSIDE_GUEST] = k->place->guest_fd;
	offered[INSIDE_LINE] = ours;
	if (rc == 0 && rq->volumes_n)
		rc = clone_server(k, s, rq, offered, group, e);
	for (int i = INSIDE_VOLUME; i < INSIDE_GUEST_END; i++)
		close_fd(offered[i]);
	if (rc == 0)
		*ret_line = take_fd(&line);
	return rc;
}

void machine_volumes_end(struct sandbox *s)
{
	int status;

	if (s->server < 0)
		return;
	(void)process_signal(s->server, SIGKILL);
	(void)process_wait(s->server, &status);
	s->server = close_fd(s->server);
}
