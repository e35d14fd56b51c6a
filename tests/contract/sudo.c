/* The ordinary user of a sandbox becomes root by sudo, if the sandbox's settings say so. The image has sudo and the user 1000. */
#include "suite.h"

#include <signal.h>
#include <stdio.h>

#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })

static char box[40];
static struct drive d;

/* True: a sandbox of user 1000 is there, with d connected to it. Else the test is skipped: the files here are this machine's own. */
static bool make_box(bool sudo)
{
	struct err e = { 0 };

	if (!suite.kind->own_files)
		return false;
	random_uuid(box);
	if (!suite_create_for(box, "1000:1000", sudo, &e))
		fail_msg("%s", e.message);
	drive_init(&d, &suite.loop);
	assert_true(drive_connect(&d, suite_open_guest(box)));
	assert_true(got_is(drive_sh(&d, "id -u; test -e /usr/bin/sudo"), 0, "1000\n", ""));
	return true;
}

static void remove_box(void)
{
	struct err e;

	drive_done(&d);
	assert_true(suite_ask(suite.b->ops->destroy, box, &e));
}

static void says(const char *script, int exit_code, const char *out)
{
	struct got_run *r = drive_sh(&d, script);

	assert_non_null(r);
	if (!got_is(r, exit_code, out, NULL))
		fail_msg("%s: exit %d, \"%.*s\", \"%.*s\"", script, r->end.exit_code, (int)r->out[0].len, r->out[0].data, (int)r->out[1].len,
		         r->out[1].data);
}

static void complains(const char *script)
{
	struct got_run *r = drive_sh(&d, script);

	assert_non_null(r);
	if (r->end.exit_code != 1 || r->out[0].len != 0 || !memmem(r->out[1].data, r->out[1].len, "sudo", 4))
		fail_msg("%s: exit %d, \"%.*s\", \"%.*s\"", script, r->end.exit_code, (int)r->out[0].len, r->out[0].data, (int)r->out[1].len,
		         r->out[1].data);
}

static void sudo_is_as_people_know_it(void **state)
{
	(void)state;
	if (!make_box(true))
		return;
	says("sudo id -u; sudo -n id -un; sudo -u nobody id -un; sudo -u '#65534' id -u; sudo -g daytona id -gn", 0, "0\nroot\nnobody\n65534\ndaytona\n");
	says("/usr/bin/sudo id -u", 0, "0\n");
	says("sudo sh -c 'exit 7'", 7, "");
	says("sudo sh -c 'kill -9 $$' 2>/dev/null; echo $?", 0, "137\n");
	says("printf 'a\\0b' | sudo od -An -c | tr -d ' '", 0, "a\\0b\n");
	says("sudo sh -c 'echo err >&2' 2>&1 >/dev/null; sudo cat </dev/null; sudo cat", 0, "err\n");
	says("cd /usr/share && sudo pwd; sudo -i pwd; sudo -s echo 'a  b' '$HOME' '*'", 0, "/usr/share\n/root\na  b /root *\n");
	says("A=1 sudo sh -c 'echo $A,$HOME,$USER,$SUDO_USER,$SUDO_UID,$PATH'", 0,
	     ",/root,root,daytona,1000,/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
	says("A=1 B=2 sudo -E sh -c 'echo $A,$B'; A=1 B=2 sudo --preserve-env=B sh -c 'echo $A,$B'; sudo C=3 -- sh -c 'echo $C' 2>&1 | head -1;"
	     " sudo C=3 sh -c 'echo $C'; https_proxy=p LANG=C sudo sh -c 'echo $https_proxy,$LANG'; HOME=/x sudo -H sh -c 'echo $HOME'",
	     0, "1,2\n,2\n3\n3\np,C\n/root\n");
	says("sudo -v && sudo -k && sudo -l | grep -o NOPASSWD | head -1", 0, "NOPASSWD\n");
	says("sudo sh -c 'chown 0:0 /tmp/f 2>/dev/null; echo x >/root/made; mkdir -p /etc/made && chmod 700 /etc/made' && sudo cat /root/made && ! ls /etc/made 2>/dev/null", 0,
	     "x\n");
	complains("sudo no-such-program");
	complains("sudo -u no-such-user true");
	complains("sudo --no-such-option true");
	complains("sudo");
	remove_box();
}

/* Asks for the file system's owner, drops privileges of its own for the download, runs scripts as root. */
static void sudo_installs_packages(void **state)
{
	(void)state;
	if (!make_box(true))
		return;
	says("mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin && cd /tmp && printf '#!/bin/sh\\necho installed\\n' >p/usr/bin/made-here && chmod 755 p/usr/bin/made-here &&"
	     " printf 'Package: made-here\\nVersion: 1\\nArchitecture: all\\nMaintainer: n <n@example.org>\\nDescription: d\\n' >p/DEBIAN/control &&"
	     " printf '#!/bin/sh\\nchown daytona /usr/bin/made-here\\n' >p/DEBIAN/postinst && chmod 755 p/DEBIAN/postinst &&"
	     " dpkg-deb --root-owner-group -b p p.deb >/dev/null && sudo apt-get -qq install -y ./p.deb >/tmp/log 2>&1 || cat /tmp/log; made-here;"
	     " stat -c %U /usr/bin/made-here; sudo dpkg -r made-here >/dev/null && ls /usr/bin/made-here 2>/dev/null",
	     2, "installed\ndaytona\n");
	remove_box();
}

static void sudo_is_for_the_ordinary_user_only(void **state)
{
	(void)state;
	if (!make_box(true))
		return;
	struct got_run *r = drive_run(&d, &(struct link_run_spec){ .argv = ARGV("sudo", "-n", "id"), .user = "nobody" });
	assert_non_null(r);
	assert_true(r->end.exit_code == 1 && r->out[0].len == 0 && r->out[1].len > 0);
	r = drive_run(&d, &(struct link_run_spec){ .argv = ARGV("sudo", "id", "-u"), .user = "root" });
	assert_true(got_is(r, 0, "0\n", ""));
	remove_box();
}

/* Whoever is let in may say anything on the socket (where there is one); a frame is u32 length, u8 type, u8 channel, u16, u64. */
static void nonsense_harms_nobody(void **state)
{
	(void)state;
	static const char script[] =
		"import array, os, random, socket, struct\n"
		"def dial():\n"
		"    s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect('\\0caisson-sudo'); return s\n"
		"def say(b, fds=()):\n"
		"    s = dial()\n"
		"    try:\n"
		"        s.sendmsg([b], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))] if fds else [])\n"
		"        s.shutdown(socket.SHUT_WR); s.recv(1000)\n"
		"    except OSError: pass\n"
		"    s.close()\n"
		"def frame(t, p, more=0): return struct.pack('<IBBHQ', len(p), t, more, 0, 0) + p\n"
		"def field(t, p): return struct.pack('<HHI', t, 0, len(p)) + p\n"
		"try: dial().close()\n"
		"except OSError: raise SystemExit\n"
		"random.seed(7)\n"
		"flags = field(9, struct.pack('<IHHQ', 2, 0, 0, 0))\n"
		"for n in range(300): say(os.urandom(random.randrange(1, 400)), [0] * random.randrange(0, 20))\n"
		"for t in range(0, 50): say(frame(t, b'1234'), [0, 1, 2, 0])\n"
		"say(frame(2, flags + field(1, b'id\\0')))\n"                                /* no descriptors */
		"say(frame(2, flags + field(1, b'id\\0')), [0, 1, 2, 0])\n"                   /* no directory, no terminal */
		"say(frame(2, flags + field(1, b'id\\0') + field(5, b's\\0')), [0, 1, 2, 0])\n" /* a session */
		"say(b''.join(frame(2, b'x' * 65536, 1) for i in range(80)), [0, 1, 2, 0])\n"  /* without end */
		"kept = []\n"
		"for n in range(300):\n"
		"    try: kept.append(dial())\n"
		"    except OSError: break\n";

	if (!make_box(true))
		return;
	struct got_run *r = drive_run(&d, &(struct link_run_spec){ .argv = ARGV("python3", "-c", script) });
	assert_non_null(r);
	if (!got_is(r, 0, "", ""))
		fail_msg("%.*s", (int)r->out[1].len, r->out[1].data);
	says("sudo id -u; ls /proc/1/fd 2>/dev/null | wc -l", 0, "0\n0\n");
	remove_box();
}

static void no_sudo_where_it_is_not_permitted(void **state)
{
	(void)state;
	if (!make_box(false))
		return;
	complains("sudo -n id");
	/* nor by any other set-id program */
	says("cp /usr/bin/id /tmp/id; find / -xdev -perm -4000 -type f -exec sh -c 'for f; do case $f in */su) echo | $f -c id root 2>/dev/null;; esac; done' x {} +;"
	     " grep NoNewPrivs /proc/self/status",
	     0, "NoNewPrivs:\t1\n");
	remove_box();
}

/* How many processes begin with this. `pgrep -f` would find itself in its shell. */
static size_t living(const char *begins)
{
	char script[200];

	snprintf(script, sizeof script, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '%s' | wc -l", begins);
	struct got_run *r = drive_sh(&d, script);
	assert_non_null(r);
	return strtoul(r->out[0].data, NULL, 10);
}

static void what_sudo_started_ends_with_the_run(void **state)
{
	(void)state;
	if (!make_box(true))
		return;
	struct got_run *r = drive_start(&d, &(struct link_run_spec){
		.argv = ARGV("sh", "-c", "sudo sh -c 'echo up; setsid sleep 7781 & exec sleep 7781'; echo never"), .timeout_ms = 3000 * drive_patience });
	assert_true(drive_until(&d, &r->ended));
	assert_true(r->end.timed_out);
	assert_true(got_is(r, 137, "up\n", NULL));
	for (int i = 0; i < 50 && living("[s]leep 7781"); i++) /* killed, and dying */
		drive_for(&d, 20);
	assert_int_equal(living("[s]leep 7781"), 0);
	/* a signal to the sudo alone reaches its command */
	r = drive_start(&d, &(struct link_run_spec){ .argv = ARGV("sudo", "sh", "-c", "trap 'exit 5' TERM; echo up; while :; do sleep 0.05; done") });
	while (!r->out[0].len)
		drive_for(&d, 10);
	link_run_signal(d.link, r->id, SIGTERM, false);
	assert_true(drive_until(&d, &r->ended));
	assert_true(got_is(r, 5, "up\n", ""));
	remove_box();
}

static void sudo_has_a_terminal(void **state)
{
	(void)state;
	if (!make_box(true))
		return;
	struct got_run *r = drive_start(&d, &(struct link_run_spec){
		.argv = ARGV("sudo", "sh", "-c", "stty size </dev/tty; test -t 0 && test -t 1 && id -u; read x; echo \"<$x>\"; exit 3"), .pty = true, .stdin_open = true, .rows = 31, .cols = 97 });
	while (!r->out[0].data || !memmem(r->out[0].data, r->out[0].len, "\r\n0\r\n", 5))
		drive_for(&d, 10);
	assert_int_equal(link_run_stdin(d.link, r->id, STR("typed\r")), 0);
	assert_true(drive_until(&d, &r->ended));
	if (!got_is(r, 3, "31 97\r\n0\r\ntyped\r\n<typed>\r\n", ""))
		fail_msg("exit %d, %.*s", r->end.exit_code, (int)r->out[0].len, r->out[0].data);
	r = drive_start(&d, &(struct link_run_spec){ .argv = ARGV("sudo", "sh", "-c", "echo up; exec sleep 7782"), .pty = true, .stdin_open = true });
	while (!r->out[0].len)
		drive_for(&d, 10);
	assert_int_equal(link_run_stdin(d.link, r->id, STR("\003")), 0); /* ^C */
	assert_true(drive_until(&d, &r->ended));
	assert_int_equal(r->end.exit_code, 128 + SIGINT);
	for (int i = 0; i < 50 && living("[s]leep 7782"); i++)
		drive_for(&d, 20);
	assert_int_equal(living("[s]leep 7782"), 0);
	r = drive_start(&d, &(struct link_run_spec){ .argv = ARGV("sudo", "sh", "-c", "trap 'stty size; exit 6' WINCH; echo up; while :; do sleep 0.05; done"), .pty = true, .stdin_open = true });
	while (!r->out[0].len)
		drive_for(&d, 10);
	link_run_resize(d.link, r->id, 50, 60);
	assert_true(drive_until(&d, &r->ended));
	assert_int_equal(r->end.exit_code, 6);
	assert_non_null(memmem(r->out[0].data, r->out[0].len, "50 60", 5));
	r = drive_run(&d, &(struct link_run_spec){ .argv = ARGV("sh", "-c", "echo a | sudo cat | cat -A; sudo sh -c 'seq 20000' | md5sum"), .pty = true });
	assert_true(got_is(r, 0, "a$\r\ne071f707df7bbeee2a6a1eb48011ddd0  -\r\n", ""));
	remove_box();
}

const struct CMUnitTest sudo_tests[] = {
	cmocka_unit_test(sudo_is_as_people_know_it),
	cmocka_unit_test(sudo_installs_packages),
	cmocka_unit_test(sudo_is_for_the_ordinary_user_only),
	cmocka_unit_test(nonsense_harms_nobody),
	cmocka_unit_test(no_sudo_where_it_is_not_permitted),
	cmocka_unit_test(what_sudo_started_ends_with_the_run),
	cmocka_unit_test(sudo_has_a_terminal),
};
const size_t sudo_tests_n = ARRAY_LEN(sudo_tests);
