/* Ranks say where they listen in a gather of their group: by a name that only this machine has, and, where the group is on several nodes, at
 * an address of their node. */
#include "control/endpoint.h"

#include "control/blocks.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { MAGIC = 0x74726570, VERSION = 1 };
static const uint64_t MOST = (uint64_t)1 << 40; /* bytes of one message */

typedef struct words { /* of a rank */
  uint64_t name, key;  /* random; the key of rank 0 is that of all */
  char host[TREADLE_WIRE_HOST], port[TREADLE_WIRE_PORT];
} words;

static treadle_wire_address local_at(uint64_t name) {
  char text[40];
  snprintf(text, sizeof text, "treadle-rank-%016llx", (unsigned long long)name);
  return treadle_wire_local(text);
}

static treadle_status find_address(const char *host, const char *port, treadle_wire_address *at_p) {
  const int error = treadle_wire_find_one(host, port, at_p);
  if (error)
    return treadle_fail(TREADLE_PEER, "'%s' port %s is not an address: %s", host, port,
                        gai_strerror(error));
  return TREADLE_OK;
}

static treadle_status listen_at(const treadle_wire_address *at, const char *where, int *listener_p) {
  *listener_p = treadle_wire_listen(at);
  if (*listener_p < 0)
    return treadle_fail(TREADLE_SYSTEM, "this rank cannot listen at %s: %s", where, strerror(errno));
  return TREADLE_OK;
}

static treadle_status listen_for_all(treadle_endpoint *e, words *mine) {
  const treadle_wire_address local = local_at(mine->name);
  treadle_wire_address far;
  treadle_status status;
  TRY(listen_at(&local, "a name of its node", &e->listeners[0]));
  if (!e->group->nodes) return TREADLE_OK;
  snprintf(mine->host, sizeof mine->host, "%s", e->group->host ? e->group->host : "127.0.0.1");
  TRY(find_address(mine->host, "0", &far));
  TRY(listen_at(&far, mine->host, &e->listeners[1]));
  treadle_wire_name(e->listeners[1], false, NULL, mine->port);
out:
  return status;
}

static treadle_status note_addresses(treadle_endpoint *e, words *all) {
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < e->group->size; rank++) {
    all[rank].host[sizeof all->host - 1] = all[rank].port[sizeof all->port - 1] = 0;
    if (treadle_group_is_near(e->group, rank))
      e->peers[rank].at = local_at(all[rank].name);
    else
      TRY(find_address(all[rank].host, all[rank].port, &e->peers[rank].at));
  }
out:
  return status;
}

static treadle_status make(treadle_group *group, const treadle_endpoint_options *options, words *mine,
                           treadle_endpoint **endpoint_p) {
  const size_t ranks = (size_t)group->size;
  treadle_endpoint *e = *endpoint_p = treadle_alloc(sizeof *e);
  treadle_status status = TREADLE_OK;
  if (!e) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the messages of this rank");
  e->group = group;
  e->options = *options;
  e->listeners[0] = e->listeners[1] = e->wake = -1;
  e->process = getpid();
  treadle_blocks_open();
  pthread_mutex_init(&e->lock, NULL);
  e->peers = treadle_alloc_array(ranks, sizeof *e->peers);
  e->polls = treadle_alloc_array(3 + 2 * ranks + TREADLE_ENDPOINT_GUESTS, sizeof *e->polls);
  if (!e->peers || !e->polls)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the messages of %zu ranks", ranks));
  for (size_t rank = 0; rank < ranks; rank++) {
    e->peers[rank].in.socket = e->peers[rank].out.socket = -1;
    e->peers[rank].last = &e->peers[rank].first;
  }
  e->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (e->wake < 0 || getrandom(mine, offsetof(words, host), 0) != offsetof(words, host))
    TRY(treadle_fail(TREADLE_SYSTEM, "no event and no random number for the messages of this rank: %s",
                     strerror(errno)));
  TRY(listen_for_all(e, mine));
out:
  return status;
}

static void release(treadle_endpoint *e) {
  if (!e) return;
  for (int rank = 0; e->peers && rank < e->group->size; rank++) {
    treadle_wire_close(&e->peers[rank].in, false);
    treadle_wire_close(&e->peers[rank].out, false);
    treadle_endpoint_forget(&e->peers[rank]);
    treadle_endpoint_drop(e->peers[rank].letter);
    treadle_endpoint_drop(e->peers[rank].bye);
  }
  for (int i = 0; i < e->guest_count; i++) treadle_wire_close(&e->guests[i], false);
  for (int i = 0; i < 2; i++)
    if (e->listeners[i] >= 0) close(e->listeners[i]);
  if (e->wake >= 0) close(e->wake);
  pthread_mutex_destroy(&e->lock);
  treadle_free(e->peers);
  treadle_free(e->polls);
  treadle_free(e);
  treadle_blocks_close();
}

/* Rank 0 and all others are connected both ways, so that each sees the other end. */
static treadle_status greet(treadle_endpoint *e) {
  const treadle_endpoint_head head = {.frame.type = TREADLE_ENDPOINT_BEAT};
  treadle_status status = TREADLE_OK;
  if (e->group->rank) return treadle_endpoint_send(e, 0, head, NULL);
  for (int rank = 1; rank < e->group->size; rank++) TRY(treadle_endpoint_send(e, rank, head, NULL));
out:
  return status;
}

treadle_status treadle_endpoint_open(treadle_group *group, const treadle_endpoint_options *options,
                                     treadle_endpoint **endpoint_p) {
  treadle_endpoint *e = NULL;
  words mine = {0}, *all = treadle_alloc_array((size_t)group->size, sizeof *all);
  treadle_status status =
      all ? make(group, options, &mine, &e)
          : treadle_fail(TREADLE_NO_MEMORY, "no memory for the messages of %d ranks", group->size);
  *endpoint_p = NULL;
  TRY(treadle_group_agree(group, status));
  TRY(treadle_group_gather(group, &mine, sizeof mine, all));
  e->rule = (treadle_frame_rule){.magic = MAGIC,
                                 .version = VERSION,
                                 .types = TREADLE_ENDPOINT_WORDS - 1,
                                 .head_bytes = sizeof(treadle_endpoint_head),
                                 .open = true,
                                 .key = all[0].key,
                                 .most = MOST};
  status = note_addresses(e, all);
  if (!status) status = treadle_endpoint_start(e);
  TRY(treadle_group_agree(group, status));
  TRY(treadle_group_agree(group, greet(e)));
  *endpoint_p = e;
  e = NULL;
out:
  treadle_endpoint_close(e, TREADLE_OK, "");
  treadle_free(all);
  return status;
}

void treadle_endpoint_close(treadle_endpoint *e, treadle_status why, const char *message) {
  if (!e) return;
  const bool speaks =
      e->runs && e->process == getpid(); /* a child made by fork has its parent's connections */
  for (int rank = 0; speaks && rank < e->group->size; rank++) {
    const treadle_endpoint_head bye = {.frame.type = TREADLE_ENDPOINT_BYE, .status = (int32_t)why};
    pthread_mutex_lock(&e->lock);
    const bool connected = e->peers[rank].out.socket >= 0;
    pthread_mutex_unlock(&e->lock);
    if (connected) (void)treadle_endpoint_send_text(e, rank, bye, message);
  }
  treadle_endpoint_stop(e);
  release(e);
}
