#include "image/ref.h"

static bool lower_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool image_digest_valid(const char *s)
{
	if (!s || strlen(s) != IMAGE_DIGEST_LEN || strncmp(s, "sha256:", 7) != 0)
		return false;
	for (const char *p = s + 7; *p; p++)
		if (!lower_hex(*p))
			return false;
	return true;
}

static bool alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool image_name_valid(const char *s)
{
	if (!s || !alnum(*s) || strlen(s) > IMAGE_REF_MAX || strstr(s, "..") || strstr(s, "//"))
		return false;
	for (const char *p = s; *p; p++)
		if (!alnum(*p) && !strchr("._-/:@", *p))
			return false;
	return strncmp(s, "sha256:", 7) != 0;
}

bool image_pattern_valid(const char *s)
{
	size_t n = s ? strlen(s) : 0;
	if (n == 0 || n > IMAGE_REF_MAX)
		return false;
	if (s[n - 1] != '*')
		return image_name_valid(s);
	if (n == 1)
		return true;
	auto_free char *head = xstrndup(s, n - 1);
	return image_name_valid(head);
}

static const char *skip_prefix(const char *s, const char *prefix)
{
	size_t n = strlen(prefix);
	return strncmp(s, prefix, n) == 0 ? s + n : s;
}

char *image_ref_normalise(const char *ref)
{
	const char *s = skip_prefix(skip_prefix(ref, "docker.io/"), "index.docker.io/");
	s = skip_prefix(s, "library/");
	size_t n = strlen(s);
	const char *at = strstr(s, "@sha256:");
	if (at)
		n = (size_t)(at - s);
	if (n > 7 && memcmp(s + n - 7, ":latest", 7) == 0)
		n -= 7;
	return xstrndup(s, n);
}

int image_pattern_match(const char *pattern, const char *name)
{
	size_t n = strlen(pattern);
	if (n > 0 && pattern[n - 1] == '*')
		return strncmp(pattern, name, n - 1) == 0 ? (int)(n - 1) : -1;
	return streq(pattern, name) ? (int)n : -1;
}
