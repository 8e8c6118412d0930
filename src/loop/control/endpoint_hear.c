/* What comes: a head, and then the content, which is read into the memory where it stays. In the endpoint's thread. */
#include "control/endpoint.h"

#include "control/blocks.h"

#include "base/clock.h"

#include <string.h>

enum { AHEAD = 16 << 10 }; /* bytes that are read behind what is needed now */

void treadle_endpoint_drop(treadle_endpoint_letter *letter) {
  if (letter && atomic_fetch_sub(&letter->users, 1) == 1) treadle_block_give(letter);
}

/* Memory that is not touched before the content is there. */
static treadle_endpoint_letter *make_letter(const treadle_endpoint_head *head) {
  const uint64_t length = head->frame.bytes;
  treadle_endpoint_letter *letter =
      length > SIZE_MAX / 4 ? NULL : treadle_block_take(sizeof *letter + (size_t)length);
  if (!letter) return NULL;
  letter->next = NULL;
  letter->head = *head;
  atomic_init(&letter->users, 1);
  letter->length = (size_t)length;
  return letter;
}

/* Goes on with what comes now: TREADLE_OK and *whole_p, when all of it is here. */
static treadle_status read_head(treadle_endpoint *e, treadle_endpoint_peer *peer, bool *here_p) {
  treadle_endpoint_head head;
  const char *content;
  size_t lacks, got = 1;
  treadle_status status;
  for (;;) {
    TRY(treadle_wire_take(&peer->in, &e->rule, &head, &content, &lacks));
    *here_p = !lacks;
    if (*here_p || !got) break;
    TRY(treadle_wire_read(&peer->in, NULL, 0, lacks > AHEAD ? lacks : AHEAD, &got));
    if (got) peer->heard = treadle_clock_seconds();
  }
  if (!*here_p) goto out;
  peer->letter = make_letter(&head);
  if (!peer->letter) status = treadle_fail(TREADLE_NO_MEMORY, "memory is out for what it says");
  peer->got = 0;
out:
  return status;
}

static treadle_status read_content(treadle_endpoint_peer *peer, bool *whole_p) {
  treadle_endpoint_letter *letter = peer->letter;
  const size_t ahead = treadle_wire_buffer_used(&peer->in.in), lacks = letter->length - peer->got;
  const size_t first = ahead < lacks ? ahead : lacks;
  treadle_status status = TREADLE_OK;
  if (first) memcpy(letter->bytes + peer->got, peer->in.in.bytes + peer->in.in.begun, first);
  if (first) treadle_wire_buffer_drop(&peer->in.in, first);
  peer->got += first;
  while (peer->got < letter->length) {
    struct iovec parts[2] = {{letter->bytes + peer->got, letter->length - peer->got}};
    size_t got;
    TRY(treadle_wire_read(&peer->in, parts, 1, 0, &got));
    if (!got) break;
    peer->got += got;
    peer->heard = treadle_clock_seconds();
  }
  *whole_p = peer->got == letter->length;
out:
  return status;
}

/* The next letter, when it is whole; NULL: more is to come. */
static treadle_status read_letter(treadle_endpoint *e, treadle_endpoint_peer *peer,
                                  treadle_endpoint_letter **letter_p) {
  bool here = peer->letter != NULL, whole = false;
  treadle_status status = TREADLE_OK;
  *letter_p = NULL;
  if (!here) TRY(read_head(e, peer, &here));
  if (here) TRY(read_content(peer, &whole));
  if (!whole) goto out;
  *letter_p = peer->letter;
  peer->letter = NULL;
out:
  return status;
}

static void leave(treadle_endpoint *e, int rank, treadle_endpoint_letter *bye) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  if (peer->bye) treadle_endpoint_drop(bye);
  pthread_mutex_lock(&e->lock);
  peer->left = true;
  if (!peer->bye) peer->bye = bye;
  pthread_mutex_unlock(&e->lock);
}

/* One that has failed says so in a text. */
static bool is_status(const treadle_endpoint_head *head) {
  if (!head->status) return true;
  return treadle_status_is_failure((treadle_status)head->status) &&
         head->frame.bytes < TREADLE_GROUP_MESSAGE * 4;
}

static bool take(treadle_endpoint *e, int rank, treadle_endpoint_letter *letter) {
  const uint32_t type = letter->head.frame.type;
  const bool right =
      letter->head.rank == rank && type != TREADLE_ENDPOINT_HELLO && is_status(&letter->head);
  if (right && type >= TREADLE_ENDPOINT_CALL) return e->options.take(e->options.context, letter);
  if (right && type == TREADLE_ENDPOINT_BYE)
    leave(e, rank, letter);
  else
    treadle_endpoint_drop(letter);
  return right;
}

void treadle_endpoint_hear(treadle_endpoint *e, int rank) {
  treadle_endpoint_peer *peer = &e->peers[rank];
  treadle_endpoint_letter *letter;
  do {
    const treadle_status status = peer->in.socket < 0 ? TREADLE_PEER : read_letter(e, peer, &letter);
    if (peer->in.socket < 0) return;
    if (status == TREADLE_PEER)
      treadle_endpoint_lose(e, rank, treadle_wire_why(&peer->in));
    else if (status)
      treadle_endpoint_lose(e, rank, treadle_error_message());
    else if (letter && !take(e, rank, letter))
      treadle_endpoint_lose(e, rank, "it has said something that is not of this version of treadle");
  } while (peer->in.socket >= 0 && letter);
}

/* ---- Guests ---- */

void treadle_endpoint_drop_guest(treadle_endpoint *e, int i) {
  treadle_wire_close(&e->guests[i], false);
  e->guests[i] = e->guests[--e->guest_count];
}

/* Who is connected one way is connected both ways, so that each sees whether the other lives. */
static void answer(treadle_endpoint *e, int rank) {
  pthread_mutex_lock(&e->lock);
  const bool connected = e->peers[rank].out.socket >= 0;
  pthread_mutex_unlock(&e->lock);
  if (!connected)
    (void)treadle_endpoint_send(e, rank, (treadle_endpoint_head){.frame.type = TREADLE_ENDPOINT_BEAT},
                                NULL);
}

/* Its first word says which rank it is; strangers are dropped. */
void treadle_endpoint_hear_guest(treadle_endpoint *e, int i) {
  treadle_endpoint_head head;
  const char *content;
  bool whole;
  const treadle_status status = treadle_wire_hear(&e->guests[i], &e->rule, &head, &content, &whole);
  if (!status && !whole) return;
  const bool known = !status && head.frame.type == TREADLE_ENDPOINT_HELLO && !head.frame.bytes &&
                     head.rank >= 0 && head.rank < e->group->size && e->peers[head.rank].in.socket < 0 &&
                     !e->peers[head.rank].lost;
  if (known) {
    e->peers[head.rank].in = e->guests[i];
    e->peers[head.rank].heard = treadle_clock_seconds();
    e->guests[i] = (treadle_wire){.socket = -1};
  }
  treadle_endpoint_drop_guest(e, i);
  if (known) answer(e, head.rank);
  if (known) treadle_endpoint_hear(e, head.rank);
}
