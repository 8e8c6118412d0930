/* The net "tcp": addresses, connections, and who is at their other end. */
#include "net/net_tcp.h"

#include "base/clock.h"
#include "base/hash.h"
#include "net/net_devices.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { VERSION = 1, BACKLOG = 256, EVENTS = 64 };
enum { LISTENER = -1 };           /* in an event; guests are below it, ranks from 0 on */
static const double PAUSE = 0.02; /* seconds, before a refused rank connects again */

static treadle_status failed(const char *what) {
  int because = errno;
  return treadle_fail(because == ENOMEM || because == ENOBUFS ? TREADLE_NO_MEMORY : TREADLE_SYSTEM,
                      "net tcp: %s: %s", what, strerror(because));
}

/* ---- Addresses ---- */

static void take_ip(const struct sockaddr *from, treadle_tcp_place *to) {
  to->family = from->sa_family;
  if (from->sa_family == AF_INET) {
    memcpy(to->ip, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
  } else {
    memcpy(to->ip, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, 16);
    to->scope = ((const struct sockaddr_in6 *)(const void *)from)->sin6_scope_id;
  }
}

static socklen_t socket_address(const treadle_tcp_place *from, struct sockaddr_storage *to) {
  memset(to, 0, sizeof *to);
  to->ss_family = from->family;
  if (from->family == AF_INET) {
    struct sockaddr_in *four = (void *)to;
    memcpy(&four->sin_addr, from->ip, 4);
    four->sin_port = from->port;
    return sizeof *four;
  }
  struct sockaddr_in6 *six = (void *)to;
  memcpy(&six->sin6_addr, from->ip, 16);
  six->sin6_scope_id = from->scope;
  six->sin6_port = from->port;
  return sizeof *six;
}

/* Of several devices, ranks take one after the other. */
static treadle_status find_device(const char *names, int rank, treadle_tcp_place *to) {
  treadle_status status = TREADLE_OK;
  struct ifaddrs *all = NULL;
  int count = 1, wanted;
  for (const char *at = names; *at; at++) count += *at == ',';
  for (wanted = rank % count; wanted > 0; wanted--) names += strcspn(names, ",") + 1;
  size_t length = strcspn(names, ",");
  if (getifaddrs(&all) != 0) return failed("addresses of this machine");
  for (int family = AF_INET; !to->family; family = AF_INET6) {
    for (const struct ifaddrs *at = all; at && !to->family; at = at->ifa_next)
      if (at->ifa_addr && at->ifa_addr->sa_family == family && strlen(at->ifa_name) == length &&
          memcmp(at->ifa_name, names, length) == 0)
        take_ip(at->ifa_addr, to);
    if (family == AF_INET6) break;
  }
  if (!to->family)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "network devices: '%.*s' has no address; net tcp takes devices such as eth0, and "
                     "InfiniBand's own are for net ucx",
                     (int)length, names));
out:
  freeifaddrs(all);
  return status;
}

/* Without a device or a host, ranks are on one machine. */
static treadle_status find_ip(const treadle_net_options *options, treadle_tcp_place *to) {
  treadle_status status = TREADLE_OK;
  char devices[512];
  struct addrinfo how = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found = NULL;
  TRY(treadle_net_devices(options, "/sys", devices, sizeof devices));
  if (options->devices) return find_device(options->devices, options->rank, to);
  if (getaddrinfo(options->host ? options->host : "127.0.0.1", NULL, &how, &found) != 0)
    REFUSE("network devices: '%.64s' is not an address of a machine", options->host);
  take_ip(found->ai_addr, to);
  freeaddrinfo(found);
out:
  return status;
}

uint64_t treadle_tcp_place_sum(const treadle_tcp_place *place) {
  return treadle_hash_bytes(place, offsetof(treadle_tcp_place, sum), 0);
}

treadle_status treadle_tcp_address(const treadle_tcp_net *net, void *room, size_t capacity,
                                   size_t *bytes_p) {
  treadle_tcp_place mine = {
      .magic = TREADLE_TCP_PLACE, .version = VERSION, .rank = net->rank, .ranks = net->ranks};
  struct sockaddr_storage at;
  socklen_t bytes = sizeof at;
  *bytes_p = sizeof mine;
  if (capacity < sizeof mine)
    REFUSE("net tcp: an address has %zu bytes, and there is room for %zu", sizeof mine, capacity);
  if (getsockname(net->listener, (struct sockaddr *)&at, &bytes) != 0) return failed("its own address");
  take_ip((struct sockaddr *)&at, &mine);
  mine.port = at.ss_family == AF_INET ? ((struct sockaddr_in *)(void *)&at)->sin_port
                                      : ((struct sockaddr_in6 *)(void *)&at)->sin6_port;
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

/* A machine that does not answer any more is seen after some seconds, where nothing is on its way; else the couriers see it earlier. */
static void tune(int socket) {
  static const int one = 1, idle = 1, between = 1, count = 3;
  (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  (void)setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  (void)setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

treadle_status treadle_tcp_listen(treadle_tcp_net *net, const treadle_net_options *options) {
  treadle_status status = TREADLE_OK;
  treadle_tcp_place mine = {0};
  struct sockaddr_storage at;
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++) net->guests[i].socket = -1;
  TRY(find_ip(options, &mine));
  if (getrandom(net->key, sizeof net->key, 0) != (ssize_t)sizeof net->key) TRY(failed("random bytes"));
  net->poll = epoll_create1(EPOLL_CLOEXEC);
  if (net->poll < 0) TRY(failed("epoll"));
  net->listener = socket(mine.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (net->listener < 0) TRY(failed("a socket"));
  socklen_t bytes = socket_address(&mine, &at);
  if (bind(net->listener, (struct sockaddr *)&at, bytes) != 0 || listen(net->listener, BACKLOG) != 0)
    TRY(failed("it cannot listen on its address"));
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
  if (peer->socket >= 0) close(peer->socket);
  peer->socket = -1;
  peer->coming = NULL;
}

/* The connection of a peer, which has `heard` bytes of its hello already. */
static treadle_status attach(treadle_tcp_net *net, treadle_tcp_peer *peer, int socket) {
  tune(socket);
  peer->socket = socket;
  peer->readable = peer->writable = true;
  treadle_status status =
      watch(net, socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, (int64_t)(peer - net->peers));
  if (status == TREADLE_OK) treadle_tcp_busy(net, peer);
  return status;
}

static treadle_status read_address(const treadle_tcp_net *net, int rank, const void *from, size_t bytes,
                                   treadle_tcp_place *to) {
  if (bytes != sizeof *to) REFUSE("net tcp: these %zu bytes are no address of rank %d", bytes, rank);
  memcpy(to, from, sizeof *to);
  if (to->magic != TREADLE_TCP_PLACE || to->version != VERSION || to->sum != treadle_tcp_place_sum(to) ||
      (to->family != AF_INET && to->family != AF_INET6))
    REFUSE("net tcp: these %zu bytes are no address of rank %d", bytes, rank);
  if (to->rank != rank || to->ranks != net->ranks)
    REFUSE("net tcp: the address given for rank %d of %d is that of rank %d of %d", rank, net->ranks,
           (int)to->rank, (int)to->ranks);
  return TREADLE_OK;
}

static treadle_status reach(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  struct sockaddr_storage at;
  int one = socket(peer->there.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (one < 0) return failed("a socket");
  treadle_status status = attach(net, peer, one);
  if (status != TREADLE_OK) return status;
  socklen_t length = socket_address(&peer->there, &at);
  peer->readable = peer->writable = false; /* until it is connected */
  if (connect(one, (struct sockaddr *)&at, length) != 0 && errno != EINPROGRESS)
    treadle_tcp_lose(peer, strerror(errno));
  return TREADLE_OK;
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
  peer->says = (treadle_tcp_hello){TREADLE_TCP_HELLO, VERSION, net->rank, net->ranks, {0}};
  memcpy(peer->says.key, there.key, sizeof there.key);
  peer->connected = true;
  if (peer->socket >= 0) treadle_tcp_busy(net, peer); /* it was here already */
  if (rank > net->rank) TRY(reach(net, peer));
out:
  return status;
}

/* The higher rank has hung up before it said hello: strangers had all its places. False: that is not what has happened. */
static bool refused(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  if (!peer->connected || peer - net->peers < net->rank || peer->heard > 0) return false;
  close(peer->socket);
  peer->socket = -1;
  peer->said = 0;
  peer->readable = peer->writable = false;
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

static void dismiss(treadle_tcp_guest *guest) {
  close(guest->socket);
  guest->socket = -1;
}

static bool is_key(const unsigned char *a, const unsigned char *b) {
  unsigned different = 0; /* in the same time, wherever they differ */
  for (int i = 0; i < TREADLE_TCP_KEY; i++) different |= (unsigned)(a[i] ^ b[i]);
  return different == 0;
}

static bool is_of(const treadle_tcp_net *net, const treadle_tcp_hello *hello) {
  return hello->magic == TREADLE_TCP_HELLO && hello->version == VERSION && hello->ranks == net->ranks &&
         hello->rank >= 0 && hello->rank < net->rank && is_key(hello->key, net->key);
}

/* A guest has said something. A lower rank that has none yet becomes a peer's connection. */
static void ask(treadle_tcp_net *net, treadle_tcp_guest *guest) {
  char *room = (char *)&guest->hello + guest->heard;
  ssize_t got = recv(guest->socket, room, sizeof guest->hello - guest->heard, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) guest->heard += (size_t)got;
  if (got > 0 && guest->heard < sizeof guest->hello) return;
  treadle_tcp_peer *peer = got > 0 && is_of(net, &guest->hello) ? &net->peers[guest->hello.rank] : NULL;
  if (!peer || peer->socket >= 0 || peer->lost) {
    dismiss(guest);
    return;
  }
  int socket = guest->socket;
  guest->socket = -1;
  epoll_ctl(net->poll, EPOLL_CTL_DEL, socket, NULL);
  peer->hears = guest->hello;
  peer->heard = sizeof peer->hears;
  if (attach(net, peer, socket) != TREADLE_OK) treadle_tcp_lose(peer, "its connection cannot be watched");
}

/* A free place, or that of who was there longest. */
static treadle_tcp_guest *find_place(treadle_tcp_net *net) {
  treadle_tcp_guest *oldest = &net->guests[0];
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++) {
    treadle_tcp_guest *guest = &net->guests[i];
    if (guest->socket < 0) return guest;
    if (guest->number < oldest->number) oldest = guest;
  }
  return oldest;
}

/* Nobody goes whose hello is here. */
static void ask_all(treadle_tcp_net *net) {
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++)
    if (net->guests[i].socket >= 0) ask(net, &net->guests[i]);
}

static treadle_tcp_guest *make_place(treadle_tcp_net *net) {
  treadle_tcp_guest *guest = find_place(net);
  if (guest->socket < 0) return guest;
  ask_all(net);
  guest = find_place(net);
  if (guest->socket >= 0) dismiss(guest);
  return guest;
}

/* Files are out: who is to be taken in needs that of a guest. False: there is none. */
static bool give_up_oldest(treadle_tcp_net *net) {
  treadle_tcp_guest *oldest = NULL;
  ask_all(net);
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++) {
    treadle_tcp_guest *guest = &net->guests[i];
    if (guest->socket >= 0 && (!oldest || guest->number < oldest->number)) oldest = guest;
  }
  if (oldest) dismiss(oldest);
  return oldest;
}

static void admit(treadle_tcp_net *net) {
  for (;;) {
    int one = accept4(net->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (one < 0 && (errno == EMFILE || errno == ENFILE) && give_up_oldest(net)) continue;
    if (one < 0) return;
    treadle_tcp_guest *guest = make_place(net);
    *guest = (treadle_tcp_guest){.socket = one, .number = net->guest_count++};
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
      if (guest->socket >= 0) ask(net, guest);
    } else {
      treadle_tcp_peer *peer = &net->peers[who];
      unsigned ended = EPOLLERR | EPOLLHUP | EPOLLRDHUP; /* reading and writing say more */
      if (events[i].events & (EPOLLIN | ended)) peer->readable = true;
      if (events[i].events & (EPOLLOUT | ended)) peer->writable = true;
      treadle_tcp_busy(net, peer);
    }
  }
  if (comes) admit(net);
  reach_again(net);
}

/* ---- Hellos ---- */

static bool say(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  size_t left = sizeof peer->says - peer->said;
  if (left == 0) return true;
  if (!peer->connected || !peer->writable) return false;
  ssize_t sent = send(peer->socket, (char *)&peer->says + peer->said, left, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && (errno == EPIPE || errno == ECONNRESET) && refused(net, peer)) return false;
  if (sent < 0 && errno != EAGAIN && errno != EINTR) treadle_tcp_lose(peer, strerror(errno));
  if (sent < 0) peer->writable = false;
  if (sent > 0) peer->said += (size_t)sent;
  return peer->said == sizeof peer->says;
}

static bool listen_to(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  size_t left = sizeof peer->hears - peer->heard;
  if (left == 0) return true;
  if (!peer->readable) return false;
  ssize_t got = recv(peer->socket, (char *)&peer->hears + peer->heard, left, MSG_DONTWAIT);
  if ((got == 0 || (got < 0 && (errno == EPIPE || errno == ECONNRESET))) && refused(net, peer))
    return false;
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
    treadle_tcp_lose(peer, got == 0 ? "it has closed the connection" : strerror(errno));
  if (got < 0) peer->readable = false;
  if (got > 0) peer->heard += (size_t)got;
  return peer->heard == sizeof peer->hears;
}

bool treadle_tcp_greet(treadle_tcp_net *net, treadle_tcp_peer *peer) {
  if (peer->lost || peer->socket < 0) return false;
  if (peer->is_greeted) return true;
  bool said = say(net, peer);
  if (peer->lost || peer->socket < 0 || !listen_to(net, peer)) return false;
  if (peer->hears.magic != TREADLE_TCP_HELLO || peer->hears.version != VERSION ||
      peer->hears.rank != (int32_t)(peer - net->peers) || !is_key(peer->hears.key, net->key))
    treadle_tcp_lose(peer, "who answers there is not that rank");
  peer->is_greeted = said && !peer->lost;
  return peer->is_greeted;
}

void treadle_tcp_close(treadle_tcp_net *net) {
  for (int i = 0; i < TREADLE_TCP_GUESTS; i++)
    if (net->guests[i].socket >= 0) dismiss(&net->guests[i]);
  for (int rank = 0; rank < net->ranks; rank++)
    if (net->peers[rank].socket >= 0) close(net->peers[rank].socket);
  if (net->listener >= 0) close(net->listener);
  if (net->poll >= 0) close(net->poll);
}
