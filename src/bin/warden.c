#include "bin/warden.h"

#include "bin/guest_blob.h"
#include "warden/warden.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { WARDEN_FD = 3, LOCK_FD = 4, ARGC = 7 };

void warden_exec(const struct serve_options *o, int fd, int lock, uid_t uid, gid_t gid)
{
	char uid_text[16], gid_text[16], level[4];
	char command[] = WARDEN_COMMAND, name[] = "caisson-warden", yes[] = "ephemeral", no[] = "lasting";

	snprintf(uid_text, sizeof uid_text, "%u", uid);
	snprintf(gid_text, sizeof gid_text, "%u", gid);
	snprintf(level, sizeof level, "%u", (unsigned)o->log_level);
	auto_free char *images = xstrdup(o->images), *data = xstrdup(o->data), *socket = xstrdup(o->socket);
	char *argv[] = { name, command, images, data, socket, o->ephemeral ? yes : no, uid_text, gid_text, level, NULL };

	/* both may already be 3 or 4: move them out of the way first */
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 10), high_lock = fcntl(lock, F_DUPFD_CLOEXEC, 10);
	if (high < 0 || high_lock < 0 || dup2(high, WARDEN_FD) < 0 || dup2(high_lock, LOCK_FD) < 0)
		return;
	if (close_range(LOCK_FD + 1, ~0u, 0) < 0)
		return;
	execv("/proc/self/exe", argv);
	fprintf(stderr, "caisson: cannot start the warden: %m\n");
}

/* After the daemon: its socket file is ours to remove (it has no right to), and so are the data of an ephemeral server. The lock
 * is still held, so no newer server has taken the place yet. */
static void tidy_up(const char *socket, const char *data, bool ephemeral)
{
	unlink(socket);
	if (!ephemeral)
		return;
	static const char *const files[] = {
		"state/caisson.db", "state/caisson.db-wal", "state/caisson.db-shm", "api-key", "lock",
	};
	static const char *const folders[] = { "state/runs", "state", "disks" };
	int dir = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		unlinkat(dir, files[i], 0);
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		unlinkat(dir, folders[i], AT_REMOVEDIR);
	close_fd(dir);
	rmdir(data);
}

int warden_command(int argc, char **argv)
{
	uint64_t uid, gid, level;

	if (argc != ARGC || parse_u64(str_of(argv[4]), UINT32_MAX, &uid) < 0 || parse_u64(str_of(argv[5]), UINT32_MAX, &gid) < 0 ||
	    parse_u64(str_of(argv[6]), LOG_ERROR, &level) < 0) {
		fprintf(stderr, "caisson: '" WARDEN_COMMAND "' is started by 'caisson serve' only\n");
		return 2;
	}
	bool ephemeral = streq(argv[3], "ephemeral");
	struct warden_options o = {
		.images = argv[0],
		.data = argv[1],
		.daemon_uid = (uid_t)uid,
		.daemon_gid = (gid_t)gid,
		.guest = guest_blob,
		.guest_len = guest_blob_len(),
		.log_level = (enum log_level)level,
		.end_all = ephemeral,
	};
	log_set_level(o.log_level);
	log_set_name("warden");
	prctl(PR_SET_NAME, "caisson-warden");
	signal(SIGINT, SIG_IGN); /* it ends when the daemon does */
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	int status = warden_main(WARDEN_FD, &o);
	tidy_up(argv[2], argv[1], ephemeral);
	return status;
}
