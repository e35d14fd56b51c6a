#include "model/interpreter.h"

#include <assert.h>
#include <errno.h>

static const char *const sandbox_states[] = {
	[SANDBOX_CREATING] = "creating",
	[SANDBOX_RUNNING] = "running",
	[SANDBOX_PAUSED] = "paused",
	[SANDBOX_STOPPING] = "stopping",
	[SANDBOX_STOPPED] = "stopped",
	[SANDBOX_STARTING] = "starting",
	[SANDBOX_DELETING] = "deleting",
	[SANDBOX_DELETED] = "deleted",
	[SANDBOX_ERROR] = "error",
	[SANDBOX_SUSPENDING] = "suspending",
	[SANDBOX_SUSPENDED] = "suspended",
	[SANDBOX_RESUMING] = "resuming",
};
static_assert(ARRAY_LEN(sandbox_states) == SANDBOX_STATE_COUNT, "a sandbox state without a name");

static const char *const grant_kinds[] = { [GRANT_SHELL] = "shell", [GRANT_PORT] = "port" };
static const char *const volume_states[] = { [VOLUME_CREATING] = "creating", [VOLUME_READY] = "ready", [VOLUME_DELETING] = "deleting" };
static const char *const snapshot_states[] = {
	[SNAPSHOT_CREATING] = "creating",
	[SNAPSHOT_READY] = "ready",
	[SNAPSHOT_DELETING] = "deleting",
};
static_assert(ARRAY_LEN(snapshot_states) == SNAPSHOT_DELETING + 1, "a snapshot state without a name");

static const char *const run_states[] = {
	[RUN_QUEUED] = "queued",
	[RUN_RUNNING] = "running",
	[RUN_EXITED] = "exited",
	[RUN_FAILED] = "failed",
	[RUN_LOST] = "lost",
};
static_assert(ARRAY_LEN(run_states) == RUN_LOST + 1, "a run state without a name");

static const char *const file_types[] = {
	[FILE_REGULAR] = "file",
	[FILE_DIRECTORY] = "directory",
	[FILE_SYMLINK] = "symlink",
	[FILE_FIFO] = "fifo",
	[FILE_SOCKET] = "socket",
	[FILE_CHAR] = "char",
	[FILE_BLOCK] = "block",
};
static_assert(ARRAY_LEN(file_types) == FILE_BLOCK + 1, "a file type without a name");

/* A value out of range can only come from a peer's byte that was cast without a check; it gets a word, not a crash. */
static const char *name_at(const char *const *names, size_t n, unsigned value)
{
	return value < n ? names[value] : "unknown";
}

static int index_of(const char *const *names, size_t n, struct str name)
{
	for (size_t i = 0; i < n; i++)
		if (str_eqz(name, names[i]))
			return (int)i;
	return -EINVAL;
}

const char *sandbox_state_name(enum sandbox_state s)
{
	return name_at(sandbox_states, ARRAY_LEN(sandbox_states), (unsigned)s);
}

int sandbox_state_parse(struct str name, enum sandbox_state *ret)
{
	int i = index_of(sandbox_states, ARRAY_LEN(sandbox_states), name);
	if (i < 0)
		return i;
	*ret = (enum sandbox_state)i;
	return 0;
}

const char *grant_kind_name(enum grant_kind k)
{
	return name_at(grant_kinds, ARRAY_LEN(grant_kinds), (unsigned)k);
}

int grant_kind_parse(struct str name, enum grant_kind *ret)
{
	int i = index_of(grant_kinds, ARRAY_LEN(grant_kinds), name);
	if (i < 0)
		return i;
	*ret = (enum grant_kind)i;
	return 0;
}

const char *volume_state_name(enum volume_state s)
{
	return name_at(volume_states, ARRAY_LEN(volume_states), (unsigned)s);
}

int volume_state_parse(struct str name, enum volume_state *ret)
{
	int i = index_of(volume_states, ARRAY_LEN(volume_states), name);
	if (i < 0)
		return i;
	*ret = (enum volume_state)i;
	return 0;
}

const char *snapshot_state_name(enum snapshot_state s)
{
	return name_at(snapshot_states, ARRAY_LEN(snapshot_states), (unsigned)s);
}

int snapshot_state_parse(struct str name, enum snapshot_state *ret)
{
	int i = index_of(snapshot_states, ARRAY_LEN(snapshot_states), name);
	if (i < 0)
		return i;
	*ret = (enum snapshot_state)i;
	return 0;
}

const char *run_state_name(enum run_state s)
{
	return name_at(run_states, ARRAY_LEN(run_states), (unsigned)s);
}

const char *execution_end_name(enum execution_end end)
{
	static const char *const names[] = { "done", "interrupted", "timed_out", "lost" };
	return names[end];
}

int run_state_parse(struct str name, enum run_state *ret)
{
	int i = index_of(run_states, ARRAY_LEN(run_states), name);
	if (i < 0)
		return i;
	*ret = (enum run_state)i;
	return 0;
}

const char *file_type_name(enum file_type t)
{
	return name_at(file_types, ARRAY_LEN(file_types), (unsigned)t);
}
