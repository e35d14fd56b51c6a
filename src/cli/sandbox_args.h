/* The options that `create` and `run` share: what kind of sandbox. */
#ifndef CAISSON_CLI_SANDBOX_ARGS_H
#define CAISSON_CLI_SANDBOX_ARGS_H

#include "cli/args.h"
#include "model/spec.h"

enum { OPT_SANDBOX_IMAGE = 5001, OPT_SANDBOX_BOUNDARY, OPT_SANDBOX_NAME, OPT_SANDBOX_LABEL, OPT_SANDBOX_CPUS, OPT_SANDBOX_MEMORY,
       OPT_SANDBOX_DISK, OPT_SANDBOX_PIDS, OPT_SANDBOX_NETWORK, OPT_SANDBOX_HOSTNAME,
       OPT_SANDBOX_ALLOW, OPT_SANDBOX_DENY, OPT_SANDBOX_SECRET, OPT_SANDBOX_SECRET_FILE, OPT_SANDBOX_NO_SUDO, OPT_SANDBOX_PERMIT, OPT_SANDBOX_PUBLISH };

#define SANDBOX_OPTIONS                                                                                              \
	{ OPT_SANDBOX_IMAGE, 0, "image", "REF", "image to start from (default: default)" },                          \
	{ OPT_SANDBOX_BOUNDARY, 0, "boundary", "KIND", "vm or process (default: the server's)" },                    \
	{ OPT_SANDBOX_NAME, 'n', "name", "NAME", "name of the sandbox (default: its id)" },                          \
	{ OPT_SANDBOX_LABEL, 'l', "label", "K=V", "label; may be repeated" },                                        \
	{ OPT_SANDBOX_CPUS, 0, "cpus", "N", "cores, such as 2 or 0.5" },                                             \
	{ OPT_SANDBOX_MEMORY, 'm', "memory", "SIZE", "memory limit, such as 512m or 2g" },                           \
	{ OPT_SANDBOX_DISK, 0, "disk", "SIZE", "disk limit, such as 10g" },                                          \
	{ OPT_SANDBOX_PIDS, 0, "pids", "N", "limit of processes and threads" },                                      \
	{ OPT_SANDBOX_NETWORK, 0, "network", "MODE", "none, public or allow (default: none, with --allow: allow)" },  \
	{ OPT_SANDBOX_ALLOW, 0, "allow", "RULE", "may reach this, such as api.example.org:443; may be repeated" },   \
	{ OPT_SANDBOX_DENY, 0, "deny", "RULE", "may not reach this; may be repeated" },                              \
	{ OPT_SANDBOX_PUBLISH, 'p', "publish", "[[ADDRESS:]HOST_PORT:]PORT", "its port at one of this host, on 127.0.0.1; repeated" }, \
	{ OPT_SANDBOX_SECRET, 0, "secret", "VAR=SECRET", "variable that stands for a secret; may be repeated" },      \
	{ OPT_SANDBOX_SECRET_FILE, 0, "secret-file", "PATH=SECRET", "the same in a file inside; may be repeated" },     \
	{ OPT_SANDBOX_PERMIT, 0, "permit", "RULE", "programs may use no more, such as 'allow program:/bin/sh'; repeated" }, \
	{ OPT_SANDBOX_NO_SUDO, 0, "no-sudo", NULL, "its user may not become root inside" },                           \
	{ OPT_SANDBOX_HOSTNAME, 0, "hostname", "NAME", "host name inside (default: from the name)" }

struct text_list { /* NULL-terminated; the texts are of argv */
	const char **v;
	size_t n;
};
void text_list_add(struct text_list *l, const char *text);

struct sandbox_args {
	struct caisson_create_options o; /* strings are of argv */
	struct pair_list labels;         /* put into o by sandbox_args_finish */
	struct text_list allow, deny, permit; /* the same */
	struct pair_list secret_env, secret_files; /* the same */
	struct publications publish;               /* the same */
	struct caisson_publication *published;     /* what o has of them */
};
/* False: it is none, which was said; a->leave is set. ret->address is heap. */
bool args_publication(struct args *a, const char *text, struct publication *ret);
/* Takes the option if it is one of these; false: it is another one. Wrong values set a->leave. */
bool sandbox_args_take(struct args *a, int id, struct sandbox_args *s);
static inline void sandbox_args_finish(struct sandbox_args *s)
{
	s->published = xcalloc(s->publish.n + 1, sizeof *s->published);
	for (size_t i = 0; i < s->publish.n; i++)
		s->published[i] = (struct caisson_publication){ s->publish.v[i].address, s->publish.v[i].host_port, s->publish.v[i].port };
	s->o.publish = s->published;
	s->o.n_publish = s->publish.n;
	s->o.labels = s->labels.v;
	s->o.n_labels = s->labels.n;
	s->o.network_allow = s->allow.v;
	s->o.network_deny = s->deny.v;
	s->o.permissions = s->permit.v;
	s->o.secret_env = s->secret_env.v;
	s->o.n_secret_env = s->secret_env.n;
	s->o.secret_files = s->secret_files.v;
	s->o.n_secret_files = s->secret_files.n;
}
static inline void sandbox_args_done(struct sandbox_args *s)
{
	pair_list_done(&s->labels);
	free(s->allow.v);
	free(s->deny.v);
	free(s->permit.v);
	pair_list_done(&s->secret_env);
	pair_list_done(&s->secret_files);
	publications_done(&s->publish);
	free(s->published);
}
#define auto_sandbox_args __attribute__((cleanup(sandbox_args_done)))

#endif
