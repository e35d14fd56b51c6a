#include "cli/serve.h"

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/sandbox_args.h"
#include "model/policy.h"
#include "model/sandbox.h"

enum { OPT_LISTEN = 1, OPT_SOCKET, OPT_IMAGES, OPT_BOUNDARY, OPT_ACCELERATOR, OPT_PUBLIC_URL, OPT_PREVIEW_DOMAIN, OPT_POOL, OPT_LIFETIME_FD, OPT_EPHEMERAL, OPT_LOG,
       OPT_NETWORK, OPT_NETWORK_MAX, OPT_NETWORK_LAN, OPT_RESOLVER, OPT_AUDIT_KEEP, OPT_SSH, OPT_PUBLISH, OPT_NETWORK_ALLOW, OPT_NETWORK_DENY, OPT_NETWORK_LIMIT };

enum { AUDIT_KEEP_MIN_MIB = 32 };
#define PUBLISH_DEFAULT "127.0.0.0/8,::1"

static const struct option_spec options[] = {
	{ OPT_LISTEN, 0, "listen", "ADDRESS", "HOST:PORT (default: 127.0.0.1:4780), or none" },
	{ OPT_SOCKET, 0, "socket", "PATH", "unix socket (default: /run/caisson/api.sock; with --data: DIR/api.sock)" },
	{ OPT_SSH, 0, "ssh", "ADDRESS", "HOST:PORT for SSH into sandboxes (default: none)" },
	{ OPT_IMAGES, 0, "images", "DIR", "folder of images (default: the one of this machine, as `image ls` shows it)" },
	{ OPT_BOUNDARY, 0, "boundary", "KIND", "boundary of sandboxes that ask for none: vm or process (default: $CAISSON_BOUNDARY, else vm where this machine can give it)" },
	{ OPT_ACCELERATOR, 0, "accelerator", "KIND", "of the vm boundary: kvm or emulated (default: $CAISSON_ACCELERATOR, else kvm where it works)" },
	{ OPT_PUBLIC_URL, 0, "public-url", "URL", "how clients reach this server, for links to ports" },
	{ OPT_PREVIEW_DOMAIN, 0, "preview-domain", "DOMAIN", "every name under it leads here: links to ports are PORT-ID.DOMAIN" },
	{ OPT_NETWORK, 0, "network", "[API=]MODE", "of sandboxes that do not say: none or public, of all or of one API (default: none, but daytona=public); repeated" },
	{ OPT_NETWORK_MAX, 0, "network-max", "MODE", "the most that a sandbox may have: none, allow or public (default: public)" },
	{ OPT_NETWORK_ALLOW, 0, "network-allow", "RULE", "with --network-max allow: its rules must lie within these; repeated" },
	{ OPT_NETWORK_DENY, 0, "network-deny", "RULE", "no sandbox reaches this; repeated" },
	{ OPT_NETWORK_LIMIT, 0, "network-limit", "NAME=N", "no sandbox has more: bytes_per_second, bytes, connections, connections_per_second; repeated" },
	{ OPT_NETWORK_LAN, 0, "network-lan", "RANGES", "private addresses that a sandbox's rules may name, such as 10.1.0.0/16,192.168.7.5" },
	{ OPT_PUBLISH, 0, "publish", "RANGES", "addresses that ports of sandboxes may be published on, or none (default: " PUBLISH_DEFAULT ")" },
	{ OPT_RESOLVER, 0, "resolver", "ADDRESSES", "name servers for the sandboxes' names (default: this machine's)" },
	{ OPT_POOL, 0, "pool", "N", "keep N sandboxes ready of each kind asked for lately (default: as the boundary suggests; 0: none)" },
	{ OPT_AUDIT_KEEP, 0, "audit-keep", "SIZE", "keep this much of the audit log, such as 4g; its oldest files go (default: all is kept)" },
	{ OPT_LOG, 0, "log", "LEVEL", "debug, info, warn or error (default: $CAISSON_LOG, else warn)" },
	{ OPT_EPHEMERAL, 0, "ephemeral", NULL, "delete every sandbox and the data folder when it ends" },
	{ OPT_LIFETIME_FD, 0, "lifetime-fd", "N", "end when this pipe's other side is closed" },
	{ 0 },
};

static bool log_level(const char *name, enum log_level *ret)
{
	static const char *const names[] = { [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (streq(name, names[i])) {
			*ret = (enum log_level)i;
			return true;
		}
	}
	return false;
}

/* Said here, where somebody reads it. */
static bool ranges_valid(const char *text)
{
	struct nets nets = { 0 };
	bool good = *text && nets_parse(text, &nets) == 0;

	nets_done(&nets);
	return good;
}

struct network_args {
	struct text_list allow, deny; /* of argv */
	char **allow_rules, **deny_rules;
};

static void network_args_done(struct network_args *n)
{
	free(n->allow.v);
	free(n->deny.v);
	strv_free(n->allow_rules);
	strv_free(n->deny_rules);
}

static bool wrong(struct args *a, const char *what, const char *expected)
{
	a->exit_code = cli_usage(a->cli, "--%s %s: expected %s", what, a->value, expected);
	a->leave = true;
	return true;
}

/* "public", "daytona=none" */
static bool take_mode(struct args *a, struct serve_options *s)
{
	static const char *const apis[] = { [SERVE_NATIVE] = "native", [SERVE_DAYTONA] = "daytona", [SERVE_MCP] = "mcp" };
	const char *equals = strchr(a->value, '=');
	struct str api = { a->value, equals ? (size_t)(equals - a->value) : 0 };
	enum network_mode m;
	bool known = !equals;

	if (network_mode_parse(str_of(equals ? equals + 1 : a->value), &m) < 0 || m == NETWORK_ALLOW)
		return wrong(a, "network", "none or public, or API=none or API=public");
	for (size_t i = 0; i < SERVE_APIS; i++)
		if (!equals || str_eqz(api, apis[i])) {
			s->network[i] = (int)m;
			known = true;
		}
	return known || wrong(a, "network", "native, daytona or mcp before the '='");
}

/* False: it is none of these. */
static bool take_network(struct args *a, int id, struct serve_options *s, struct network_args *n)
{
	struct err e;

	switch (id) {
	case OPT_NETWORK:
		return take_mode(a, s);
	case OPT_NETWORK_MAX:
		if (network_mode_parse(str_of(a->value), &s->ceiling.mode) < 0)
			return wrong(a, "network-max", "none, allow or public");
		return true;
	case OPT_NETWORK_ALLOW:
		text_list_add(&n->allow, a->value);
		return true;
	case OPT_NETWORK_DENY:
		text_list_add(&n->deny, a->value);
		return true;
	case OPT_NETWORK_LIMIT:
		if (limit_parse(str_of(a->value), &s->ceiling.limits, &e) < 0) {
			a->exit_code = cli_usage(a->cli, "--network-limit %s", e.message);
			a->leave = true;
		}
		return true;
	case OPT_NETWORK_LAN:
		s->network_lan = a->value;
		return ranges_valid(a->value) || wrong(a, "network-lan", "address ranges, separated by commas");
	case OPT_PUBLISH:
		s->publish = a->value;
		return streq(a->value, "none") || ranges_valid(a->value) || wrong(a, "publish", "address ranges, separated by commas, or none");
	case OPT_RESOLVER:
		s->resolvers = a->value;
		return (!strchr(a->value, '/') && ranges_valid(a->value)) || wrong(a, "resolver", "addresses, separated by commas");
	default:
		return false;
	}
}

static char **copy_texts(const struct text_list *l)
{
	char **v = l->n ? xcalloc(l->n + 1, sizeof *v) : NULL;

	for (size_t i = 0; i < l->n; i++)
		v[i] = xstrdup(l->v[i]);
	return v;
}

static bool finish_network(struct cli *cli, struct serve_options *s, struct network_args *n)
{
	struct err e;

	s->ceiling.allow = n->allow_rules = copy_texts(&n->allow);
	s->ceiling.deny = n->deny_rules = copy_texts(&n->deny);
	return ceiling_valid(&s->ceiling, &e) == 0 || cli_usage(cli, "%s", e.message) == 0;
}

/* NULL: not set, or to nothing. */
static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static int run(struct cli *cli, int argc, char **argv)
{
	auto_args struct args a;
	struct serve_options s = { .lifetime_fd = -1, .log_level = LOG_WARN, .pool = -1, .network = { -1, -1, -1 }, .ceiling = { .mode = NETWORK_PUBLIC },
				   .publish = PUBLISH_DEFAULT };
	__attribute__((cleanup(network_args_done))) struct network_args network = { 0 };
	const char *listen = NULL, *socket = NULL, *images = NULL, *log = environment("CAISSON_LOG");
	uint64_t fd = 0, pool = 0, keep_mib = 0;

	args_init(&a, cli, argc, argv, false);
	for (int o; (o = args_next(&a)) > 0;) {
		if (take_network(&a, o, &s, &network))
			continue;
		switch (o) {
		case OPT_LISTEN:
			listen = a.value;
			break;
		case OPT_SOCKET:
			socket = a.value;
			break;
		case OPT_SSH:
			s.ssh = a.value;
			break;
		case OPT_IMAGES:
			images = a.value;
			break;
		case OPT_BOUNDARY:
			s.boundary = a.value;
			break;
		case OPT_ACCELERATOR:
			s.accelerator = a.value;
			break;
		case OPT_PUBLIC_URL:
			s.public_url = a.value;
			break;
		case OPT_PREVIEW_DOMAIN:
			s.preview_domain = a.value;
			break;
		case OPT_LIFETIME_FD:
			if (args_u64(&a, "lifetime-fd", 0, 1 << 20, &fd))
				s.lifetime_fd = (int)fd;
			break;
		case OPT_POOL:
			if (args_u64(&a, "pool", 0, POOL_SIZE_MAX, &pool))
				s.pool = (int)pool;
			break;
		case OPT_AUDIT_KEEP:
			if (args_mib(&a, "audit-keep", AUDIT_KEEP_MIN_MIB, RESOURCES_DISK_MIB_MAX, &keep_mib) && keep_mib < AUDIT_KEEP_MIN_MIB)
				wrong(&a, "audit-keep", "at least 32m");
			s.audit_keep = keep_mib << 20;
			break;
		case OPT_EPHEMERAL:
			s.ephemeral = true;
			break;
		case OPT_LOG:
			log = a.value;
			break;
		default:
			break;
		}
	}
	if (a.leave || !args_count(&a, 0, 0))
		return a.exit_code;
	if (!finish_network(cli, &s, &network))
		return CLI_USAGE;
	if (log && !log_level(log, &s.log_level))
		return cli_usage(cli, "--log %s: expected debug, info, warn or error", log);
	s.boundary = s.boundary ? s.boundary : environment("CAISSON_BOUNDARY");
	s.accelerator = s.accelerator ? s.accelerator : environment("CAISSON_ACCELERATOR");
	if (s.accelerator && !streq(s.accelerator, "kvm") && !streq(s.accelerator, "emulated"))
		return cli_usage(cli, "--accelerator %s: expected kvm or emulated", s.accelerator);
	/* An ephemeral server is somebody's private one: on TCP only when asked to. */
	s.listen = streq(listen, "none") ? NULL : listen ? listen : s.ephemeral ? NULL : "127.0.0.1:4780";
	auto_free char *data = cli_data_folder(cli), *at = socket ? cli_absolute(socket) : cli_socket_path(cli),
		       *folder = images ? cli_absolute(images) : cli_images_folder();
	s.data = data;
	s.socket = at;
	s.images = folder;
	return serve_main(&s);
}

const struct command command_serve = {
	.name = "serve",
	.synopsis = "[OPTIONS]",
	.summary = "Run the server",
	.help = "Prints a line `ready ADDRESS` once it answers, and one that names the boundary of sandboxes that ask for none. At its first start it writes a key to DIR/api-key (mode 0600).\n"
		"SIGTERM or SIGINT end the server and leave the sandboxes running; the next one takes them over.\n"
		"The Daytona API is at http://ADDRESS/daytona, MCP at http://ADDRESS/mcp.\n",
	.options = options,
	.run = run,
};
