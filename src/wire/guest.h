/* The guest protocol: what the daemon and PID 1 of a sandbox say to each other. Pure codec, no I/O, shared by both ends.
 *
 * Byte for byte description: docs/protocol/guest.md. Theory of operation:
 *
 * One reliable byte stream (a unix socket, a virtio serial port) carries frames: a 16-byte head {u32 length of payload,
 * u8 type, u8 channel, u16 zero, u64 id}, little endian, then at most GUEST_PAYLOAD_MAX bytes.
 *
 * RUNS outlive a connection. The daemon names a run by a number of its choice (never reused in a sandbox). The guest keeps
 * a run's output in a window per stream until the daemon acknowledges an offset (RUN_ACK: everything before it is safe on
 * the daemon's side) and stops reading the program's pipe while the window is full: nobody's memory grows, nothing is lost.
 * After a reconnect the guest's HELLO lists the runs it knows; the daemon sends RUN_ATTACH with the offsets it has, and
 * output goes on from there. A finished run stays until RUN_RELEASE. Stdin has credit in the other direction.
 *
 * SESSIONS are shells that take commands one after another; such a command is a run with a session id.
 *
 * OPS (files, TCP connections inside, ...) are streams that die with the connection: OP_OPEN with a request, then data
 * and credit both ways, ended by OP_END with an errno and text. They are carried out by a process of the sandbox's
 * user, so a path can do no more than that user could.
 *
 * Everything the peer sends is hostile: lengths and order are checked here, and a violation ends the connection. */
#ifndef CAISSON_WIRE_GUEST_H
#define CAISSON_WIRE_GUEST_H
/* (to be completed by the guest's author; see core/link.h for what it must carry) */
#endif
