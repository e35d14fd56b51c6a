/* The commands, one a file. */
#ifndef CAISSON_CLI_COMMANDS_H
#define CAISSON_CLI_COMMANDS_H

#include "cli/cli.h"

extern const struct command command_run, command_exec, command_create, command_ls, command_cp, command_logs, command_stop, command_start,
	command_rm, command_image, command_key, command_secret, command_pool, command_permissions, command_serve, command_mcp, command_info, command_doctor, command_version, command_help,
	command_snapshot, command_fork, command_pause, command_resume, command_audit, command_webhook, command_publish, command_unpublish;

#endif
