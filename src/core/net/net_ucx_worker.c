/* A worker of UCX: settings, and its address. */
#include "net/net_ucx.h"

#include "base/hash.h"

#include <signal.h>
#include <string.h>

/* ---- Settings ----
 *
 * UCX reads the environment (UCX_...) before these are set, and each of these is set whatever stands there: what net_ucx.c promises
 * rests on them. */
static const struct {
  const char *name, *value;
} settings[] = {
    /* None of shared memory: those do not tell of dead peers. */
    {"TLS", "rc,ud,tcp"},
    /* What does not fit into one packet is asked for by its receiver. Otherwise the packets of a message whose sender dies have
     * no end, and its receive could neither end nor be taken back. */
    {"RNDV_THRESH", "8k"},
    {"RNDV_SCHEME", "auto"},
    {"PROTO_ENABLE", "n"},
    {"RESOLVE_REMOTE_EP_ID", "n"}, /* greetings do that */
    {"TM_FORCE_THRESH", "8192"},
    /* Who hears nothing of a peer: a closed connection is seen at once, one that answers nothing any more after these seconds. */
    {"KEEPALIVE_INTERVAL", "1s"},
    {"KEEPALIVE_NUM_EPS", "inf"},
    /* One event at a time: of several, the first may close the connection of the next, which then ends the process
     * (its assertion "conn_state != UCT_TCP_EP_CONN_STATE_CLOSED"). */
    {"TCP_MAX_POLL", "1"},
    {"TCP_KEEPIDLE", "1s"},
    {"TCP_KEEPINTVL", "1s"},
    {"TCP_KEEPCNT", "3"},
};

static treadle_status fail(const treadle_ucx *ucx, const char *what, ucs_status_t because) {
  const char *heard = treadle_ucx_heard();
  return treadle_fail(because == UCS_ERR_NO_MEMORY ? TREADLE_NO_MEMORY : TREADLE_SYSTEM,
                      "net ucx: %s: %s%s%s%s", what, ucx->ucs_status_string(because), heard[0] ? " (" : "",
                      heard, heard[0] ? ")" : "");
}

/* Settings of a transport have its name in front from UCX 1.18 on, and have not before: both are set, one of them in vain. */
static ucs_status_t set(const treadle_ucx *ucx, ucp_config_t *config, const char *name, const char *value) {
  static const char transport[] = "TCP_";
  ucs_status_t got = ucx->ucp_config_modify(config, name, value);
  if (got == UCS_OK && strncmp(name, transport, strlen(transport)) == 0)
    got = ucx->ucp_config_modify(config, name + strlen(transport), value);
  return got;
}

static treadle_status configure(const treadle_ucx *ucx, const char *devices, ucp_config_t **config_p) {
  ucs_status_t got = ucx->ucp_config_read("TREADLE", NULL, config_p);
  if (got != UCS_OK) return fail(ucx, "settings of the environment", got);
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    got = set(ucx, *config_p, settings[i].name, settings[i].value);
    if (got != UCS_OK) return fail(ucx, settings[i].name, got);
  }
  got = set(ucx, *config_p, "NET_DEVICES", devices ? devices : "all");
  return got == UCS_OK ? TREADLE_OK : fail(ucx, "network devices", got);
}

/* Without a worker. */
static treadle_status open_context(const treadle_ucx *ucx, const char *devices, ucp_context_h *context_p) {
  treadle_status status = TREADLE_OK;
  ucp_config_t *config = NULL;
  *context_p = NULL;
  TRY(configure(ucx, devices, &config));
  ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                         .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
  ucp_context_h context;
  ucs_status_t got = ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
  if (got != UCS_OK) {
    char what[120];
    snprintf(what, sizeof what, "network devices %.80s", devices ? devices : "(all)");
    TRY(fail(ucx, what, got));
  }
  *context_p = context;
out:
  if (config) ucx->ucp_config_release(config);
  return status;
}

static treadle_status create(const treadle_ucx *ucx, const char *devices, treadle_ucx_worker *worker) {
  treadle_status status = TREADLE_OK;
  TRY(open_context(ucx, devices, &worker->context));
  ucp_worker_params_t of = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                            .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  ucp_worker_h made;
  ucs_status_t got = ucx->ucp_worker_create(worker->context, &of, &made);
  if (got != UCS_OK) TRY(fail(ucx, "a worker", got));
  worker->worker = made;
  got = ucx->ucp_worker_get_efd(worker->worker, &worker->bell);
  if (got != UCS_OK) TRY(fail(ucx, "a worker's file descriptor", got));
out:
  return status;
}

treadle_status treadle_ucx_open(const treadle_ucx *ucx, const char *devices, treadle_ucx_worker *worker) {
  *worker = (treadle_ucx_worker){NULL, NULL, -1};
  /* UCX makes a thread. Signals are for those that were there before. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  treadle_ucx_listen();
  treadle_status status = create(ucx, devices, worker);
  if (status != TREADLE_OK) treadle_ucx_close(ucx, worker);
  treadle_ucx_ignore();
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return status;
}

void treadle_ucx_close(const treadle_ucx *ucx, treadle_ucx_worker *worker) {
  treadle_ucx_listen();
  if (worker->worker) ucx->ucp_worker_destroy(worker->worker);
  if (worker->context) ucx->ucp_cleanup(worker->context);
  treadle_ucx_ignore();
  *worker = (treadle_ucx_worker){NULL, NULL, -1};
}

/* ---- What there is ---- */

/* UCX says it in a text for people: "... resource 0 : md 0 dev 0 flags -- tcp/eth0". */
static void read_devices(FILE *text, char *devices, size_t capacity) {
  char line[256];
  size_t used = 0;
  while (fgets(line, sizeof line, text)) {
    const char *last = strrchr(line, ' ');
    if (!strstr(line, "resource") || !last || !strchr(last, '/')) continue;
    int length = (int)strcspn(last + 1, "\n");
    if ((size_t)length + 3 > capacity - used) break;
    used += (size_t)snprintf(devices + used, capacity - used, "%s%.*s", used ? ", " : "", length, last + 1);
  }
}

void treadle_net_ucx_info(treadle_net_info *info) {
  treadle_status status = TREADLE_OK;
  const treadle_ucx *ucx;
  ucp_context_h context = NULL;
  FILE *text = NULL;
  treadle_ucx_listen();
  TRY(treadle_ucx_find(&ucx));
  snprintf(info->version, sizeof info->version, "%u.%u.%u", ucx->major, ucx->minor, ucx->release);
  TRY(open_context(ucx, NULL, &context));
  text = tmpfile();
  if (text) {
    ucx->ucp_context_print_info(context, text);
    rewind(text);
    read_devices(text, info->devices, sizeof info->devices);
    fclose(text);
  }
out:
  if (context) ucx->ucp_cleanup(context);
  treadle_ucx_ignore();
  info->usable = status == TREADLE_OK;
  if (!info->usable) snprintf(info->lacks, sizeof info->lacks, "%s", treadle_error_message());
}

/* ---- Addresses ---- */

enum { FRAME_VERSION = 1 };
static const char frame_magic[8] = "treadleU";

/* In front of UCX's bytes. Machines of one job have one order of bytes. */
typedef struct frame_head {
  char magic[8];
  uint32_t version, rank;
  uint32_t major, minor; /* of UCX */
  uint64_t bytes;        /* of UCX's address */
  uint64_t hash;         /* of all before it, and of the address */
} frame_head;

static uint64_t hash_of(const frame_head *head, const void *address) {
  return treadle_hash_bytes(address, head->bytes,
                            treadle_hash_bytes(head, offsetof(frame_head, hash), FRAME_VERSION));
}

treadle_status treadle_ucx_pack(const treadle_ucx *ucx, const treadle_ucx_worker *worker, int rank,
                                void *room, size_t capacity, size_t *bytes_p) {
  *bytes_p = 0;
  ucp_address_t *address;
  size_t bytes;
  treadle_ucx_listen();
  ucs_status_t got = ucx->ucp_worker_get_address(worker->worker, &address, &bytes);
  treadle_ucx_ignore();
  if (got != UCS_OK) return fail(ucx, "this rank's address", got);
  treadle_status status = TREADLE_OK;
  frame_head head = {.version = FRAME_VERSION,
                     .rank = (uint32_t)rank,
                     .major = ucx->major,
                     .minor = ucx->minor,
                     .bytes = bytes};
  memcpy(head.magic, frame_magic, sizeof head.magic);
  head.hash = hash_of(&head, address);
  if (capacity < sizeof head || capacity - sizeof head < bytes)
    TRY(treadle_fail(TREADLE_REFUSED, "net ucx: this rank's address has %zu bytes; there is room for %zu",
                     sizeof head + bytes, capacity));
  memcpy(room, &head, sizeof head);
  memcpy((char *)room + sizeof head, address, bytes);
  *bytes_p = sizeof head + bytes;
out:
  ucx->ucp_worker_release_address(worker->worker, address);
  return status;
}

treadle_status treadle_ucx_unpack(const treadle_ucx *ucx, int rank, const void *frame, size_t bytes,
                                  const ucp_address_t **address_p) {
  frame_head head;
  const char *address = (const char *)frame + sizeof head;
  *address_p = NULL;
  if (bytes < sizeof head)
    REFUSE("net ucx: the address of rank %d has %zu bytes, fewer than the head of one (%zu)", rank, bytes,
           sizeof head);
  memcpy(&head, frame, sizeof head);
  if (memcmp(head.magic, frame_magic, sizeof head.magic) != 0)
    REFUSE("net ucx: what came as the address of rank %d is none", rank);
  if (head.version != FRAME_VERSION)
    REFUSE("net ucx: the address of rank %d has form %u, here it is %d: another version of treadle?", rank,
           head.version, FRAME_VERSION);
  if (head.bytes != bytes - sizeof head)
    REFUSE("net ucx: the address of rank %d has %zu bytes behind its head, which says %llu", rank,
           bytes - sizeof head, (unsigned long long)head.bytes);
  if (head.hash != hash_of(&head, address))
    REFUSE("net ucx: the address of rank %d was altered on its way", rank);
  if (head.rank != (uint32_t)rank)
    REFUSE("net ucx: what came as the address of rank %d is that of rank %u", rank, head.rank);
  if (head.major != ucx->major || head.minor != ucx->minor)
    REFUSE("net ucx: rank %d has UCX %u.%u, this one %u.%u", rank, head.major, head.minor, ucx->major,
           ucx->minor);
  *address_p = (const ucp_address_t *)address;
  return TREADLE_OK;
}
