/* What `caisson serve` was asked for. The arguments are parsed in cli/serve.c; the server itself is wired together in bin,
 * which defines serve_main() - the one function that the cli layer calls upwards, through this declaration. */
#ifndef CAISSON_CLI_SERVE_H
#define CAISSON_CLI_SERVE_H

#include "base/log.h"
#include "model/ceiling.h"

enum serve_api { SERVE_NATIVE, SERVE_DAYTONA, SERVE_MCP, SERVE_APIS };

struct serve_options {
	const char *data;       /* folder of state, disks and the first key: never NULL, absolute */
	const char *images;     /* folder of images: never NULL, absolute */
	const char *listen;     /* "127.0.0.1:4780"; NULL = no TCP */
	const char *ssh;        /* "127.0.0.1:2222"; NULL = no SSH */
	const char *socket;     /* path of the unix socket: never NULL, absolute; its folder may have to be made */
	const char *boundary;   /* default boundary of new sandboxes, never another; NULL = vm where this host can give it, else process */
	const char *accelerator; /* of the vm boundary: "kvm", "emulated"; NULL = KVM where it works */
	const char *public_url; /* how clients reach it (preview links); NULL = from the address */
	const char *preview_domain; /* wildcard domain of links to ports; NULL = links by path */
	int network[SERVE_APIS];       /* enum network_mode of sandboxes that do not say, by API; -1 = what its clients expect */
	struct ceiling ceiling;        /* the most that a sandbox may have; a valid one */
	const char *network_lan;       /* ranges of private addresses that rules may name, comma-separated; NULL = none */
	const char *publish;           /* ranges of addresses that ports may be published on, comma-separated, or "none"; never NULL */
	const char *resolvers;         /* name servers of the sandboxes' resolver, comma-separated; NULL = this machine's */
	uint64_t audit_keep;    /* bytes of the audit log that are kept; 0 = all */
	int pool;               /* ready sandboxes kept of each kind asked for lately; -1 = as the boundary suggests */
	int lifetime_fd;        /* read end of a pipe: when it closes, the server deletes its sandboxes and ends. -1 = none */
	bool ephemeral;         /* nothing outlives the server: at its end every sandbox is deleted, and `data` as well */
	enum log_level log_level;
};

/* Returns the exit code of the program. Prints two lines on stdout once it answers, "ready http://127.0.0.1:4780" ("ready unix:/path" without TCP)
 * and "boundary KIND[, ACCELERATOR[: WHY NOT KVM]]", and a third one with SSH, "ssh 127.0.0.1:2222"; before that, nothing on stdout. */
int serve_main(const struct serve_options *o);

#endif
