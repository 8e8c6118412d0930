/* The table of nets, and what its rows check in the same way. */
#include "net/net.h"

#include "base/clock.h"
#include "base/sized.h"
#include "group/group.h"

#include <poll.h>
#include <string.h>

static const treadle_net_ops *const rows[] = {
    &treadle_net_tcp,
#ifdef TREADLE_HAS_UCX
    &treadle_net_ucx,
#endif
};

static const char *const not_built = "net ucx: this libtreadle was built without it: build it where the "
                                     "headers of UCX are (Debian: libucx-dev)";

const treadle_net_ops *treadle_net_at(int at) {
  return at >= 0 && (size_t)at < sizeof rows / sizeof *rows ? rows[at] : NULL;
}

treadle_status treadle_net_find(const char *name, const treadle_net_ops **ops_p) {
  *ops_p = NULL;
  char names[128] = "";
  for (int at = 0; treadle_net_at(at); at++) {
    if (strcmp(rows[at]->name, name) == 0) {
      *ops_p = rows[at];
      return TREADLE_OK;
    }
    size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", rows[at]->name);
  }
  if (strcmp(name, "ucx") == 0) REFUSE("%s", not_built);
  REFUSE("there is no net '%.40s'; there are: %s", name, names);
}

treadle_status treadle_net_check_options(const char *net, const treadle_net_options *options) {
  if (options->ranks < 1 || options->ranks > TREADLE_NET_RANKS)
    REFUSE("net %s: %d ranks; there are 1 to %d", net, options->ranks, TREADLE_NET_RANKS);
  if (options->rank < 0 || options->rank >= options->ranks)
    REFUSE("net %s: rank %d of %d", net, options->rank, options->ranks);
  return TREADLE_OK;
}

treadle_status treadle_net_check_message(const treadle_net_ops *ops, int peer, int ranks, uint64_t tag,
                                         const treadle_net_part *parts, int count, size_t *bytes_p) {
  *bytes_p = 0;
  if (peer < 0 || peer >= ranks)
    REFUSE("net %s: a message to or from rank %d of %d", ops->name, peer, ranks);
  if (tag >= TREADLE_NET_TAGS)
    REFUSE("net %s: tag %llu of a message to or from rank %d; tags are below 2^40", ops->name,
           (unsigned long long)tag, peer);
  if (count < 0 || count > ops->most_parts)
    REFUSE("net %s: a message of %d parts; there are at most %d", ops->name, count, ops->most_parts);
  for (int i = 0; i < count; i++) {
    if (!parts[i].at && parts[i].bytes > 0)
      REFUSE("net %s: part %d of %d is nowhere (NULL), with %zu bytes", ops->name, i, count,
             parts[i].bytes);
    if (parts[i].bytes > SIZE_MAX / 2 - *bytes_p)
      REFUSE("net %s: parts of more bytes than memory has", ops->name);
    *bytes_p += parts[i].bytes;
  }
  return TREADLE_OK;
}

bool treadle_net_listen(int bell, double seconds) {
  const struct timespec limit = treadle_clock_timespec(seconds < 3600 ? seconds : 3600);
  struct pollfd one = {.fd = bell, .events = POLLIN};
  return ppoll(&one, 1, &limit, NULL) > 0;
}

treadle_status treadle_group_set_net(treadle_group *group, const treadle_net_ops *ops, void *context) {
  TREADLE_NEED(group);
  TREADLE_NEED(ops);
  if (ops->struct_size < sizeof *ops)
    REFUSE("treadle_group_set_net: a table of %zu bytes; it has %zu", ops->struct_size, sizeof *ops);
  if (!ops->name || !ops->name[0] || !ops->open || !ops->address || !ops->connect || !ops->send ||
      !ops->receive || !ops->test || !ops->wait || !ops->cancel || !ops->close)
    REFUSE("treadle_group_set_net: net '%.40s' lacks a function or a name", ops->name ? ops->name : "");
  if (ops->most_parts < 1 || !(ops->memory & TREADLE_NET_HOST))
    REFUSE(
        "treadle_group_set_net: net '%.40s' has %d parts a message, and memory 0x%x: at least 1, in host "
        "memory (0x%x)",
        ops->name, ops->most_parts, ops->memory, (unsigned)TREADLE_NET_HOST);
  group->net_ops = ops;
  group->net_context = context;
  return TREADLE_OK;
}

treadle_status treadle_group_choose_net(treadle_group *group, const char *name) {
  treadle_status status = TREADLE_OK;
  const treadle_net_ops *ops;
  TREADLE_NEED(group);
  TREADLE_NEED(name);
  TRY(treadle_net_find(name, &ops));
  TRY(treadle_group_set_net(group, ops, NULL));
out:
  return status;
}

/* ---- For treadle doctor ---- */

/* Users have two. */
int32_t treadle_machine_net_count(void) { return 2; }

treadle_status treadle_machine_net(int32_t number, treadle_net_info *info_p) {
  TREADLE_NEED_SIZED(info_p);
  if (number < 0 || number >= treadle_machine_net_count())
    REFUSE("net %d: there are %d", (int)number, (int)treadle_machine_net_count());
  treadle_net_info info = {.struct_size = sizeof info, .name = number == 0 ? "tcp" : "ucx"};
  if (number == 0) {
    treadle_net_tcp_info(&info);
    TREADLE_GIVE(info_p, &info);
    return TREADLE_OK;
  }
#ifdef TREADLE_HAS_UCX
  treadle_net_ucx_info(&info);
#else
  snprintf(info.lacks, sizeof info.lacks, "%s", not_built);
#endif
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}
