/* The program `sudo`: reads the options of the one that people know, builds the environment that it would, and asks PID 1. What it
 * decides is good order only; who may do what is PID 1's decision (sudo.c). */
#include "guest/sudo.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

extern char **environ;

#define SECURE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* What is kept without -E: what sudo keeps, and what leads to the sandbox's network. */
static const char *const kept[] = {
	"TERM", "COLORTERM", "COLORS", "LANG", "LANGUAGE", "LC_*", "LINGUAS", "TZ", "DISPLAY", "HOSTNAME", "LS_COLORS", "PS1", "PS2", "XAUTHORITY",
	"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "GIT_SSL_CAINFO",
};

struct list {
	const char **v;
	size_t n;
};

static void list_add(struct list *l, const char *s)
{
	l->v = xreallocarray(l->v, l->n + 2, sizeof *l->v);
	l->v[l->n++] = s;
	l->v[l->n] = NULL;
}

struct wish {
	const char *user, *group, *dir;
	const char *also;            /* --preserve-env=LIST */
	bool all_env, set_home, login, shell, list, validate, forget, background;
	char **words;                /* of the command */
	struct list set;             /* VAR=value.. */
};

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	(void)fputs("sudo: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	exit(1);
}

bool sudo_is_meant(const char *argv0)
{
	const char *slash = argv0 ? strrchr(argv0, '/') : NULL;

	return argv0 && getpid() != 1 && streq(slash ? slash + 1 : argv0, "sudo");
}

/* --- options --- */

static const char usage[] = "usage: sudo [-EHnS] [-u user] [-g group] [-D directory] [VAR=value] [-i | -s] [command [arg ...]]\n"
			    "       sudo -v | -l | -k | -K | -V | -h\n";

static const struct option longs[] = {
	{ "askpass", no_argument, NULL, 'A' },         { "background", no_argument, NULL, 'b' },     { "bell", no_argument, NULL, 'B' },
	{ "close-from", required_argument, NULL, 'C' }, { "chdir", required_argument, NULL, 'D' },    { "preserve-env", optional_argument, NULL, 'E' },
	{ "edit", no_argument, NULL, 'e' },            { "group", required_argument, NULL, 'g' },    { "set-home", no_argument, NULL, 'H' },
	{ "help", no_argument, NULL, 'h' },            { "login", no_argument, NULL, 'i' },          { "remove-timestamp", no_argument, NULL, 'K' },
	{ "reset-timestamp", no_argument, NULL, 'k' }, { "list", no_argument, NULL, 'l' },           { "non-interactive", no_argument, NULL, 'n' },
	{ "preserve-groups", no_argument, NULL, 'P' }, { "prompt", required_argument, NULL, 'p' },   { "chroot", required_argument, NULL, 'R' },
	{ "stdin", no_argument, NULL, 'S' },           { "shell", no_argument, NULL, 's' },          { "command-timeout", required_argument, NULL, 'T' },
	{ "other-user", required_argument, NULL, 'U' }, { "user", required_argument, NULL, 'u' },    { "version", no_argument, NULL, 'V' },
	{ "validate", no_argument, NULL, 'v' },        { NULL, 0, NULL, 0 },
};

static void take_option(struct wish *w, int c)
{
	switch (c) {
	case 'A': case 'B': case 'C': case 'n': case 'p': case 'S':
		return; /* no password is asked for, and no descriptor above 2 is handed on */
	case 'b': w->background = true; return;
	case 'D': w->dir = optarg; return;
	case 'E':
		if (optarg)
			w->also = optarg;
		else
			w->all_env = true;
		return;
	case 'g': w->group = optarg; return;
	case 'H': w->set_home = true; return;
	case 'i': w->login = true; return;
	case 'K': case 'k': w->forget = true; return;
	case 'l': w->list = true; return;
	case 's': w->shell = true; return;
	case 'u': w->user = optarg; return;
	case 'v': w->validate = true; return;
	case 'h':
		(void)fputs(usage, stdout);
		exit(0);
	case 'V':
		puts("sudo of Caisson: asks the sandbox's first process, since set-id programs have no effect here");
		exit(0);
	case 'e': case 'P': case 'R': case 'T': case 'U':
		die("the option -%c is not supported in this sandbox", c);
	default:
		(void)fputs(usage, stderr);
		exit(1);
	}
}

static bool is_assignment(const char *word)
{
	size_t n = strcspn(word, "=");

	if (!word[n] || n == 0 || isdigit((unsigned char)word[0]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)word[i]) && word[i] != '_')
			return false;
	return true;
}

static void take_options(struct wish *w, int argc, char **argv)
{
	int c;

	opterr = 1;
	for (;;) { /* both may stand before a command, in any order */
		while ((c = getopt_long(argc, argv, "+AbBC:D:Eeg:HhiKklnPp:R:SsT:U:u:Vv", longs, NULL)) != -1)
			take_option(w, c);
		if (optind >= argc || !is_assignment(argv[optind]) || streq(argv[optind - 1], "--"))
			break;
		list_add(&w->set, argv[optind++]);
	}
	w->words = argv + optind;
	if (w->login && w->shell)
		die("you may not specify both the -i and -s options");
	if (w->login && (w->all_env || w->also))
		w->all_env = false; /* a login begins anew */
}

/* --- environment --- */

/* The last one of a name counts. */
static void env_set(struct list *l, const char *pair)
{
	size_t n = strcspn(pair, "=") + 1;

	for (size_t i = 0; i < l->n; i++)
		if (strncmp(l->v[i], pair, n) == 0) {
			l->v[i] = pair;
			return;
		}
	list_add(l, pair);
}

static void env_setf(struct list *l, const char *name, const char *value)
{
	env_set(l, xasprintf("%s=%s", name, value));
}

static bool name_is(const char *pair, const char *pattern)
{
	size_t n = strcspn(pair, "="), p = strlen(pattern);

	if (p && pattern[p - 1] == '*')
		return n >= p - 1 && strncmp(pair, pattern, p - 1) == 0;
	return n == p && strncmp(pair, pattern, n) == 0;
}

static bool in_list(const char *pair, const char *names)
{
	size_t n = strcspn(pair, "=");

	for (const char *at = names; at && *at; at += strcspn(at, ","), at += *at == ',')
		if (strcspn(at, ",") == n && strncmp(at, pair, n) == 0)
			return true;
	return false;
}

static bool is_kept(const struct wish *w, const char *pair)
{
	if (!strchr(pair, '=') || strncmp(pair, "LD_", 3) == 0)
		return false;
	if (w->all_env || in_list(pair, w->also))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (name_is(pair, kept[i]))
			return true;
	return false;
}

static const char *joined(char *const *words)
{
	auto_buf struct buf b;

	buf_init(&b, 64 * 1024); /* a longer one is cut off: it is there for people to read */
	for (size_t i = 0; words[i]; i++)
		if (buf_addf(&b, "%s%s", i ? " " : "", words[i]) < 0)
			break;
	return xstrndup(b.len ? b.data : "", b.len);
}

static void build_env(const struct wish *w, const struct user *me, const struct user *target, char *const *command, struct list *env)
{
	for (char **e = environ; *e; e++)
		if (is_kept(w, *e))
			env_set(env, *e);
	env_setf(env, "PATH", SECURE_PATH);
	env_setf(env, "USER", target->name);
	env_setf(env, "LOGNAME", target->name);
	env_setf(env, "MAIL", xasprintf("/var/mail/%s", target->name));
	if (!w->all_env || w->set_home || !getenv("HOME"))
		env_setf(env, "HOME", target->home);
	if (!w->all_env || !getenv("SHELL"))
		env_setf(env, "SHELL", target->shell);
	if (!getenv("TERM"))
		env_set(env, "TERM=unknown");
	env_setf(env, "SUDO_COMMAND", joined(command));
	env_setf(env, "SUDO_USER", me->name);
	env_set(env, xasprintf("SUDO_UID=%u", me->uid));
	env_set(env, xasprintf("SUDO_GID=%u", me->gid));
	for (size_t i = 0; i < w->set.n; i++)
		env_set(env, w->set.v[i]);
}

/* --- the command --- */

/* Words as one text for `sh -c` that means just these words. */
static const char *shell_text(char *const *words)
{
	auto_buf struct buf b;

	buf_init(&b, 1024 * 1024);
	for (size_t i = 0; words[i]; i++) {
		if (i)
			(void)buf_addc(&b, ' ');
		for (const char *c = words[i]; *c; c++) {
			if (!isalnum((unsigned char)*c) && !strchr("_-$", *c))
				(void)buf_addc(&b, '\\');
			(void)buf_addc(&b, *c);
		}
	}
	if (b.overflow)
		die("the command is too long");
	return xstrndup(b.data, b.len);
}

static void build_argv(const struct wish *w, const struct user *me, const struct user *target, struct list *argv)
{
	char **words = w->words;
	const char *shell = getenv("SHELL");

	if (!w->login && !w->shell) {
		for (; *words; words++)
			list_add(argv, *words);
		return;
	}
	list_add(argv, w->login ? target->shell : shell && *shell ? shell : me->shell);
	if (w->login)
		list_add(argv, "-l");
	if (*words) {
		list_add(argv, "-c");
		list_add(argv, shell_text(words));
	}
}

static void find_user(const char *text, struct user *u)
{
	struct err e;

	if (text[0] == '#')
		text++;
	if (user_find(text, u, &e) < 0)
		die("%s", e.message);
	if (!u->name[0])
		snprintf(u->name, sizeof u->name, "%u", u->uid);
}

/* --- asking --- */

static int dial(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(a.sun_path + 1, SUDO_SOCKET, strlen(SUDO_SOCKET));
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(SUDO_SOCKET))) < 0)
		die("this sandbox permits no sudo");
	return fd;
}

/* A failure to send is not told: the guest has said why, and that is read next. */
static void send_request(int guest, const struct guest_run_request *r, const int fds[static SUDO_FDS])
{
	union {
		char bytes[CMSG_SPACE(SUDO_FDS * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	auto_buf struct buf b;

	buf_init(&b, GUEST_MESSAGE_MAX);
	if (guest_run_request_put(&b, GUEST_RUN_START, 0, r) < 0)
		die("the command is too long");
	for (size_t at = 0; at < b.len;) {
		struct iovec v = { b.data + at, b.len - at };
		struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
		if (at == 0) {
			m.msg_control = control.bytes;
			m.msg_controllen = sizeof control.bytes;
			struct cmsghdr *c = CMSG_FIRSTHDR(&m);
			c->cmsg_level = SOL_SOCKET;
			c->cmsg_type = SCM_RIGHTS;
			c->cmsg_len = CMSG_LEN(SUDO_FDS * sizeof(int));
			memcpy(CMSG_DATA(c), fds, SUDO_FDS * sizeof(int));
		}
		ssize_t n = sendmsg(guest, &m, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return;
		at += (size_t)n;
	}
}

/* A program that has none of 0 to 2 gets /dev/null, so that no other descriptor is taken for one. */
static void occupy_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd < 3);
	close_fd(fd);
}

static void __attribute__((noreturn)) end_as(int status)
{
	if (status >= 0)
		exit(status);
	(void)signal(-status, SIG_DFL);
	sigset_t all;
	sigfillset(&all);
	(void)sigprocmask(SIG_UNBLOCK, &all, NULL);
	(void)raise(-status);
	exit(128 - status);
}

static void list_rights(const struct user *me)
{
	char host[65] = "";

	(void)gethostname(host, sizeof host - 1);
	printf("User %s may run the following commands on %s:\n    (ALL : ALL) NOPASSWD: ALL\n", me->name, host);
}

int sudo_main(int argc, char **argv)
{
	struct wish w = { 0 };
	struct user me, target;
	struct list command = { xcalloc(1, sizeof(char *)), 0 }, env = { xcalloc(1, sizeof(char *)), 0 };
	struct sudo_relay relay = { .own = -EBADF, .master = -EBADF };
	int fds[SUDO_FDS] = { 0, 1, 2 };
	char id[16];

	occupy_standard_fds();
	take_options(&w, argc, argv);
	snprintf(id, sizeof id, "%u", getuid());
	find_user(id, &me);
	find_user(w.user ? w.user : w.group ? id : "0", &target);
	bool question = w.list || w.validate;
	if (!question)
		build_argv(&w, &me, &target, &command);
	if (!question && command.n == 0) {
		if (w.forget)
			return 0;
		(void)fputs(usage, stderr);
		return 1;
	}
	if (!question)
		build_env(&w, &me, &target, (char *const *)(uintptr_t)command.v, &env);
	int guest = dial(), r = question ? 0 : sudo_relay_open(&relay, fds);
	if (r < 0)
		die("cannot make a terminal: %s", strerror(-r));
	fds[SUDO_FD_DIR] = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fds[SUDO_FD_DIR] < 0)
		fds[SUDO_FD_DIR] = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct guest_run_request rq = {
		.argv = command.v, .argc = command.n, .env = env.v, .envc = env.n,
		.cwd = w.dir ? w.dir : w.login ? target.home : NULL,
		.user = w.group ? xasprintf("%u:%s", target.uid, w.group[0] == '#' ? w.group + 1 : w.group) : target.name,
		.flags = relay.own >= 0 ? GUEST_RUN_PTY : 0,
	};
	send_request(guest, &rq, fds);
	for (int i = 0; i < 3; i++)
		if (fds[i] > 2)
			close_fd(fds[i]); /* the other end of the terminal: it must hang up with the command */
	if (w.background && fork() > 0)
		return 0;
	int status = sudo_relay_run(&relay, guest);
	if (w.list && status == 0)
		list_rights(&me);
	end_as(status);
}
