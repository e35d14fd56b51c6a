#include "cli/sandbox_args.h"
#include "model/publish.h"

void text_list_add(struct text_list *l, const char *text)
{
	l->v = xreallocarray(l->v, l->n + 2, sizeof *l->v);
	l->v[l->n++] = text;
	l->v[l->n] = NULL;
}

bool args_publication(struct args *a, const char *text, struct publication *ret)
{
	struct err e;

	if (publication_parse(str_of(text), ret, &e) == 0)
		return true;
	a->exit_code = cli_usage(a->cli, "%s", e.message);
	a->leave = true;
	return false;
}

bool sandbox_args_take(struct args *a, int id, struct sandbox_args *s)
{
	struct publication p;

	switch (id) {
	case OPT_SANDBOX_IMAGE:
		s->o.image = a->value;
		return true;
	case OPT_SANDBOX_BOUNDARY:
		s->o.boundary = a->value;
		return true;
	case OPT_SANDBOX_NAME:
		s->o.name = a->value;
		return true;
	case OPT_SANDBOX_LABEL:
		args_pair(a, "label", false, &s->labels);
		return true;
	case OPT_SANDBOX_CPUS:
		args_double(a, "cpus", RESOURCES_CPUS_MIN, RESOURCES_CPUS_MAX, &s->o.cpus);
		return true;
	case OPT_SANDBOX_MEMORY:
		args_mib(a, "memory", RESOURCES_MEMORY_MIB_MIN, RESOURCES_MEMORY_MIB_MAX, &s->o.memory_mib);
		return true;
	case OPT_SANDBOX_DISK:
		args_mib(a, "disk", RESOURCES_DISK_MIB_MIN, RESOURCES_DISK_MIB_MAX, &s->o.disk_mib);
		return true;
	case OPT_SANDBOX_PIDS:
		args_u64(a, "pids", RESOURCES_PIDS_MIN, RESOURCES_PIDS_MAX, &s->o.pids);
		return true;
	case OPT_SANDBOX_NETWORK:
		s->o.network = a->value;
		return true;
	case OPT_SANDBOX_ALLOW:
		text_list_add(&s->allow, a->value);
		return true;
	case OPT_SANDBOX_DENY:
		text_list_add(&s->deny, a->value);
		return true;
	case OPT_SANDBOX_PERMIT:
		text_list_add(&s->permit, a->value);
		return true;
	case OPT_SANDBOX_PUBLISH:
		if (args_publication(a, a->value, &p))
			*publications_add(&s->publish) = p;
		return true;
	case OPT_SANDBOX_SECRET:
		args_pair(a, "secret", false, &s->secret_env);
		return true;
	case OPT_SANDBOX_SECRET_FILE:
		args_pair(a, "secret-file", false, &s->secret_files);
		return true;
	case OPT_SANDBOX_NO_SUDO:
		s->o.no_sudo = true;
		return true;
	case OPT_SANDBOX_HOSTNAME:
		s->o.hostname = a->value;
		return true;
	default:
		return false;
	}
}
