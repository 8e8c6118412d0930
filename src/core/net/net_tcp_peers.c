/* The net "tcp": addresses, connections, and who is at their other end. */
#include "net/net_tcp.h"

#include "base/clock.h"
#include "base/hash.h"
#include "net/net_devices.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

enum { EVENTS = 64 };
enum { LISTENER = -1 };           /* in an event; guests are below it, ranks from 0 on */
static const double PAUSE = 0.02; /* seconds, before a refused rank connects again */

static treadle_status failed(const char *what) {
  int because = errno;
  return treadle_fail(because == ENOMEM || because == ENOBUFS ? TREADLE_NO_MEMORY : TREADLE_SYSTEM,
                      "net tcp: %s: %s", what, strerror(because));
}

/* ---- Addresses ---- */

/* Of several devices, ranks take one after the other. */
static treadle_status find_device(const char *names, int rank, treadle_wire_address *to) {
  treadle_status status = TREADLE_OK;
  struct ifaddrs *all = NULL;
  int count = 1, wanted;
  for (const char *at = names; *at; at++) count += *at == ',';
  for (wanted = rank % count; wanted > 0; wanted--) names += strcspn(names, ",") + 1;
  size_t length = strcspn(names, ",");
  if (getifaddrs(&all) != 0) return failed("addresses of this machine");
  for (int family = AF_INET; !to->any.sa_family; family = AF_INET6) {
    for (const struct ifaddrs *at = all; at && !to->any.sa_family; at = at->ifa_next)
      if (at->ifa_addr && at->ifa_addr->sa_family == family && strlen(at->ifa_name) == length &&
          memcmp(at->ifa_name, names, length) == 0)
        *to = treadle_wire_address_of(at->ifa_addr);
    if (family == AF_INET6) break;
  }
  if (!to->any.sa_family)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "network devices: '%.*s' has no address; net tcp takes devices such as eth0, and "
                     "InfiniBand's own are for net ucx",
                     (int)length, names));
out:
  freeifaddrs(all);
  return status;
}

/* Without a device or a host, ranks are on one machine. */
static treadle_status find_ip(const treadle_net_options *options, treadle_wire_address *to) {
  treadle_status status = TREADLE_OK;
  char devices[512];
  struct addrinfo *found = NULL;
  TRY(treadle_net_devices(options, "/sys", devices, sizeof devices));
  if (options->devices) return find_device(options->devices, options->rank, to);
  if (treadle_wire_find(options->host ? options->host : "127.0.0.1", NULL, true, &found) != 0)
    REFUSE("network devices: '%.64s' is not an address of a machine", options->host);
  *to = treadle_wire_address_of(found->ai_addr);
  freeaddrinfo(found);
out:
  return status;
}

treadle_frame_rule treadle_tcp_rule(int type) {
  return (treadle_frame_rule){.magic = 0x74726370,
                              .version = TREADLE_TCP_VERSION,
                              .types = TREADLE_TCP_MESSAGE,
                              .head_bytes = sizeof(treadle_tcp_head),
                              .open = type == TREADLE_TCP_MESSAGE,
                              .most = type == TREADLE_TCP_MESSAGE ? UINT64_MAX : TREADLE_TCP_KEY};
}

uint64_t treadle_tcp_place_sum(const treadle_tcp_place *place) {
  return treadle_hash_bytes(place, offsetof(treadle_tcp_place, sum), 0);
}

treadle_status treadle_tcp_address(const treadle_tcp_net *net, void *room, size_t capacity,
                                   size_t *bytes_p) {
  treadle_tcp_place mine = {.magic = TREADLE_TCP_PLACE,
                            .version = TREADLE_TCP_VERSION,
                            .rank = net->rank,
                            .ranks = net->ranks,
                            .at = treadle_wire_end(net->listener, false)};
  *bytes_p = sizeof mine;
  if (capacity < sizeof mine)
    REFUSE("net tcp: an address has %zu bytes, and there is room for %zu", sizeof mine, capacity);
  if (!mine.at.any.sa_family) return failed("its own address");
  memcpy(mine.key, net->key, sizeof mine.key);
  mine.sum = treadle_tcp_place_sum(&mine);
  memcpy(room, &mine, sizeof mine);
  return TREADLE_OK;
}

/* "eth0 10.0.0.1, lo 127.0.0.1" */
void treadle_net_tcp_info(treadle_net_info *info) {
  struct ifaddrs *all = NULL;
  size_t used = 0;
  info->usable = getifaddrs(&all) == 0;
  if (!info->usable) snprintf(info->lacks, sizeof info->lacks, "net tcp: addresses: %s", strerror(errno));
  for (const struct ifaddrs *at = all; at && used < sizeof info->devices; at = at->ifa_next) {
    char ip[NI_MAXHOST];
    bool four = at->ifa_addr && at->ifa_addr->sa_family == AF_INET;
    if (!(at->ifa_flags & IFF_UP) || (!four && (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET6)) ||
        getnameinfo(at->ifa_addr, four ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6), ip,
                    sizeof ip, NULL, 0, NI_NUMERICHOST) != 0)
      continue;
    used += (size_t)snprintf(info->devices + used, sizeof info->devices - used, "%s%s %s", used ? ", " : "",
                             at->ifa_name, ip);
  }
  if (all) freeifaddrs(all);
}

/* ---- Connections ---- */

static treadle_status watch(const treadle_tcp_net *net, int socket, unsigned events, int64_t who) {
  struct epoll_event event = {.events = events, .data.u64 = (uint64_t)who};
  return epoll_ctl(net->poll, EPOLL_CTL_ADD, socket, &event) == 0 ? TREADLE_OK : failed("epoll");
}

treadle_status treadle_tcp_listen(treadle_tcp_net *net, const treadle_net_options *options) {
  treadle_status status = TREADLE_OK;
  treadle_wire_address mine = {0};
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++) net->guests[i].wire.socket = -1;
  TRY(find_ip(options, &mine));
  if (getrandom(net->key, sizeof net->key, 0) != (ssize_t)sizeof net->key) TRY(failed("random bytes"));
  net->poll = epoll_create1(EPOLL_CLOEXEC);
  if (net->poll < 0) TRY(failed("epoll"));
  net->listener = treadle_wire_listen(&mine);
  if (net->listener < 0) TRY(failed("it cannot listen on its address"));
  TRY(watch(net, net->listener, EPOLLIN, LISTENER));
out:
  return status;
}

void treadle_tcp_busy(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  if (peer->is_busy) return;
  peer->is_busy = true;
  peer->next = net->busy;
  net->busy = peer;
}

void treadle_tcp_lose(treadle_tcp_peer *peer, const char *why) {
  if (peer->lost) return;
  peer->lost = true; /* if it was to connect again, it is not any more */
  snprintf(peer->why, sizeof peer->why, "%s", why);
  treadle_wire_close(&peer->wire, false);
  peer->coming = NULL;
}

/* The connection of a peer. */
static treadle_status attach(treadle_tcp_net *net, treadle_tcp_peer *peer, int socket) {
  treadle_wire_keep_alive(socket);
  peer->wire = treadle_wire_on(socket);
  treadle_status status =
      watch(net, socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, (int64_t)(peer - net->peers));
  if (status == TREADLE_OK) treadle_tcp_busy(net, peer);
  return status;
}

static treadle_status read_address(const treadle_tcp_net *net, int rank, const void *from, size_t bytes,
                                   treadle_tcp_place *to) {
  if (bytes != sizeof *to) REFUSE("net tcp: these %zu bytes are no address of rank %d", bytes, rank);
  memcpy(to, from, sizeof *to);
  if (to->magic != TREADLE_TCP_PLACE || to->version != TREADLE_TCP_VERSION ||
      to->sum != treadle_tcp_place_sum(to) ||
      (to->at.any.sa_family != AF_INET && to->at.any.sa_family != AF_INET6))
    REFUSE("net tcp: these %zu bytes are no address of rank %d", bytes, rank);
  if (to->rank != rank || to->ranks != net->ranks)
    REFUSE("net tcp: the address given for rank %d of %d is that of rank %d of %d", rank, net->ranks,
           (int)to->rank, (int)to->ranks);
  return TREADLE_OK;
}

static treadle_status reach(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  int one = treadle_wire_connect(&peer->there.at);
  if (one < 0 && treadle_wire_is_out(errno)) return failed("a socket");
  if (one < 0) {
    treadle_tcp_lose(peer, strerror(errno));
    return TREADLE_OK;
  }
  treadle_status status = attach(net, peer, one);
  peer->wire.readable = peer->wire.writable = false; /* until it is connected */
  return status;
}

treadle_status treadle_tcp_connect(treadle_tcp_net *net, int rank, const void *address, size_t bytes) {
  treadle_status status = TREADLE_OK;
  treadle_tcp_place there;
  if (rank < 0 || rank >= net->ranks || rank == net->rank)
    REFUSE("net tcp: rank %d of %d connects to rank %d", net->rank, net->ranks, rank);
  treadle_tcp_peer *peer = &net->peers[rank];
  if (peer->connected) return treadle_fail(TREADLE_STATE, "net tcp: rank %d is connected already", rank);
  TRY(read_address(net, rank, address, bytes, &there));
  peer->there = there;
  peer->connected = true;
  if (peer->wire.socket >= 0) treadle_tcp_busy(net, peer); /* it was here already */
  if (rank > net->rank) TRY(reach(net, peer));
out:
  return status;
}

/* The higher rank has hung up before it said hello: strangers had all its places. False: that is not what has happened. */
static bool refused(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  if (!peer->connected || peer - net->peers < net->rank || peer->heard ||
      treadle_wire_buffer_used(&peer->wire.in) > 0)
    return false;
  treadle_wire_close(&peer->wire, false);
  peer->said = false;
  peer->again = treadle_clock_seconds() + PAUSE;
  net->refused++;
  return true;
}

static void reach_again(treadle_tcp_net *net) {
  double now = net->refused ? treadle_clock_seconds() : 0;
  for (int rank = net->rank + 1; rank < net->ranks && net->refused; rank++) {
    treadle_tcp_peer *peer = &net->peers[rank];
    if (peer->again == 0 || peer->again > now) continue;
    peer->again = 0;
    net->refused--;
    if (!peer->lost && reach(net, peer) != TREADLE_OK) treadle_tcp_lose(peer, treadle_error_message());
  }
}

double treadle_tcp_pause(const treadle_tcp_net *net, double seconds) {
  return net->refused && PAUSE < seconds ? PAUSE : seconds;
}

/* ---- Guests ---- */

static bool is_there(const treadle_tcp_guest *guest) { return guest->wire.socket >= 0; }

static void dismiss(treadle_tcp_guest *guest) { treadle_wire_close(&guest->wire, false); }

static bool is_key(const char *a, const unsigned char *b) {
  unsigned different = 0; /* in the same time, wherever they differ */
  for (int i = 0; i < TREADLE_TCP_KEY; i++) different |= (unsigned char)a[i] ^ b[i];
  return different == 0;
}

/* What has come of the hello that somebody says to this rank. TREADLE_PEER without words, or refused: there will be none. */
static treadle_status hear_hello(const treadle_tcp_net *net, treadle_wire *wire, int *rank_p,
                                 bool *whole_p) {
  const treadle_frame_rule rule = treadle_tcp_rule(TREADLE_TCP_HELLO);
  treadle_tcp_head hello;
  const char *content;
  treadle_status status = treadle_wire_hear(wire, &rule, &hello, &content, whole_p);
  if (status == TREADLE_OK && *whole_p &&
      (hello.frame.type != TREADLE_TCP_HELLO || hello.frame.bytes != TREADLE_TCP_KEY ||
       hello.ranks != net->ranks || !is_key(content, net->key)))
    status = treadle_fail(TREADLE_REFUSED, "did not say hello first");
  *rank_p = hello.rank;
  return status;
}

/* A guest has said something. A lower rank that has none yet becomes a peer's connection. */
static void ask(treadle_tcp_net *net, treadle_tcp_guest *guest) {
  bool whole;
  int rank;
  treadle_status status = hear_hello(net, &guest->wire, &rank, &whole);
  if (status == TREADLE_OK && !whole) return;
  treadle_tcp_peer *peer = NULL;
  if (status == TREADLE_OK && rank >= 0 && rank < net->rank) peer = &net->peers[rank];
  if (!peer || peer->wire.socket >= 0 || peer->lost) {
    dismiss(guest);
    return;
  }
  int socket = treadle_wire_leave(&guest->wire);
  epoll_ctl(net->poll, EPOLL_CTL_DEL, socket, NULL);
  peer->heard = true;
  if (attach(net, peer, socket) != TREADLE_OK) treadle_tcp_lose(peer, "its connection cannot be watched");
}

static treadle_tcp_guest *find_place(treadle_tcp_net *net) {
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++)
    if (!is_there(&net->guests[i])) return &net->guests[i];
  return NULL;
}

/* Somebody is to be taken in, who needs a place, or a file. Nobody goes whose hello is here; then the oldest does, if nobody has left. NULL: nobody
 * was there. */
static treadle_tcp_guest *make_place(treadle_tcp_net *net, bool file) {
  treadle_tcp_guest *oldest = NULL;
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++) {
    treadle_tcp_guest *guest = &net->guests[i];
    if (is_there(guest)) ask(net, guest);
    if (is_there(guest) && (!oldest || guest->number < oldest->number)) oldest = guest;
  }
  treadle_tcp_guest *place = file ? NULL : find_place(net);
  if (place) return place;
  if (oldest) dismiss(oldest);
  return oldest;
}

static void admit(treadle_tcp_net *net) {
  for (;;) {
    int one = treadle_wire_accept(net->listener);
    if (one < 0 && treadle_wire_is_out(errno) && make_place(net, true)) continue;
    if (one < 0) return;
    treadle_tcp_guest *guest = find_place(net);
    if (!guest) guest = make_place(net, false);
    *guest = (treadle_tcp_guest){.wire = treadle_wire_on(one), .number = net->guest_count++};
    if (watch(net, one, EPOLLIN | EPOLLRDHUP, LISTENER - 1 - (int64_t)(guest - net->guests)) != TREADLE_OK)
      dismiss(guest);
  }
}

void treadle_tcp_hear(treadle_tcp_net *net) {
  struct epoll_event events[EVENTS];
  int count = epoll_wait(net->poll, events, EVENTS, 0);
  bool comes = false;
  for (int i = 0; i < count; i++) {
    int64_t who = (int64_t)events[i].data.u64;
    if (who == LISTENER) {
      comes = true;
    } else if (who < LISTENER) {
      treadle_tcp_guest *guest = &net->guests[LISTENER - 1 - who];
      if (is_there(guest)) ask(net, guest);
    } else {
      treadle_tcp_peer *peer = &net->peers[who];
      unsigned ended = EPOLLERR | EPOLLHUP | EPOLLRDHUP; /* reading and writing say more */
      if (events[i].events & (EPOLLIN | ended)) peer->wire.readable = true;
      if (events[i].events & (EPOLLOUT | ended)) peer->wire.writable = true;
      treadle_tcp_busy(net, peer);
    }
  }
  if (comes) admit(net);
  reach_again(net);
}

/* ---- Hellos ---- */

/* The connection is over before both have said hello. */
static void fail_hello(treadle_tcp_net *net, treadle_tcp_peer *peer, treadle_status status) {
  bool reset = peer->wire.error == 0 || peer->wire.error == EPIPE || peer->wire.error == ECONNRESET;
  if (status == TREADLE_PEER && reset && refused(net, peer)) return;
  treadle_tcp_lose(peer, status == TREADLE_PEER      ? treadle_wire_why(&peer->wire)
                         : status == TREADLE_REFUSED ? "who answers there is not that rank"
                                                     : treadle_error_message());
}

static treadle_status say_hello(const treadle_tcp_net *net, treadle_tcp_peer *peer) {
  treadle_status status = TREADLE_OK;
  const treadle_frame_rule rule = treadle_tcp_rule(TREADLE_TCP_HELLO);
  treadle_tcp_head hello = {.frame.type = TREADLE_TCP_HELLO, .rank = net->rank, .ranks = net->ranks};
  if (!peer->connected) return TREADLE_OK;
  if (!peer->said) TRY(treadle_wire_say(&peer->wire, &rule, &hello, peer->there.key, TREADLE_TCP_KEY));
  peer->said = true;
  if (peer->wire.writable) TRY(treadle_wire_send(&peer->wire));
out:
  return status;
}

bool treadle_tcp_greet(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  treadle_status status = TREADLE_OK;
  if (peer->lost || peer->wire.socket < 0) return false;
  if (peer->is_greeted) return true;
  TRY(say_hello(net, peer));
  if (!peer->heard && peer->wire.readable) {
    int rank;
    TRY(hear_hello(net, &peer->wire, &rank, &peer->heard));
    if (peer->heard && rank != (int)(peer - net->peers)) status = TREADLE_REFUSED;
  }
  if (status == TREADLE_OK)
    peer->is_greeted = peer->said && peer->heard && !treadle_wire_waiting(&peer->wire);
out:
  if (status != TREADLE_OK) fail_hello(net, peer, status);
  return peer->is_greeted;
}

void treadle_tcp_close(treadle_tcp_net *net) {
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++) dismiss(&net->guests[i]);
  for (int rank = 0; rank < net->ranks; rank++) treadle_wire_close(&net->peers[rank].wire, false);
  if (net->listener >= 0) close(net->listener);
  if (net->poll >= 0) close(net->poll);
}
