/* Launchers are known by what they put into the environment of their processes. */
#include "cli/launch.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/port.h"
#include "base/text.h"
#include "treadle_tools.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- MPI launchers ---- */

/* What Open MPI, MPICH and its kin, and PMIx say. */
static const char *mpi_variable(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i])) return names[i];
  return NULL;
}

typedef struct mpi_functions {
  treadle_status (*start)(int *rank_p, int *size_p);
  treadle_status (*meet)(const void *comm, bool refused, const treadle_node_address *mine,
                         treadle_mpi_meeting *meeting_p, char *address_p);
  void (*stop)(void);
} mpi_functions;

/* Functions are copied as bytes, since C has no cast from data to them. */
static bool find(void *library, const char *name, void *function_p) {
  void *at = dlsym(library, name);
  memcpy(function_p, &at, sizeof at);
  return at;
}

/* It stays loaded. Open MPI finds its own parts only among symbols that all may see. */
static treadle_status load_mpi(const char *variable, mpi_functions *mpi) {
  void *library = dlopen("libtreadle_mpi.so.2", RTLD_LAZY | RTLD_GLOBAL);
  if (!library)
    return treadle_fail(
        TREADLE_SYSTEM,
        "an MPI launcher started this process (%s is set), but libtreadle_mpi.so.2 cannot be "
        "loaded: %s; build treadle from source with that MPI, or start it with torchrun",
        variable, dlerror());
  if (find(library, "treadle_mpi_start", &mpi->start) &&
      find(library, "treadle_mpi_meet_nodes", &mpi->meet) && find(library, "treadle_mpi_stop", &mpi->stop))
    return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "libtreadle_mpi.so.2 is not that of treadle %s",
                      treadle_version_text());
}

static int mpi_rank(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
  int64_t rank;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *text = getenv(names[i]);
    if (text && treadle_text_to_int64(text, &rank) && rank >= 0 && rank <= INT32_MAX) return (int)rank;
  }
  return 0;
}

static treadle_status find_by_mpi(const char *variable, treadle_launch *launch) {
  treadle_status status = TREADLE_OK;
  mpi_functions mpi = {NULL, NULL, NULL};
  treadle_mpi_meeting meeting;
  treadle_node_address mine;
  launch->rank = mpi_rank(); /* so that one says what goes wrong before MPI runs */
  TRY(load_mpi(variable, &mpi));
  status = mpi.start(&launch->rank, &launch->size);
  if (status != TREADLE_OK) return treadle_fail(status, "MPI does not start");
  launch->stop = mpi.stop;
  treadle_status found = treadle_machine_address(&mine);
  _Static_assert(sizeof launch->address == sizeof mine.address, "one room");
  status = mpi.meet(NULL, found != TREADLE_OK, &mine, &meeting, launch->address);
  if (status != TREADLE_OK && meeting.why[0]) return treadle_fail(status, "%s", meeting.why);
  TRY(found);
  snprintf(launch->name, sizeof launch->name, "%s", meeting.name);
out:
  return status;
}

/* ---- torchrun ---- */

static treadle_status read_count(const char *name, int64_t least, int64_t *value_p) {
  const char *text = getenv(name);
  if (!text || !treadle_text_to_int64(text, value_p) || *value_p < least || *value_p > INT32_MAX)
    return treadle_fail(TREADLE_REFUSED, "torchrun: %s is '%s', and must be a whole number from %d", name,
                        text ? text : "(not set)", (int)least);
  return TREADLE_OK;
}

/* All variables that torchrun gives; a few of them may be somebody else's. */
static bool is_torchrun(void) {
  static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!getenv(names[i])) return false;
  return getenv("TORCHELASTIC_RUN_ID") || !mpi_variable(); /* the inner of two launchers */
}

/* Ranks of several nodes meet at the next port of rank 0's machine: torchrun has its own store at MASTER_PORT. */
static treadle_status find_master(treadle_launch *launch) {
  const char *host = getenv("MASTER_ADDR");
  int64_t port;
  treadle_status status;
  TRY(read_count("MASTER_PORT", 1, &port));
  if (!host || strlen(host) > 80 || port > 65534)
    return treadle_fail(
        TREADLE_REFUSED,
        "torchrun: MASTER_ADDR is '%.80s' and MASTER_PORT %lld: ranks of several nodes meet at the "
        "next port there",
        host ? host : "(not set)", (long long)port);
  snprintf(launch->address, sizeof launch->address, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host,
           (int)port + 1);
out:
  return status;
}

/* A port is one job's on its machine; the rest tells jobs apart that had it one after the other. */
static treadle_status find_by_torchrun(treadle_launch *launch) {
  treadle_status status = TREADLE_OK;
  static const char *const of_job[] = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                       "TORCHELASTIC_RESTART_COUNT"};
  int64_t rank, size, here;
  uint64_t hash = 0;
  TRY(read_count("RANK", 0, &rank));
  TRY(read_count("WORLD_SIZE", 1, &size));
  if (rank >= size)
    return treadle_fail(TREADLE_REFUSED, "torchrun: RANK is %lld, and WORLD_SIZE %lld", (long long)rank,
                        (long long)size);
  if (getenv("LOCAL_WORLD_SIZE")) {
    TRY(read_count("LOCAL_WORLD_SIZE", 1, &here));
    if (here != size) TRY(find_master(launch));
  }
  for (size_t i = 0; i < sizeof of_job / sizeof *of_job; i++) {
    const char *text = getenv(of_job[i]);
    hash = treadle_hash_bytes(text ? text : "", text ? strlen(text) : 0, hash);
  }
  launch->rank = (int)rank;
  launch->size = (int)size;
  snprintf(launch->name, sizeof launch->name, "torchrun%016llx", (unsigned long long)hash);
out:
  return status;
}

/* ---- Slurm ---- */

/* srun without PMI starts processes that do not know of each other: each would be a run of its own. */
static treadle_status check_slurm(void) {
  const char *text = getenv("SLURM_NTASKS");
  int64_t tasks;
  if (!text || !treadle_text_to_int64(text, &tasks) || tasks < 2) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "Slurm has %lld tasks (SLURM_NTASKS), and this process was given no way to find the others: "
      "start it by srun --mpi=pmix, or by mpirun; for a run of one process, env -u SLURM_NTASKS",
      (long long)tasks);
}

/* ---- Options ---- */

/* "5,4": processes of each node. */
static treadle_status read_sizes(const char *text, treadle_launch *launch) {
  int64_t first = 0;
  char one[24];
  for (const char *at = text; at; launch->nodes++) {
    const char *end = strchr(at, ',');
    const size_t length = end ? (size_t)(end - at) : strlen(at);
    int64_t size;
    snprintf(one, sizeof one, "%.*s", (int)(length < sizeof one ? length : 0), at);
    if (!treadle_text_to_int64(one, &size) || size < 1 || size > INT32_MAX)
      return treadle_fail(TREADLE_REFUSED, "--nodes is '%s', and its sizes must be whole numbers from 1",
                          text);
    if (launch->rank >= first && launch->rank < first + size) launch->node = launch->nodes;
    first += size;
    at = end ? end + 1 : NULL;
  }
  if (first != launch->size)
    return treadle_fail(TREADLE_REFUSED, "--nodes %s are %lld processes, and there are %d", text,
                        (long long)first, launch->size);
  return TREADLE_OK;
}

static treadle_status read_nodes(const char *text, treadle_launch *launch) {
  int64_t nodes;
  launch->nodes = 0;
  launch->node = -1;
  if (!text || strcmp(text, "auto") == 0) return TREADLE_OK;
  if (strchr(text, ',')) return read_sizes(text, launch);
  if (!treadle_text_to_int64(text, &nodes) || nodes < 1 || nodes > INT32_MAX)
    return treadle_fail(
        TREADLE_REFUSED,
        "--nodes is '%s', and must be a whole number from 1, sizes with commas between them, or auto",
        text);
  launch->nodes = (int)nodes;
  return TREADLE_OK;
}

/* What a launcher's environment says of this process, for ranks that meet at an address: no call to MPI is made. */
static void fill_from_launcher(treadle_launch_options *o) {
  static const char *const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"},
                           *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"},
                           *const jobs[] = {"TORCHELASTIC_RUN_ID", "OMPI_MCA_ess_base_jobid", "PMI_ID"};
  for (size_t i = is_torchrun() ? 0 : 1; i < sizeof ranks / sizeof *ranks; i++) {
    const char *rank = getenv(ranks[i]), *size = getenv(sizes[i]), *job = getenv(jobs[i]);
    int64_t r, n;
    if (!rank || !size || !treadle_text_to_int64(rank, &r) || !treadle_text_to_int64(size, &n)) continue;
    if (o->rank < 0 && o->ranks <= 0 && r >= 0 && n > 0) {
      o->rank = r;
      o->ranks = n;
    }
    if (!o->job) o->job = job && *job ? job : "launcher";
    return;
  }
}

/* All four of them, or none; under a launcher --meet is enough. */
static treadle_status find_by_options(const treadle_launch_options *options, treadle_launch *launch) {
  treadle_launch_options filled = *options, *o = &filled;
  if (o->meet) fill_from_launcher(o);
  static const char *const names[] = {"--meet ADDRESS:PORT", "--job NAME", "--rank R", "--ranks N"};
  const bool given[] = {o->meet, o->job, o->rank >= 0, o->ranks > 0};
  int there = 0, missing = 0;
  for (int i = 3; i >= 0; i--) /* the first ones */
    if (given[i])
      there = i;
    else
      missing = i;
  if (!(given[0] && given[1] && given[2] && given[3]))
    return treadle_fail(
        TREADLE_REFUSED,
        "%s needs %s, too: ranks that meet at an address give --meet, --job, --rank and --ranks",
        names[there], names[missing]);
  if (o->rank >= o->ranks)
    return treadle_fail(TREADLE_REFUSED, "--rank is %lld, and --ranks %lld: ranks count from 0",
                        (long long)o->rank, (long long)o->ranks);
  if (o->ranks > INT32_MAX)
    return treadle_fail(TREADLE_REFUSED, "--ranks is %lld, which is too many", (long long)o->ranks);
  launch->rank = (int)o->rank;
  launch->size = (int)o->ranks;
  launch->meet = o->meet;
  launch->job = o->job;
  launch->seconds = o->seconds;
  return TREADLE_OK;
}

static bool is_given(const treadle_launch_options *o) {
  return o && (o->meet || o->job || o->rank >= 0 || o->ranks > 0);
}

/* ---- All of them ---- */

treadle_status treadle_launch_find(const treadle_launch_options *options, treadle_launch *launch) {
  treadle_status status = TREADLE_OK;
  *launch = (treadle_launch){.size = 1, .node = -1};
  const char *variable = mpi_variable();
  if (is_given(options))
    TRY(find_by_options(options, launch));
  else if (is_torchrun())
    TRY(find_by_torchrun(launch));
  else if (variable)
    TRY(find_by_mpi(variable, launch));
  else
    TRY(check_slurm());
  if (launch->address[0] && options) launch->seconds = options->seconds;
  TRY(read_nodes(options ? options->nodes : NULL, launch));
  if (launch->nodes && launch->node < 0 && launch->size % launch->nodes)
    TRY(treadle_fail(TREADLE_REFUSED, "--nodes is %d, and %s cannot be divided evenly among that many",
                     launch->nodes, treadle_text_of_count(launch->size, "rank")));
out:
  return status;
}

/* ---- Meeting ---- */

static treadle_status meet_at_address(const treadle_launch *launch, double timeout_seconds,
                                      treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_store store = TREADLE_INIT(treadle_store);
  const treadle_store_options options = {.struct_size = sizeof options,
                                         .address = launch->meet,
                                         .job = launch->job,
                                         .rank = launch->rank,
                                         .ranks = launch->size,
                                         .timeout_seconds =
                                             launch->seconds > 0 ? launch->seconds : timeout_seconds};
  TRY(treadle_store_open(&options, &store));
  TRY(launch->node >= 0
          ? treadle_group_store(&store, launch->rank, launch->size, launch->node, timeout_seconds, group_p)
          : treadle_group_nodes(&store, launch->rank, launch->size, launch->nodes, timeout_seconds,
                                group_p));
out:
  treadle_store_close(&store);
  return status;
}

/* Where MPI has told the ranks. A network may lead elsewhere than the machine's default route: then somebody has to name its address. */
static treadle_status meet_where_told(const treadle_launch *launch, double timeout_seconds,
                                      treadle_group **group_p) {
  treadle_launch there = *launch;
  there.meet = launch->address;
  there.job = launch->name;
  treadle_status status = meet_at_address(&there, timeout_seconds, group_p);
  if (status != TREADLE_TIMEOUT && status != TREADLE_SYSTEM) return status;
  return treadle_fail_in(
      status,
      "ranks of several nodes, at %s of rank 0 (--meet ADDRESS:PORT names another one): ", launch->address);
}

/* Ranks of one machine that are to be on several nodes: they meet as what they are first, and so learn where the store is. */
static treadle_status meet_as_nodes(const treadle_launch *launch, double timeout_seconds,
                                    treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_group *whole = NULL;
  int port = 0, *ports = treadle_alloc_array((size_t)launch->size, sizeof *ports);
  char address[32];
  treadle_launch there = *launch;
  if (!ports) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d ranks", launch->size);
  TRY(treadle_group_open(launch->name, launch->rank, launch->size, timeout_seconds, &whole));
  if (launch->rank == 0) TRY(treadle_port_find("127.0.0.1", &port));
  TRY(treadle_group_gather(whole, &port, sizeof port, ports));
  snprintf(address, sizeof address, "127.0.0.1:%d", ports[0]);
  there.meet = address;
  there.job = launch->name;
  TRY(meet_at_address(&there, timeout_seconds, group_p));
out:
  treadle_group_close(whole);
  treadle_free(ports);
  return status;
}

treadle_status treadle_launch_meet(const treadle_launch *launch, double timeout_seconds,
                                   treadle_group **group_p) {
  *group_p = NULL;
  if (launch->meet) return meet_at_address(launch, timeout_seconds, group_p);
  if (launch->address[0]) return meet_where_told(launch, timeout_seconds, group_p);
  if (launch->nodes > 1 && launch->name[0]) return meet_as_nodes(launch, timeout_seconds, group_p);
  if (!launch->name[0]) return treadle_group_self(group_p);
  return treadle_group_open(launch->name, launch->rank, launch->size, timeout_seconds, group_p);
}
