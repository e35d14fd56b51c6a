/* KERNEL_FILE is given by the build; read as a C string. */
	.section .rodata
	.globl kernel_program
	.hidden kernel_program
kernel_program:
	.incbin KERNEL_FILE
	.byte 0
	.section .note.GNU-stack, "", @progbits
