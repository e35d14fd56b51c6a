#include "bin/warden.h"

#include "bin/edge.h"
#include "bin/guest_blob.h"
#include "boundary/vm/vm.h"
#include "egress/edge.h"
#include "sys/fs.h"
#include "warden/warden.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARDEN_FD = 3, LOCK_FD, MACHINES_FD, ARGC = 10 };
#define EDGE_UID 0x3ffffffeu /* without a user "caisson-edge": just below the daemon's */

void warden_exec(const struct serve_options *o, int fd, int machines, int lock, uid_t uid, gid_t gid)
{
	char uid_text[16], gid_text[16], level[4];
	char command[] = WARDEN_COMMAND, name[] = "caisson-warden", yes[] = "ephemeral", no[] = "lasting", with[] = "machines", without[] = "no-machines";

	snprintf(uid_text, sizeof uid_text, "%u", uid);
	snprintf(gid_text, sizeof gid_text, "%u", gid);
	snprintf(level, sizeof level, "%u", (unsigned)o->log_level);
	auto_free char *images = xstrdup(o->images), *data = xstrdup(o->data), *socket = xstrdup(o->socket);
	auto_free char *resolvers = o->resolvers ? xstrdup(o->resolvers) : edge_host_resolvers(), *lan = xstrdup(o->network_lan ? o->network_lan : "");
	char *argv[] = { name, command, images, data, socket, o->ephemeral ? yes : no, uid_text, gid_text, level, machines < 0 ? without : with, resolvers, lan, NULL };

	/* they may already be 3 to 5: move them out of the way first */
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 10), high_lock = fcntl(lock, F_DUPFD_CLOEXEC, 10),
	    high_machines = machines < 0 ? -EBADF : fcntl(machines, F_DUPFD_CLOEXEC, 10);
	if (high < 0 || high_lock < 0 || dup2(high, WARDEN_FD) < 0 || dup2(high_lock, LOCK_FD) < 0 ||
	    (machines >= 0 && dup2(high_machines, MACHINES_FD) < 0))
		return;
	if (close_range((machines < 0 ? LOCK_FD : MACHINES_FD) + 1u, ~0u, 0) < 0)
		return;
	execv("/proc/self/exe", argv);
	fprintf(stderr, "caisson: cannot start the warden: %m\n");
}

/* What is in the folder of the vm boundary is the daemon's, and taken away with no other rights than the daemon's. */
static void remove_machines(const char *data, uid_t uid, gid_t gid)
{
	auto_free char *folder = xasprintf("%s/vm", data);
	pid_t pid = fork();

	if (pid == 0) {
		if (setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0)
			vm_data_remove(folder);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* After the daemon: its socket file is ours to remove (it has no right to), and so are the data of an ephemeral server. The lock
 * is still held, so no newer server has taken the place yet. */
static void tidy_up(const char *socket, const char *data, bool ephemeral)
{
	unlink(socket);
	if (!ephemeral)
		return;
	static const char *const files[] = { "api-key", "lock" };
	static const char *const folders[] = { "disks", "vm" };
	int dir = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (dir < 0)
		return;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		unlinkat(dir, files[i], 0);
	(void)fs_remove_tree_at(dir, "state"); /* the daemon's own: nothing is mounted below */
	for (size_t i = 0; i < ARRAY_LEN(folders); i++)
		unlinkat(dir, folders[i], AT_REMOVEDIR);
	close_fd(dir);
	rmdir(data);
}

/* How the warden starts the edge: EDGE_COMMAND and what bin/edge.h says. */
struct edge_command {
	char name[16], command[8], uid[16], gid[16];
	char *argv[8];
};

static void fill_edge_command(struct edge_command *c, char *resolvers, char *lan, char *level)
{
	const struct passwd *pw = getpwnam("caisson-edge");

	snprintf(c->name, sizeof c->name, "caisson-edge");
	snprintf(c->command, sizeof c->command, EDGE_COMMAND);
	snprintf(c->uid, sizeof c->uid, "%u", pw ? pw->pw_uid : EDGE_UID);
	snprintf(c->gid, sizeof c->gid, "%u", pw ? pw->pw_gid : EDGE_UID);
	char *const argv[] = { c->name, c->command, resolvers, lan, c->uid, c->gid, level, NULL };
	static_assert(sizeof argv == sizeof c->argv, "an argument more");
	memcpy(c->argv, argv, sizeof argv);
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
	struct edge_command edge;
	fill_edge_command(&edge, argv[8], argv[9], argv[6]);
	struct warden_options o = {
		.images = argv[0],
		.data = argv[1],
		.daemon_uid = (uid_t)uid,
		.daemon_gid = (gid_t)gid,
		.guest = guest_blob,
		.guest_len = guest_blob_len(),
		.log_level = (enum log_level)level,
		.end_all = ephemeral,
		.machines = streq(argv[7], "machines") ? MACHINES_FD : 0,
		.edge = edge.argv,
	};
	log_set_level(o.log_level);
	log_set_name("warden");
	prctl(PR_SET_NAME, "caisson-warden");
	signal(SIGINT, SIG_IGN); /* it ends when the daemon does */
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	int status = warden_main(WARDEN_FD, &o);
	if (ephemeral)
		remove_machines(argv[1], o.daemon_uid, o.daemon_gid);
	tidy_up(argv[2], argv[1], ephemeral);
	return status;
}
