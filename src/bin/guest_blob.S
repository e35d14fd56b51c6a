/* GUEST_FILE is given by the build. */
	.section .rodata
	.balign 16
	.globl guest_blob, guest_blob_end
	.hidden guest_blob, guest_blob_end
guest_blob:
	.incbin GUEST_FILE
guest_blob_end:
	.byte 0
	.section .note.GNU-stack, "", @progbits
