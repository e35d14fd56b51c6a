/* What a program named git in a sandbox prints. First byte: which reader; the rest is its output. */
#include "dialect/daytona/git.h"

#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int (*const readers[])(struct str, json_t **) = { git_read_status, git_read_branches, git_read_remotes, git_read_history, git_read_hash };
	if (size == 0)
		return 0;
	struct str out = { (const char *)data + 1, size - 1 };
	json_t *o = NULL;
	int rc = readers[data[0] % ARRAY_LEN(readers)](out, &o);
	assert(rc == 0 ? json_is_object(o) || json_is_array(o) : rc == -EBADMSG && !o);
	json_decref(o);
	auto_free char *message = git_message(out, "secret");
	assert(!strstr(message, "secret"));
	int status = 0;
	const char *code = NULL;
	git_classify(message, &status, &code);
	assert(status >= 400 && code);
	return 0;
}
