/* Each message goes in pieces, one net message after the other, so that a time limit is of a piece and not of what may be many
 * gigabytes. Messages of different ranks move independently.
 *
 * A rank says two words in its line, which couriers carry (group/courier.h):
 *
 *   SETTLED  barriers << 8 | status: after that many barriers it sends and receives no more, and how it fared. A rank that
 *            failed says so here: without this word a peer that waits for its message would wait for the time limit.
 *   MOVED    pieces so far, of all messages. Who waits for a rank that is busy with others sees that it is not silent.
 *
 * Between two uses all ranks meet, so the number of barriers names a use. The net is closed after a settle that failed, on all
 * ranks: nothing of that use can come later. */
#include "control/mailbox.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread_watch.h"
#include "net/net.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PIECE = 4 << 20, SETTLED = TREADLE_GROUP_WORDS_OF_CARRY, MOVED };
_Static_assert((int)MOVED < (int)TREADLE_GROUP_WORDS, "a line has both words");
static const double LOOK_EVERY = 10e-3, PAUSE = 1e-3, HEARSAY = 0.5; /* seconds */
static char doing[] = "a message between nodes";

/* What a rank says of its net. */
typedef struct net_words {
  int32_t status; /* not TREADLE_OK: it has none; the text says why */
  uint32_t bytes; /* of its address */
  char text[TREADLE_GROUP_MESSAGE];
  char name[32]; /* of its row */
  char address[2048];
} net_words;
_Static_assert(sizeof(net_words) <= TREADLE_GROUP_PAYLOAD, "what is said fits");

struct treadle_mailbox_peer {
  bool connected;
  uint64_t sent, received; /* pieces: their tags */
  uint32_t bytes;
  char address[sizeof((net_words *)0)->address];
};

static uint64_t word_of(const treadle_mailbox *box, int rank, int which) {
  return atomic_load(&box->group->control->lines[rank].words[which]);
}

static void say_word(const treadle_mailbox *box, int which, uint64_t value) {
  treadle_group_publish(box->group, &treadle_group_line(box->group)->words[which], value);
}

static void close_net(treadle_mailbox *box) {
  if (box->net) box->ops->close(box->net);
  treadle_free(box->peers);
  treadle_free(box->letters);
  box->net = NULL;
  box->peers = NULL;
  box->letters = NULL;
}

void treadle_mailbox_release(treadle_mailbox *box) {
  close_net(box);
  box->lost = false;
}

/* This rank alone knows that the group cannot go on. */
static treadle_status lose(treadle_mailbox *box, treadle_status status) {
  box->lost = true;
  treadle_group_fail(box->group);
  return status;
}

/* ---- Opening ---- */

static treadle_status open_net(treadle_mailbox *box, net_words *words) {
  const treadle_group *group = box->group;
  const treadle_net_options options = {.struct_size = sizeof options,
                                       .rank = group->rank,
                                       .ranks = group->size,
                                       .host = group->host,
                                       .context = group->net_context};
  treadle_status status = TREADLE_OK;
  size_t bytes;
  box->ops = group->net_ops ? group->net_ops : &treadle_net_tcp;
  box->peers = treadle_alloc_array((size_t)group->size, sizeof *box->peers);
  box->letters = treadle_alloc_array((size_t)group->size, sizeof *box->letters);
  if (!box->peers || !box->letters)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for addresses of %d ranks", group->size));
  snprintf(words->name, sizeof words->name, "%s", box->ops->name);
  TRY(box->ops->open(&options, &box->net));
  TRY(box->ops->address(box->net, words->address, sizeof words->address, &bytes));
  words->bytes = (uint32_t)bytes;
out:
  return status;
}

static treadle_status hear(treadle_mailbox *box) {
  treadle_status status = TREADLE_OK;
  const int ranks = box->group->size;
  for (int rank = 0; rank < ranks; rank++) { /* first of all: this rank may be the one that has none */
    const net_words *words = treadle_group_said(box->group, rank);
    if (words->status)
      TRY(treadle_fail((treadle_status)words->status, "rank %d: %.*s",
                       treadle_group_called(box->group, rank), (int)sizeof words->text - 1, words->text));
  }
  for (int rank = 0; rank < ranks; rank++) {
    const net_words *words = treadle_group_said(box->group, rank);
    treadle_mailbox_peer *peer = &box->peers[rank];
    if (strncmp(words->name, box->ops->name, sizeof words->name - 1) != 0)
      TRY(treadle_fail(TREADLE_DIFFERENT, "rank %d has net %.*s, and rank %d net %s: all need the same",
                       treadle_group_called(box->group, rank), (int)sizeof words->name - 1, words->name,
                       treadle_group_called(box->group, box->group->rank), box->ops->name));
    if (words->bytes > sizeof peer->address)
      TRY(treadle_fail(TREADLE_PEER, "rank %d has said an address of %u bytes",
                       treadle_group_called(box->group, rank), (unsigned)words->bytes));
    peer->bytes = words->bytes;
    memcpy(peer->address, words->address, words->bytes);
  }
out:
  return status;
}

treadle_status treadle_mailbox_open(treadle_mailbox *box, treadle_group *group) {
  net_words words = {0};
  treadle_status status = TREADLE_OK;
  if (box->net) return TREADLE_OK;
  box->group = group;
  words.status = open_net(box, &words);
  if (words.status) snprintf(words.text, sizeof words.text, "%s", treadle_error_message());
  status = treadle_group_say(group, &words, sizeof words);
  box->lost = status != TREADLE_OK;
  TRY(status);
  TRY(hear(box));
out:
  return status;
}

/* ---- Looking at peers ---- */

/* Has it failed in this use? */
static treadle_status check_settled(const treadle_mailbox *box, int rank) {
  const uint64_t word = word_of(box, rank, SETTLED);
  const treadle_status its = (treadle_status) - (int)(word & 0xff);
  if (word >> 8 != box->group->barriers || its == TREADLE_OK) return TREADLE_OK;
  return treadle_fail(its, "%s: rank %d has given up: %s", doing, treadle_group_called(box->group, rank),
                      treadle_status_text(its));
}

static treadle_status look_at(treadle_mailbox *box, treadle_letter *letter) {
  const double now = treadle_clock_seconds();
  const uint64_t moved = word_of(box, letter->rank, MOVED);
  treadle_status status = treadle_group_look(box->group, letter->rank, doing);
  if (status) return lose(box, status);
  TRY(check_settled(box, letter->rank));
  if (moved != letter->moved) letter->since = now;
  letter->moved = moved;
  if (now - letter->since >= box->group->timeout_seconds)
    status = lose(box, treadle_fail(TREADLE_PEER, "%s: waited %.1f s for rank %d, which is silent", doing,
                                    now - letter->since, treadle_group_called(box->group, letter->rank)));
out:
  return status;
}

/* A rank that cannot be reached may have failed: its line says why, a moment later. */
static treadle_status explain(treadle_mailbox *box, treadle_letter *letter, treadle_status status) {
  char message[TREADLE_GROUP_MESSAGE];
  const double limit = box->group->timeout_seconds / 10;
  const double end = treadle_clock_seconds() + (limit < HEARSAY ? limit : HEARSAY);
  if (status != TREADLE_PEER) return status;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  while (treadle_clock_seconds() < end) {
    treadle_status said = look_at(box, letter);
    if (said) return said;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
  return treadle_fail(TREADLE_PEER, "%s: rank %d: %s", doing,
                      treadle_group_called(box->group, letter->rank), message);
}

/* ---- Moving ---- */

static treadle_status start_piece(treadle_mailbox *box, treadle_letter *letter) {
  treadle_mailbox_peer *peer = &box->peers[letter->rank];
  treadle_status status = TREADLE_OK;
  const size_t left = letter->length - letter->done;
  letter->piece = left < PIECE ? left : PIECE;
  const treadle_net_part part = {left ? (char *)letter->bytes + letter->done : NULL, letter->piece};
  const int parts = left > 0;
  if (!peer->connected) TRY(box->ops->connect(box->net, letter->rank, peer->address, peer->bytes));
  peer->connected = true;
  if (letter->receives)
    status = box->ops->receive(box->net, letter->rank, peer->received++ % TREADLE_NET_TAGS, &part, parts,
                               &letter->request);
  else
    status = box->ops->send(box->net, letter->rank, peer->sent++ % TREADLE_NET_TAGS, &part, parts,
                            &letter->request);
out:
  return status;
}

/* Tests its piece; if that has ended, starts the next one. *moved_p: it has. */
static treadle_status advance(treadle_mailbox *box, treadle_letter *letter, bool *moved_p) {
  treadle_status status = TREADLE_OK;
  bool done = false;
  if (!letter->request) TRY(start_piece(box, letter));
  status = box->ops->test(box->net, letter->request, &done);
  if (status || done) letter->request = NULL;
  if (status || !done) goto out;
  letter->done += letter->piece;
  letter->ended = letter->done == letter->length;
  letter->since = treadle_clock_seconds();
  say_word(box, MOVED, word_of(box, box->group->rank, MOVED) + 1);
  *moved_p = true;
out:
  return status;
}

/* No byte passes any more. */
static bool is_cut(const treadle_mailbox *box) { return atomic_load(&box->group->control->cut) != 0; }

/* Advances each letter as far as it goes now. *left_p: those that have not ended. */
static treadle_status advance_all(treadle_mailbox *box, int count, int *left_p) {
  treadle_status status = TREADLE_OK;
  for (bool moved = true; moved;) {
    moved = false;
    *left_p = 0;
    for (int i = 0; i < count; i++) {
      treadle_letter *letter = &box->letters[i];
      if (!letter->ended && !is_cut(box)) TRY(explain(box, letter, advance(box, letter, &moved)));
      *left_p += !letter->ended;
    }
  }
out:
  return status;
}

static treadle_status look_at_all(treadle_mailbox *box, int count) {
  treadle_status status = treadle_thread_ask(doing);
  if (status) return lose(box, status);
  for (int i = 0; i < count; i++)
    if (!box->letters[i].ended) TRY(look_at(box, &box->letters[i]));
out:
  return status;
}

treadle_status treadle_mailbox_move(treadle_mailbox *box, int count) {
  treadle_group *group = box->group;
  treadle_status status = TREADLE_OK;
  double now = treadle_clock_seconds(), next_look = now + LOOK_EVERY;
  if (group->delay) group->delay(group->delay_context, doing);
  assert(box->net);
  for (int i = 0; i < count; i++) {
    treadle_letter *letter = &box->letters[i];
    assert(letter->rank >= 0 && letter->rank < group->size && letter->rank != group->rank);
    *letter =
        (treadle_letter){letter->rank,   letter->receives, letter->bytes,
                         letter->length, .since = now,     .moved = word_of(box, letter->rank, MOVED)};
  }
  for (int left = count;;) {
    TRY(advance_all(box, count, &left));
    if (left == 0) break;
    now = treadle_clock_seconds();
    if (now >= next_look) {
      TRY(look_at_all(box, count));
      next_look = now + LOOK_EVERY;
    }
    if (is_cut(box))
      nanosleep(&(struct timespec){.tv_nsec = (long)(PAUSE * 1e9)}, NULL);
    else
      box->ops->wait(box->net, PAUSE);
  }
out:
  return status;
}

treadle_status treadle_mailbox_send(treadle_mailbox *box, int rank, void *bytes, size_t length) {
  box->letters[0] = (treadle_letter){.rank = rank, .bytes = bytes, .length = length};
  return treadle_mailbox_move(box, 1);
}

treadle_status treadle_mailbox_receive(treadle_mailbox *box, int rank, void *bytes, size_t length) {
  box->letters[0] = (treadle_letter){.rank = rank, .receives = true, .bytes = bytes, .length = length};
  return treadle_mailbox_move(box, 1);
}

treadle_status treadle_mailbox_send_all(treadle_mailbox *box, void *bytes, size_t length) {
  int count = 0;
  for (int rank = 0; rank < box->group->size; rank++)
    if (rank != box->group->rank)
      box->letters[count++] = (treadle_letter){.rank = rank, .bytes = bytes, .length = length};
  return treadle_mailbox_move(box, count);
}

/* ---- Settling ---- */

static treadle_status ask_thread(void *context) {
  (void)context;
  return treadle_thread_ask(doing);
}

/* As long as a rank moves messages it may take its time. */
static treadle_status wait_for(treadle_mailbox *box, int rank) {
  const _Atomic uint64_t *word = &box->group->control->lines[rank].words[SETTLED];
  treadle_status status;
  uint64_t moved;
  do {
    moved = word_of(box, rank, MOVED);
    status =
        treadle_group_wait(box->group, rank, word, box->group->barriers << 8,
                           &(treadle_watch){ask_thread, NULL}, treadle_group_deadline(box->group), doing);
  } while (status == TREADLE_TIMEOUT && moved != word_of(box, rank, MOVED));
  return status ? lose(box, status) : TREADLE_OK;
}

treadle_status treadle_mailbox_settle(treadle_mailbox *box, treadle_status mine) {
  char why[TREADLE_GROUP_MESSAGE] = "";
  treadle_status status = mine;
  if (box->lost) goto out;
  if (mine) snprintf(why, sizeof why, "%s", treadle_error_message());
  say_word(box, SETTLED, box->group->barriers << 8 | (uint64_t)-mine);
  for (int rank = 0; rank < box->group->size; rank++)
    if (rank != box->group->rank) TRY(wait_for(box, rank));
  TRY(treadle_group_agree(box->group, mine ? treadle_fail(mine, "%s", why) : TREADLE_OK));
out:
  if (status) close_net(box);
  return status;
}
