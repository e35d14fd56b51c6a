/* Views to JSON: the schemas of docs/openapi.yaml, field by field. */
#include "dialect/native/native_int.h"

#include <stdio.h>

static void encode_pairs(struct jout *j, const char *key, const struct pairs *p)
{
	jout_object(j, key);
	for (size_t i = 0; i < p->n; i++)
		jout_z(j, p->v[i].key, p->v[i].value);
	jout_end_object(j);
}

void encode_resources(struct jout *j, const char *key, const struct resources *v)
{
	jout_object(j, key);
	jout_number(j, "cpus", v->cpus);
	jout_u64(j, "memory_mib", v->memory_mib);
	jout_u64(j, "disk_mib", v->disk_mib);
	jout_u64(j, "pids", v->pids);
	jout_end_object(j);
}

static void encode_list(struct jout *j, const char *key, char *const *v)
{
	jout_array(j, key);
	for (; v && *v; v++)
		jout_z(j, NULL, *v);
	jout_end_array(j);
}

static void encode_limits(struct jout *j, const struct network_limits *l)
{
	const struct { const char *name; uint64_t value; } all[] = {
		{ "bytes_per_second", l->bytes_per_second },
		{ "bytes", l->bytes },
		{ "connections", l->connections },
		{ "connections_per_second", l->connections_per_second },
	};
	jout_object(j, "limits");
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i].value)
			jout_u64(j, all[i].name, all[i].value);
	jout_end_object(j);
}

static void encode_network(struct jout *j, const struct sandbox_spec *s)
{
	jout_object(j, "network");
	jout_z(j, "mode", network_mode_name(s->network));
	encode_list(j, "allow", s->network_allow);
	encode_list(j, "deny", s->network_deny);
	encode_limits(j, &s->network_limits);
	jout_end_object(j);
}

static void encode_secrets(struct jout *j, const struct sandbox_spec *s)
{
	jout_object(j, "secrets");
	encode_pairs(j, "env", &s->secret_env);
	encode_pairs(j, "files", &s->secret_files);
	jout_end_object(j);
}

static void encode_lifetime(struct jout *j, const struct lifetime *l)
{
	jout_object(j, "lifetime");
	jout_u64(j, "idle_s", l->idle_s);
	jout_u64(j, "max_s", l->max_s);
	jout_i64(j, "delete_after_s", l->delete_after_s);
	jout_end_object(j);
}

void encode_sandbox(struct jout *j, const char *key, const struct sandbox_view *v)
{
	const struct sandbox_spec *s = v->spec;
	jout_object(j, key);
	jout_z(j, "id", v->id);
	jout_z(j, "name", v->name);
	jout_z(j, "state", sandbox_state_name(v->state));
	jout_z(j, "error", v->error);
	jout_z(j, "boundary", v->boundary);
	jout_z(j, "accelerator", v->accelerator);
	jout_z(j, "image", s->image);
	jout_z(j, "image_digest", v->image_digest);
	jout_z(j, "from_snapshot", s->from_snapshot);
	jout_time(j, "created_at", v->created_ms);
	jout_time(j, "updated_at", v->updated_ms ? v->updated_ms : v->created_ms);
	jout_time(j, "active_at", v->active_ms ? v->active_ms : v->created_ms);
	encode_resources(j, "resources", &s->resources);
	encode_network(j, s);
	encode_secrets(j, s);
	encode_list(j, "permissions", s->permissions);
	encode_pairs(j, "labels", &s->labels);
	encode_pairs(j, "env", &s->env);
	jout_z(j, "user", v->user ? v->user : s->user);
	jout_z(j, "workdir", s->workdir);
	jout_z(j, "hostname", s->hostname);
	encode_lifetime(j, &s->lifetime);
	encode_volume_mounts(j, &s->volumes);
	encode_publications(j, &s->publish);
	jout_bool(j, "sudo", spec_sudo(s));
	jout_bool(j, "ephemeral", s->ephemeral);
	jout_z(j, "owner", v->owner);
	jout_end_object(j);
}

void encode_snapshot(struct jout *j, const char *key, const struct snapshot_view *v)
{
	jout_object(j, key);
	jout_z(j, "id", v->id);
	jout_z(j, "name", v->name);
	jout_z(j, "state", snapshot_state_name(v->state));
	jout_z(j, "sandbox", v->sandbox);
	jout_z(j, "boundary", v->boundary);
	jout_z(j, "image", v->spec->image);
	jout_z(j, "image_digest", v->image_digest);
	encode_resources(j, "resources", &v->spec->resources);
	jout_bool(j, "memory", v->memory);
	jout_u64(j, "bytes", v->bytes);
	jout_time(j, "created_at", v->created_ms);
	jout_time(j, "used_at", v->used_ms);
	jout_z(j, "owner", v->owner);
	jout_end_object(j);
}

static void encode_signal(struct jout *j, int signo)
{
	char text[16];
	if (signo == 0) {
		jout_null(j, "signal");
		jout_null(j, "signal_name");
		return;
	}
	const char *name = signal_name(signo);
	snprintf(text, sizeof text, "SIG%d", signo); /* a real-time one */
	jout_i64(j, "signal", signo);
	jout_z(j, "signal_name", name ? name : text);
}

void encode_run_fields(struct jout *j, const struct run_view *v)
{
	jout_z(j, "id", v->id);
	jout_z(j, "session", v->session);
	jout_z(j, "command", v->display ? v->display : "");
	jout_z(j, "state", run_state_name(v->state));
	if (v->state == RUN_EXITED)
		jout_i64(j, "exit_code", v->exit_code);
	else
		jout_null(j, "exit_code");
	encode_signal(j, v->state == RUN_EXITED ? v->signal : 0);
	jout_z(j, "message", v->message);
	jout_bool(j, "timed_out", v->timed_out);
	jout_bool(j, "canceled", v->canceled);
	jout_bool(j, "oom", v->oom);
	jout_bool(j, "truncated", v->truncated);
	jout_bool(j, "pty", v->pty);
	jout_u64(j, "stdout_bytes", v->stdout_bytes);
	jout_u64(j, "stderr_bytes", v->stderr_bytes);
	jout_time(j, "started_at", v->started_ms);
	jout_time(j, "ended_at", v->ended_ms);
	jout_u64(j, "duration_ms", v->duration_ms);
}

void encode_run(struct jout *j, const char *key, const struct run_view *v)
{
	jout_object(j, key);
	encode_run_fields(j, v);
	jout_end_object(j);
}

void encode_session(struct jout *j, const char *key, const struct session_view *v)
{
	jout_object(j, key);
	jout_z(j, "id", v->id);
	jout_bool(j, "alive", v->alive);
	jout_time(j, "created_at", v->created_ms);
	jout_end_object(j);
}

void encode_file(struct jout *j, const char *key, const struct file_info *v)
{
	char mode[8], mtime[25];
	snprintf(mode, sizeof mode, "%04o", v->mode & 07777U);
	/* A sandbox may set any time it likes, also before 1970 or far beyond year 9999. */
	uint64_t ms = v->mtime_ms > 0 ? (uint64_t)v->mtime_ms : 0;
	format_iso8601(MIN(ms, 253402300799999ULL), mtime);
	jout_object(j, key);
	jout_name(j, "path", v->path);
	jout_name(j, "name", v->name);
	jout_z(j, "type", file_type_name(v->type));
	jout_bool(j, "is_dir", v->is_dir);
	jout_u64(j, "size", v->size);
	jout_z(j, "mode", mode);
	jout_u64(j, "uid", v->uid);
	jout_u64(j, "gid", v->gid);
	jout_z(j, "owner", v->owner ? v->owner : "");
	jout_z(j, "group", v->group ? v->group : "");
	jout_z(j, "mtime", mtime);
	jout_i64(j, "mtime_ms", v->mtime_ms);
	jout_name(j, "target", v->target);
	jout_end_object(j);
}

void encode_usage(struct jout *j, const char *key, const struct usage *v)
{
	jout_object(j, key);
	jout_u64(j, "memory_bytes", v->memory_bytes);
	jout_u64(j, "memory_limit_bytes", v->memory_limit_bytes);
	jout_u64(j, "cpu_usec", v->cpu_usec);
	jout_number(j, "cpu_limit", v->cpu_limit);
	jout_u64(j, "pids", v->pids);
	jout_u64(j, "pids_limit", v->pids_limit);
	jout_u64(j, "disk_bytes", v->disk_bytes);
	jout_u64(j, "disk_limit_bytes", v->disk_limit_bytes);
	jout_u64(j, "inodes", v->inodes);
	jout_u64(j, "inodes_limit", v->inodes_limit);
	jout_u64(j, "oom_kills", v->oom_kills);
	jout_end_object(j);
}

void encode_image(struct jout *j, const char *key, const struct image_view *v)
{
	jout_object(j, key);
	jout_z(j, "digest", v->digest);
	jout_array(j, "names");
	for (const char *const *name = v->names; name && *name; name++)
		jout_z(j, NULL, *name);
	jout_end_array(j);
	jout_u64(j, "size_bytes", v->size_bytes);
	jout_time(j, "created_at", v->created_ms ? v->created_ms : 1);
	jout_z(j, "user", v->user);
	jout_z(j, "workdir", v->workdir);
	jout_bool(j, "stand_in", v->stand_in);
	jout_end_object(j);
}

void encode_key(struct jout *j, const char *key, const struct key_view *v)
{
	jout_object(j, key);
	jout_z(j, "id", v->id);
	jout_z(j, "name", v->name ? v->name : "");
	jout_z(j, "tenant", v->tenant ? v->tenant : "");
	jout_bool(j, "operator", v->operator_);
	jout_bool(j, "revoked", v->revoked);
	jout_time(j, "created_at", v->created_ms);
	jout_time(j, "used_at", v->used_ms);
	jout_end_object(j);
}

void encode_event(struct jout *j, const char *key, const struct event_view *v)
{
	jout_object(j, key);
	jout_z(j, "type", v->type);
	jout_time(j, "at", v->at_ms);
	encode_sandbox(j, "sandbox", v->sandbox);
	if (streq(v->type, "sandbox.state"))
		jout_z(j, "old_state", sandbox_state_name(v->old_state));
	if (v->run)
		encode_run(j, "run", v->run);
	jout_end_object(j);
}
