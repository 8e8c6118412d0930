/* One connection: a socket that does not block, what was said and has not gone yet, what has come and was not taken yet. This is the only place that
 * reads and writes stream sockets, and no function here waits.
 *
 * Who says frames one by one uses treadle_wire_say, _send and _hear. Who has content that shall not be copied uses treadle_wire_write and
 * treadle_wire_read, with frames that are open.
 *
 * TREADLE_PEER comes without a message: whoever knows what the other end is words it (treadle_wire_why). TREADLE_NO_MEMORY and refusals have
 * theirs. A wire that has failed stays as it is until it is closed. */
#ifndef TREADLE_WIRE_WIRE_H
#define TREADLE_WIRE_WIRE_H

#include "wire/buffer.h"
#include "wire/frame.h"

#include <sys/uio.h>

typedef struct treadle_wire {
  int socket; /* -1: none */
  int error;  /* why it is over, as errno has it; 0: the other end has closed it, if it is over */
  bool readable,
      writable; /* until the kernel says that it would wait; for those who are told once (EPOLLET), and set them then */
  treadle_wire_buffer in, out;
  treadle_wire_bytes *behind; /* behind what is in `out`; NULL: none */
  size_t behind_used;
} treadle_wire;

/* Takes over the socket, which must not block. Nothing is allocated. */
treadle_wire treadle_wire_on(int socket);
/* for_all: also where a child made by fork has the socket, too; false in such a child, which must not end its parent's connection. */
void treadle_wire_close(treadle_wire *wire, bool for_all);
/* Gives the socket away, which is the caller's then; what was not sent or taken is forgotten. */
int treadle_wire_leave(treadle_wire *wire);

/* ---- Saying ---- */

/* Behind all that was said before. The head has its type and fields; the rule's are filled in. */
treadle_status treadle_wire_say(treadle_wire *wire, const treadle_frame_rule *rule, void *head,
                                const void *content, size_t bytes);
/* The content is shared, not copied; NULL: none. Only when nothing waits. */
treadle_status treadle_wire_say_shared(treadle_wire *wire, const treadle_frame_rule *rule, void *head,
                                       treadle_wire_bytes *content);
/* Bytes that were said and have not gone. */
size_t treadle_wire_waiting(const treadle_wire *wire);
/* What poll() is asked. */
short treadle_wire_events(const treadle_wire *wire);
/* Sends of it what passes now. */
treadle_status treadle_wire_send(treadle_wire *wire);
/* The other end shall read that this is all; it may still speak. */
void treadle_wire_finish(treadle_wire *wire);

/* ---- Hearing ---- */

/* Reads what has come of the next frame, and no byte behind it. *whole_p: it is here: head_p [rule->head_bytes] and *content_p, which is valid until
 * the next read. If it is not, head_p is as in treadle_frame_read. */
treadle_status treadle_wire_hear(treadle_wire *wire, const treadle_frame_rule *rule, void *head_p,
                                 const char **content_p, bool *whole_p);
/* The next frame of what was read already, in the same way. *lacks_p: bytes that are to come before more can be said; 0: it is here. */
treadle_status treadle_wire_take(treadle_wire *wire, const treadle_frame_rule *rule, void *head_p,
                                 const char **content_p, size_t *lacks_p);
/* Reads and throws away. */
treadle_status treadle_wire_waste(treadle_wire *wire);

/* ---- Bytes without a copy ---- */

/* One write. *sent_p: this many bytes of the parts have gone; 0: none goes now. Nothing that was said may wait. */
treadle_status treadle_wire_write(treadle_wire *wire, struct iovec *parts, int count, size_t *sent_p);
/* One read: into the parts, and behind them up to `room` bytes into `in`. *got_p: of both; 0: nothing is there now. parts [count + 1]: the last place
 * is for `in`; NULL: no parts. */
treadle_status treadle_wire_read(treadle_wire *wire, struct iovec *parts, int count, size_t room,
                                 size_t *got_p);

/* Why it is over: "it has closed the connection", or the system's words. */
const char *treadle_wire_why(const treadle_wire *wire);

#endif
