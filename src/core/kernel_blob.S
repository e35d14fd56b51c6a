/* The Python programs that go into sandboxes, read as C strings. The files are given by the build. */
	.section .rodata
	.globl kernel_program
	.hidden kernel_program
kernel_program:
	.incbin KERNEL_FILE
	.byte 0
	.globl script_program
	.hidden script_program
script_program:
	.incbin SCRIPT_FILE
	.byte 0
	.section .note.GNU-stack, "", @progbits
