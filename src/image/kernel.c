#include "image/kernel.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>

enum { PVH_NOTE = 18 }; /* XEN_ELFNOTE_PHYS32_ENTRY */

static bool read_at(struct str s, uint64_t at, void *to, size_t n)
{
	if (at > s.n || n > s.n - at)
		return false;
	memcpy(to, s.p + at, n);
	return true;
}

int kernel_payload(struct str bzimage, struct str *ret_payload, const char **ret_program)
{
	static const struct {
		const char *magic;
		size_t n;
		const char *program;
		bool size_behind; /* the kernel's build puts four bytes with the unpacked size behind it; gzip has them itself */
	} ways[] = {
		{ "\xfd" "7zXZ\0", 6, "xz", true },
		{ "\x28\xb5\x2f\xfd", 4, "zstd", true },
		{ "\x1f\x8b\x08", 3, "gzip", false },
		{ "\x02\x21\x4c\x18", 4, "lz4", true }, /* its legacy format; Debian 12's cloud kernel */
		{ "BZh", 3, "bzip2", true },
	};
	uint8_t sectors;
	uint16_t version;
	uint32_t offset, length;
	char magic[4];

	/* the offsets are of the kernel's boot protocol, which has told the payload since version 2.08 */
	if (!read_at(bzimage, 0x1f1, &sectors, 1) || !read_at(bzimage, 0x202, magic, 4) || memcmp(magic, "HdrS", 4) != 0 ||
	    !read_at(bzimage, 0x206, &version, 2) || version < 0x208 || !read_at(bzimage, 0x248, &offset, 4) || !read_at(bzimage, 0x24c, &length, 4))
		return -EINVAL;
	uint64_t at = ((uint64_t)(sectors ? sectors : 4) + 1) * 512 + offset;
	if (at > bzimage.n || length > bzimage.n - at)
		return -EINVAL;
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		if (length < ways[i].n + 4 || memcmp(bzimage.p + at, ways[i].magic, ways[i].n) != 0)
			continue;
		*ret_payload = (struct str){ bzimage.p + at, length - (ways[i].size_behind ? 4 : 0) };
		*ret_program = ways[i].program;
		return 0;
	}
	return -EOPNOTSUPP;
}

static bool note_is_there(struct str s, uint64_t at, uint64_t end)
{
	Elf64_Nhdr n;

	while (at < end && read_at(s, at, &n, sizeof n)) {
		char name[4];
		if (n.n_type == PVH_NOTE && n.n_namesz == 4 && read_at(s, at + sizeof n, name, 4) && memcmp(name, "Xen", 4) == 0)
			return true;
		at += sizeof n + (((uint64_t)n.n_namesz + 3) & ~3ull) + (((uint64_t)n.n_descsz + 3) & ~3ull);
	}
	return false;
}

bool kernel_has_pvh(struct str vmlinux)
{
	Elf64_Ehdr head;
	Elf64_Phdr p;

	if (!read_at(vmlinux, 0, &head, sizeof head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_machine != EM_X86_64)
		return false;
	for (unsigned i = 0; i < head.e_phnum; i++) {
		if (head.e_phoff > vmlinux.n || !read_at(vmlinux, head.e_phoff + (uint64_t)i * sizeof p, &p, sizeof p))
			return false;
		if (p.p_type == PT_NOTE && p.p_offset <= vmlinux.n && p.p_filesz <= vmlinux.n - p.p_offset &&
		    note_is_there(vmlinux, p.p_offset, p.p_offset + p.p_filesz))
			return true;
	}
	return false;
}

bool kernel_module_name(const char *file, char ret_name[static 64])
{
	const char *end = strstr(file, ".ko");

	if (!end || end == file || (end[3] && !streq(end + 3, ".xz") && !streq(end + 3, ".zst") && !streq(end + 3, ".gz")) || end - file >= 64)
		return false;
	snprintf(ret_name, 64, "%.*s", (int)(end - file), file);
	for (char *p = ret_name; *p; p++)
		if (*p == '-')
			*p = '_';
	return true;
}

char *kernel_module_depends(struct str module)
{
	static const char key[] = "\0depends="; /* lines of .modinfo are strings one behind another */
	const size_t n = sizeof key - 1;
	const char *at = module.n ? memmem(module.p, module.n, key, n) : NULL;

	if (!at)
		return xstrdup("");
	at += n;
	return xstrndup(at, strnlen(at, MIN((size_t)(module.p + module.n - at), (size_t)4096)));
}
