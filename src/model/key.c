#include "model/key.h"

#include <ctype.h>

bool key_is_in(struct str text)
{
	const size_t prefix = strlen(KEY_PREFIX);

	for (size_t at = 0; text.n - at >= prefix + KEY_DIGITS; at++) {
		size_t digits = 0;
		if (memcmp(text.p + at, KEY_PREFIX, prefix) != 0)
			continue;
		while (digits < KEY_DIGITS && isxdigit((unsigned char)text.p[at + prefix + digits]))
			digits++;
		if (digits == KEY_DIGITS)
			return true;
	}
	return false;
}
