/* References come from clients: the text of one, normalised and held against a pattern. First line the reference, second the
 * pattern. */
#include "image/ref.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	auto_free char *text = xstrndup((const char *)data, size);
	char *pattern = strchr(text, '\n');
	if (pattern)
		*pattern++ = 0;
	auto_free char *once = image_ref_normalise(text);
	assert(strlen(once) <= strlen(text));
	if (image_name_valid(text))
		assert(!strstr(text, "..") && text[0] != '/' && !image_digest_valid(text));
	if (pattern && image_pattern_valid(pattern)) {
		int n = image_pattern_match(pattern, once);
		assert(n <= (int)strlen(once) && (n < 0 || strncmp(once, pattern, (size_t)n) == 0));
	}
	return 0;
}
