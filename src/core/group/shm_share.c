/* Handing descriptors around, through the hub: every rank gives one, rank 0 collects them and gives all to
 * all, in batches. What a rank gets it maps and closes. When a rank is
 * missing, rank 0 tells the others, and the group is over; that one rank cannot map what it got is its own
 * failure, and the group goes on. */
#include "group/shm.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* From a rank to the hub: its own, count 1. From the hub: ranks first .. first + count - 1. A descriptor
 * comes with each size that is not 0, in order. */
typedef struct batch {
  uint32_t magic;
  int32_t status, first, count;
  uint64_t share; /* which call */
  uint64_t bytes[TREADLE_SHM_BATCH];
  char text[TREADLE_SHM_TEXT];
} batch;

static batch make_batch(const treadle_shm *shm, int first, int count, treadle_status status) {
  batch b = {
      .magic = TREADLE_SHM_MAGIC, .status = status, .first = first, .count = count, .share = shm->shares};
  if (status != TREADLE_OK) snprintf(b.text, sizeof b.text, "%s", treadle_error_message());
  return b;
}

/* Receives a batch of `rank`: descriptors[i] belongs to rank first + i, -1 where its size is 0. */
static treadle_status receive(const treadle_shm *shm, int rank, int first, int count, batch *b,
                              int *descriptors, double deadline) {
  treadle_status status = TREADLE_OK;
  int received[TREADLE_SHM_BATCH], got = TREADLE_SHM_BATCH, wanted = 0, next = 0;
  char who[24];
  snprintf(who, sizeof who, "rank %d", rank);
  TRY(treadle_shm_receive(shm->sockets[rank], b, sizeof *b, received, &got, deadline, who));
  bool ours = b->magic == TREADLE_SHM_MAGIC && b->share == shm->shares;
  for (int i = 0; i < count; i++) wanted += b->bytes[i] > 0;
  if (ours && b->status != TREADLE_OK) {
    b->text[sizeof b->text - 1] = 0;
    status = treadle_fail((treadle_status)b->status, "%s", b->text);
  } else if (!ours || b->first != first || b->count != count || wanted != got) {
    status = treadle_fail(TREADLE_PEER, "%s shared other memory than was expected", who);
  }
  for (int i = 0; i < count && status == TREADLE_OK; i++)
    descriptors[i] = b->bytes[i] ? received[next++] : -1;
  for (; next < got; next++) close(received[next]);
out:
  return status;
}

static int batch_count(const treadle_shm *shm, int first) {
  return shm->size - first < TREADLE_SHM_BATCH ? shm->size - first : TREADLE_SHM_BATCH;
}

/* The hub: descriptors[rank] and all[rank].bytes of everybody. */
static treadle_status collect(treadle_shm *shm, int *descriptors, treadle_peer_memory *all,
                              double deadline) {
  treadle_status status = TREADLE_OK;
  for (int rank = 1; rank < shm->size; rank++) {
    batch b;
    TRY(receive(shm, rank, rank, 1, &b, &descriptors[rank], deadline));
    all[rank].bytes = b.bytes[0];
  }
out:
  return status;
}

static treadle_status give_out(treadle_shm *shm, const int *descriptors, const treadle_peer_memory *all,
                               treadle_status verdict, double deadline) {
  treadle_status status = TREADLE_OK;
  for (int first = 0; first < shm->size; first += TREADLE_SHM_BATCH) {
    batch b = make_batch(shm, first, batch_count(shm, first), verdict);
    int sent[TREADLE_SHM_BATCH], count = 0;
    for (int i = 0; i < b.count && verdict == TREADLE_OK; i++) {
      b.bytes[i] = all[first + i].bytes;
      if (b.bytes[i] > 0) sent[count++] = descriptors[first + i];
    }
    for (int rank = 1; rank < shm->size; rank++) {
      char who[24];
      snprintf(who, sizeof who, "rank %d", rank);
      TRY(treadle_shm_send(shm->sockets[rank], &b, sizeof b, sent, count, deadline, who));
    }
    if (verdict != TREADLE_OK) break;
  }
out:
  return status;
}

static treadle_status map_all(int rank, int size, const treadle_device *device, const int *descriptors,
                              treadle_peer_memory *all) {
  treadle_status status = TREADLE_OK;
  for (int peer = 0; peer < size; peer++)
    if (peer != rank) {
      status = device->ops->import(descriptors[peer], all[peer].bytes, &all[peer].mapping);
      if (status != TREADLE_OK) return treadle_fail_in(status, "rank %d: ", peer);
      all[peer].base = all[peer].mapping;
    }
  return status;
}

static treadle_status share_as_hub(treadle_shm *shm, int *descriptors, treadle_peer_memory *all,
                                   double deadline) {
  treadle_status status = collect(shm, descriptors, all, deadline);
  treadle_status given = give_out(shm, descriptors, all, status, deadline);
  return status != TREADLE_OK ? status : given;
}

static treadle_status share_as_peer(treadle_shm *shm, int rank, int descriptor, size_t bytes,
                                    int *descriptors, treadle_peer_memory *all, double deadline) {
  treadle_status status = TREADLE_OK;
  batch b = make_batch(shm, rank, 1, TREADLE_OK);
  b.bytes[0] = bytes;
  TRY(treadle_shm_send(shm->sockets[0], &b, sizeof b, &descriptor, bytes > 0 ? 1 : 0, deadline, "rank 0"));
  for (int first = 0; first < shm->size; first += TREADLE_SHM_BATCH) {
    int count = batch_count(shm, first);
    TRY(receive(shm, 0, first, count, &b, descriptors + first, deadline));
    for (int i = 0; i < count; i++) all[first + i].bytes = b.bytes[i];
  }
out:
  return status;
}

static void shm_withdraw(treadle_group *group, const treadle_device *device, treadle_peer_memory *all) {
  for (int rank = 0; rank < group->size; rank++) {
    device->ops->unimport(all[rank].mapping, all[rank].bytes);
    all[rank] = (treadle_peer_memory){0};
  }
}

/* Each rank maps by the functions of its own device: all have the same. */
static treadle_status shm_publish(treadle_group *group, const treadle_offer *mine,
                                  treadle_peer_memory *all) {
  treadle_status status = TREADLE_OK;
  treadle_shm *shm = group->state;
  double deadline = treadle_clock_seconds() + group->timeout_seconds;
  int own = group->rank;
  shm->shares++;
  for (int rank = 0; rank < group->size; rank++) {
    shm->received[rank] = -1;
    all[rank] = (treadle_peer_memory){0};
  }
  if (own == 0) {
    shm->received[0] = mine->descriptor;
    all[0].bytes = mine->bytes;
    status = share_as_hub(shm, shm->received, all, deadline);
  } else {
    status = share_as_peer(shm, own, mine->descriptor, mine->bytes, shm->received, all, deadline);
  }
  if (status != TREADLE_OK) {
    treadle_group_fail(group);
    goto out;
  }
  all[own] = (treadle_peer_memory){.base = mine->base, .bytes = mine->bytes};
  TRY(map_all(own, group->size, mine->device, shm->received,
              all)); /* this rank's trouble alone; the messages are all done */
out:
  for (int rank = 0; rank < group->size; rank++)
    if (shm->received[rank] >= 0 && shm->received[rank] != mine->descriptor) close(shm->received[rank]);
  if (status != TREADLE_OK) shm_withdraw(group, mine->device, all);
  return status;
}

const treadle_link treadle_shm_link = {"shared memory", shm_publish, shm_withdraw};
