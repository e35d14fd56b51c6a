/* What a client sends of an image to be built, and is shown of it. */
#include "dialect/daytona/build.h"

#include <errno.h>

#define HASHES_MAX 256

int build_info(const json_t *info, struct dockerfile *f, char ***hashes, const char **text, struct err *e)
{
	if (!json_is_object(info))
		return err_set(e, ERR_INVALID, EINVAL, "buildInfo must be an object");
	int rc = want_text(info, "dockerfileContent", text, e);
	if (rc >= 0 && !*text)
		rc = err_set(e, ERR_INVALID, EINVAL, "buildInfo.dockerfileContent is required");
	if (rc >= 0)
		rc = want_texts(info, "contextHashes", hashes, e);
	size_t n = 0;
	while (rc >= 0 && *hashes && (*hashes)[n])
		n++;
	if (n > HASHES_MAX)
		rc = err_set(e, ERR_TOO_LARGE, E2BIG, "buildInfo.contextHashes: more than %d", HASHES_MAX);
	if (rc >= 0)
		rc = dockerfile_parse(str_of(*text), f, e);
	if (rc >= 0 && f->needs_context && n == 0)
		rc = err_set(e, ERR_INVALID, EINVAL, "Dockerfile: COPY needs files, and buildInfo.contextHashes names none");
	return rc < 0 ? rc : 0;
}

json_t *build_info_json(const char *text, const char *ref)
{
	char now[25];
	format_iso8601(now_unix_ms(), now);
	return json_pack("{s:s, s:s, s:s, s:s}", "dockerfileContent", text, "createdAt", now, "updatedAt", now, "snapshotRef", ref);
}
