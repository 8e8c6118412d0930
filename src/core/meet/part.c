/* On one node a part meets by its name; over several nodes by a store that its first rank serves. */
#include "meet/part.h"

#include "base/port.h"
#include "group/shm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

treadle_status treadle_part_draw_name(char name[TREADLE_PART_NAME]) {
  unsigned char bytes[(TREADLE_PART_NAME - 1) / 2];
  name[0] = 0;
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
    return treadle_fail(TREADLE_SYSTEM, "group: there are no random numbers: %s", strerror(errno));
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(name + 2 * i, 3, "%02x", bytes[i]);
  return TREADLE_OK;
}

treadle_status treadle_part_address(const treadle_group *group, char address[TREADLE_PART_ADDRESS]) {
  const char *host = group->host ? group->host : "127.0.0.1";
  int port;
  treadle_status status;
  TRY(treadle_port_find(host, &port));
  snprintf(address, TREADLE_PART_ADDRESS, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
out:
  return status;
}

static treadle_status meet_by_name(const treadle_part *part, treadle_group **group_p) {
  return treadle_group_open(part->name, part->rank, part->size, part->timeout_seconds, group_p);
}

static treadle_status meet_by_store(const treadle_part *part, treadle_group **group_p) {
  treadle_store store = TREADLE_INIT(treadle_store);
  const treadle_store_options options = {.struct_size = sizeof options,
                                         .address = part->address,
                                         .job = part->name,
                                         .rank = part->rank,
                                         .ranks = part->size,
                                         .timeout_seconds = part->timeout_seconds};
  treadle_status status;
  TRY(treadle_store_open(&options, &store));
  TRY(treadle_group_store(&store, part->rank, part->size, part->nodes[part->rank], part->timeout_seconds,
                          group_p));
out:
  treadle_store_close(&store);
  return status;
}

static bool is_on_one_node(const treadle_part *part) {
  for (int i = 1; i < part->size; i++)
    if (part->nodes[i] != part->nodes[0]) return false;
  return true;
}

treadle_status treadle_part_meet(const treadle_group *whole, const treadle_part *part,
                                 treadle_group **group_p) {
  treadle_status status;
  *group_p = NULL;
  if (part->size == 1)
    status = treadle_group_self(group_p);
  else
    status = is_on_one_node(part) ? meet_by_name(part, group_p) : meet_by_store(part, group_p);
  if (status) return status;
  treadle_group_limit(*group_p, part->timeout_seconds);
  (*group_p)->net_ops = whole->net_ops;
  (*group_p)->net_context = whole->net_context;
  return TREADLE_OK;
}
