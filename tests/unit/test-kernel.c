#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "image/kernel.h"

/* A bzImage with two set-up sectors and a payload at 0x20 behind them that claims to be n bytes long; it is `payload`, if it is not
 * longer than the room. */
static struct str bzimage(char *room, size_t size, const void *payload, uint32_t n)
{
	uint32_t offset = 0x20;

	memset(room, 0, size);
	room[0x1f1] = 2;
	memcpy(room + 0x202, "HdrS\x0f\x02", 6);
	memcpy(room + 0x248, &offset, 4);
	memcpy(room + 0x24c, &n, 4);
	if (n <= size - 3 * 512 - offset)
		memcpy(room + 3 * 512 + offset, payload, n);
	return (struct str){ room, size };
}

static void the_payload_is_found(void **state)
{
	(void)state;
	static char room[4096];
	struct str p;
	const char *program;

	assert_int_equal(kernel_payload(bzimage(room, sizeof room, "\xfd" "7zXZ\0abcdSIZE", 14), &p, &program), 0);
	assert_string_equal(program, "xz");
	assert_true(str_eq(p, (struct str){ "\xfd" "7zXZ\0abcd", 10 })); /* without the size behind it */
	assert_int_equal(kernel_payload(bzimage(room, sizeof room, "\x1f\x8b\x08" "abcdefgh", 11), &p, &program), 0);
	assert_string_equal(program, "gzip");
	assert_int_equal(p.n, 11); /* gzip's own */
	assert_int_equal(kernel_payload(bzimage(room, sizeof room, "\x02\x21\x4c\x18" "abcdSIZE", 12), &p, &program), 0);
	assert_string_equal(program, "lz4");
	assert_int_equal(p.n, 8);
}

static void what_is_no_bzimage_is_refused(void **state)
{
	(void)state;
	static char room[4096];
	struct str p, image = bzimage(room, sizeof room, "\xfd" "7zXZ\0abcd", 10);
	const char *program;

	for (size_t n = 0; n < 0x250; n++)
		assert_int_equal(kernel_payload((struct str){ room, n }, &p, &program), -EINVAL);
	image.n = 3 * 512 + 0x20 + 9; /* one byte of the payload is missing */
	assert_int_equal(kernel_payload(image, &p, &program), -EINVAL);
	assert_int_equal(kernel_payload(bzimage(room, sizeof room, "", UINT32_MAX), &p, &program), -EINVAL);
	assert_int_equal(kernel_payload(bzimage(room, sizeof room, "unknown...", 10), &p, &program), -EOPNOTSUPP);
	assert_int_equal(kernel_payload(bzimage(room, sizeof room, "\xfd" "7zXZ\0", 6), &p, &program), -EOPNOTSUPP);
	(void)bzimage(room, sizeof room, "\xfd" "7zXZ\0abcd", 10);
	room[0x206] = 7; /* protocol 2.07 did not tell */
	assert_int_equal(kernel_payload((struct str){ room, sizeof room }, &p, &program), -EINVAL);
}

struct tiny_elf {
	Elf64_Ehdr head;
	Elf64_Phdr part;
	Elf64_Nhdr other;
	char other_name[8], other_data[4];
	Elf64_Nhdr note;
	char name[4], data[8];
};

static struct tiny_elf tiny(void)
{
	struct tiny_elf t = {
		.head = { .e_machine = EM_X86_64, .e_phoff = offsetof(struct tiny_elf, part), .e_phnum = 1 },
		.part = { .p_type = PT_NOTE, .p_offset = offsetof(struct tiny_elf, other), .p_filesz = sizeof t - offsetof(struct tiny_elf, other) },
		.other = { .n_namesz = 6, .n_descsz = 2, .n_type = 18 },
		.other_name = "Linux",
		.note = { .n_namesz = 4, .n_descsz = 8, .n_type = 18 },
		.name = "Xen",
	};
	memcpy(t.head.e_ident, ELFMAG "\x02", 5);
	return t;
}

static bool pvh(const struct tiny_elf *t, size_t n)
{
	return kernel_has_pvh((struct str){ (const char *)t, n });
}

static void the_pvh_note_is_found(void **state)
{
	(void)state;
	struct tiny_elf t = tiny();

	assert_true(pvh(&t, sizeof t));
	for (size_t n = 0; n < sizeof t; n++)
		assert_false(pvh(&t, n)); /* the segment is longer than the file */
	t.note.n_type = 17;
	assert_false(pvh(&t, sizeof t));
	t = tiny();
	t.head.e_phoff = UINT64_MAX;
	assert_false(pvh(&t, sizeof t));
	t = tiny();
	t.part.p_filesz = UINT64_MAX;
	assert_false(pvh(&t, sizeof t));
	t = tiny();
	t.other.n_descsz = UINT32_MAX;
	assert_false(pvh(&t, sizeof t));
}

static void names_of_modules(void **state)
{
	(void)state;
	char name[64];

	assert_true(kernel_module_name("virtio-rng.ko", name));
	assert_string_equal(name, "virtio_rng");
	assert_true(kernel_module_name("erofs.ko.xz", name));
	assert_string_equal(name, "erofs");
	assert_false(kernel_module_name("erofs.ko.exe", name));
	assert_false(kernel_module_name(".ko", name));
	assert_false(kernel_module_name("modules.order", name));
}

static void what_a_module_depends_on(void **state)
{
	(void)state;
	static const char info[] = "license=GPL\0depends=virtio,virtio_ring\0name=x", none[] = "xdepends=y\0license=GPL";
	auto_free char *two = kernel_module_depends((struct str){ info, sizeof info });
	auto_free char *zero = kernel_module_depends((struct str){ none, sizeof none });
	auto_free char *cut = kernel_module_depends((struct str){ info, 12 + 12 });
	auto_free char *empty = kernel_module_depends((struct str){ NULL, 0 });

	assert_string_equal(two, "virtio,virtio_ring");
	assert_string_equal(zero, "");
	assert_string_equal(cut, "virt");
	assert_string_equal(empty, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_payload_is_found),	 cmocka_unit_test(what_is_no_bzimage_is_refused),
		cmocka_unit_test(the_pvh_note_is_found), cmocka_unit_test(names_of_modules),
		cmocka_unit_test(what_a_module_depends_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
