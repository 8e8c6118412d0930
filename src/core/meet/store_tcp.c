/* A store over TCP. Rank 0 has what is in it (store_server.h), the others ask it (store_client.h). */
#include "meet/store_tcp.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "group/group.h"
#include "meet/store_client.h"
#include "meet/store_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_SECONDS = 60 };
static const double LEAST = 1; /* seconds that closing waits for others, and a request for its answer */

typedef struct tcp_store {
  char what[TREADLE_STORE_NAME], job[TREADLE_STORE_JOB + 1];
  double timeout_seconds, deadline; /* of the meeting */
  pid_t process;                    /* that opened it */
  treadle_store_server *server;     /* rank 0 */
  treadle_store_client client;      /* the others */
} tcp_store;

/* ---- Calls ---- */

static treadle_status check(const tcp_store *s, const char *key, size_t bytes) {
  if (s->process != getpid())
    return treadle_fail(TREADLE_STATE, "%s: it belongs to process %d, of which this one is a child",
                        s->what, (int)s->process);
  size_t length = strlen(key);
  if (length < 1 || length > TREADLE_STORE_KEY)
    REFUSE("%s: a key has 1 to %d bytes; this one has %zu", s->what, TREADLE_STORE_KEY, length);
  if (bytes > TREADLE_STORE_VALUE)
    REFUSE("%s: a value has at most %d bytes; this one has %zu", s->what, TREADLE_STORE_VALUE, bytes);
  return TREADLE_OK;
}

static treadle_status tcp_set(void *context, const char *key, const void *value, size_t bytes) {
  treadle_status status = TREADLE_OK;
  tcp_store *s = context;
  double now = treadle_clock_seconds();
  TREADLE_NEED(context);
  TREADLE_NEED(key);
  if (bytes) TREADLE_NEED(value);
  TRY(check(s, key, bytes));
  if (s->server) return treadle_store_server_set(s->server, key, value, bytes);
  TRY(treadle_store_client_set(&s->client, key, value, bytes,
                               s->deadline > now + LEAST ? s->deadline : now + s->timeout_seconds));
out:
  return status;
}

static treadle_status tcp_get(void *context, const char *key, double seconds, void *value, size_t capacity,
                              size_t *bytes_p) {
  treadle_status status = TREADLE_OK;
  tcp_store *s = context;
  TREADLE_NEED(context);
  TREADLE_NEED(key);
  TREADLE_NEED(bytes_p);
  if (capacity) TREADLE_NEED(value);
  if (seconds != 0) TRY(TREADLE_CHECK_SECONDS(seconds)); /* it only looks */
  TRY(check(s, key, 0));
  if (s->server) return treadle_store_server_get(s->server, key, seconds, value, capacity, bytes_p);
  TRY(treadle_store_client_get(&s->client, key, seconds, value, capacity, bytes_p));
out:
  return status;
}

const char *treadle_store_host(const treadle_store *store) {
  return store->set == tcp_set ? ((const tcp_store *)store->context)->client.host : NULL;
}

double treadle_store_seconds(const treadle_store *store) {
  return store->set == tcp_set ? ((const tcp_store *)store->context)->timeout_seconds : 0;
}

/* ---- Rank 0 ---- */

static treadle_status host(tcp_store *s, const char *text, const treadle_store_address *address,
                           int ranks) {
  treadle_status status = TREADLE_OK;
  struct addrinfo *all = NULL;
  int listener = -1, why = 0;
  TRY(treadle_store_address_find(text, address, &all));
  for (const struct addrinfo *one = all; one && listener < 0 && why != EADDRINUSE; one = one->ai_next) {
    const treadle_wire_address at = treadle_wire_address_of(one->ai_addr);
    listener = treadle_wire_listen(&at);
    if (listener < 0) why = errno;
  }
  freeaddrinfo(all);
  if (listener < 0 && why == EADDRINUSE)
    REFUSE("%s: the port is in use on this machine, by another job or another program", s->what);
  if (listener < 0 && why == EADDRNOTAVAIL)
    REFUSE("%s: this is not an address of this machine, and rank 0 listens there", s->what);
  if (listener < 0)
    return treadle_fail(TREADLE_SYSTEM, "%s: rank 0 cannot listen there: %s", s->what, strerror(why));
  treadle_wire_name(listener, false, s->client.host, NULL);
  TRY(treadle_store_server_start(s->what, s->client.job, ranks, listener, s->deadline, &s->server));
  TRY(treadle_store_server_meet(s->server));
out:
  return status;
}

/* ---- Its life ---- */

static void end(tcp_store *s, double deadline) {
  treadle_store_server_stop(s->server, deadline);
  treadle_wire_close(&s->client.stream.wire, s->process == getpid());
  treadle_free(s);
}

static treadle_status check_options(const treadle_store_options *o) {
  const char *function = "treadle_store_open";
  if (!o->address) return treadle_refuse_null(function, "options->address");
  if (!o->job) return treadle_refuse_null(function, "options->job");
  if (!*o->job || strlen(o->job) > TREADLE_STORE_JOB)
    REFUSE("store: a job's name has 1 to %d bytes; this one has %zu", TREADLE_STORE_JOB, strlen(o->job));
  if (o->ranks < 1 || o->ranks > TREADLE_GROUP_MAX || o->rank < 0 || o->rank >= o->ranks)
    REFUSE("store: rank %d of %d; a store has 1 to %d ranks", o->rank, o->ranks, TREADLE_GROUP_MAX);
  return TREADLE_OK;
}

treadle_status treadle_store_open(const treadle_store_options *options, treadle_store *store_p) {
  treadle_status status = TREADLE_OK;
  treadle_store_options o;
  treadle_store_address address;
  tcp_store *s = NULL;
  TREADLE_NEED(options);
  TREADLE_NEED_SIZED(store_p);
  TREADLE_GIVE(store_p, &(treadle_store){.struct_size = sizeof *store_p});
  if (store_p->struct_size < sizeof *store_p)
    REFUSE("%s: store_p->struct_size is %zu; a store has %zu bytes", __func__, store_p->struct_size,
           sizeof *store_p);
  TRY(TREADLE_TAKE(options, &o));
  TRY(check_options(&o));
  if (o.timeout_seconds == 0) o.timeout_seconds = DEFAULT_SECONDS;
  TRY(treadle_check_seconds(__func__, "options->timeout_seconds", o.timeout_seconds));
  TRY(treadle_store_address_read(o.address, &address));
  s = treadle_alloc(sizeof *s);
  if (!s) return treadle_fail(TREADLE_NO_MEMORY, "store: memory is out");
  snprintf(s->what, sizeof s->what, "store %s", treadle_text_shown(o.address));
  snprintf(s->job, sizeof s->job, "%s", o.job);
  s->timeout_seconds = o.timeout_seconds;
  s->deadline = treadle_clock_seconds() + o.timeout_seconds;
  s->process = getpid();
  s->client = (treadle_store_client){.what = s->what,
                                     .job = treadle_store_job(s->job),
                                     .rank = o.rank,
                                     .ranks = o.ranks,
                                     .stream.wire.socket = -1};
  if (o.rank == 0)
    TRY(host(s, o.address, &address, o.ranks));
  else
    TRY(treadle_store_client_meet(&s->client, o.address, &address, s->deadline));
  TREADLE_GIVE(
      store_p,
      (&(treadle_store){
          .struct_size = sizeof *store_p, .context = s, .set = tcp_set, .get = tcp_get, .job = s->job}));
out:
  if (status != TREADLE_OK && s) end(s, 0);
  return status;
}

void treadle_store_close(treadle_store *store) {
  treadle_store own;
  if (!store || TREADLE_TAKE(store, &own) != TREADLE_OK || own.set != tcp_set || !own.context) return;
  tcp_store *s = own.context;
  double least = treadle_clock_seconds() + LEAST;
  TREADLE_GIVE(store, &(treadle_store){.struct_size = sizeof own});
  end(s, s->deadline > least ? s->deadline : least);
}
