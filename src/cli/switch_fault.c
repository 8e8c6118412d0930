/* treadle switch --fault: one rank is killed, stopped, out of memory, writes a wrong byte, or cancels in the first switch to
 * infer; the others say what they have seen.
 *
 * There is no MPI call after the fault, so the survivors leave what they have to say in their lines of the control block,
 * and the lowest of them reads it and prints. A rank that the fault has stopped would keep the launcher waiting: it is killed
 * in the end. */
#include "cli/switch_job.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "treadle_tools.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The option ---- */

enum { MOST_WAVES = 4096 }; /* that a switch has */

static const char *const types[] = {"",        "kill",   "stall", "enomem", "slow",
                                    "corrupt", "cancel", "cut",   "flip",   "killnode"};
enum { KILLNODE = TREADLE_INJECT_FLIP + 1 }; /* kill, on all ranks of a node */

static treadle_status refuse(const char *text, const char *why) {
  return treadle_fail(
      TREADLE_REFUSED,
      "--fault is '%s', and %s; write kill|stall|slow|enomem|corrupt|cancel|flip:rank=R,wave=W or "
      "killnode|cut:node=K,wave=W, or "
      "phase=entry|offload|"
      "commit|committed|bind|kv in place of wave=W",
      text, why);
}

static treadle_status read_field(const char *text, const char *field, int ranks, int nodes,
                                 treadle_fault_spec *fault) {
  int64_t value = 0;
  if (strncmp(field, "node=", 5) == 0) {
    if (!treadle_text_to_int64(field + 5, &value) || value < 0 || value >= nodes)
      return treadle_fail(TREADLE_REFUSED, "--fault is '%s': node '%s' is none of the %d nodes", text,
                          field + 5, nodes);
    fault->node = (int)value;
    return TREADLE_OK;
  }
  if (strncmp(field, "rank=", 5) == 0) {
    if (!treadle_text_to_int64(field + 5, &value) || value < 0 || value >= ranks)
      return treadle_fail(TREADLE_REFUSED, "--fault is '%s': rank '%s' is none of the %d ranks", text,
                          field + 5, ranks);
    fault->rank = (int)value;
    return TREADLE_OK;
  }
  if (strncmp(field, "wave=", 5) == 0) {
    if (!treadle_text_to_int64(field + 5, &value) || value < 0 || value > MOST_WAVES)
      return refuse(text, "the wave is not a number from 0");
    fault->injection.wave = (int32_t)value;
    fault->injection.point = TREADLE_AT_WAVE;
    return TREADLE_OK;
  }
  for (int point = 0; strncmp(field, "phase=", 6) == 0 && point < TREADLE_AT_LOAD; point++)
    if (point != TREADLE_AT_WAVE &&
        strcmp(field + 6, treadle_injection_point_text((treadle_injection_point)point)) == 0) {
      fault->injection.point = (treadle_injection_point)point;
      return TREADLE_OK;
    }
  return refuse(text, "that is not known");
}

/* Which faults are of a node, and which need several. */
static treadle_status check_who(const char *text, int type, int nodes, const treadle_fault_spec *fault) {
  bool of_node = type == KILLNODE || type == TREADLE_INJECT_CUT;
  if (of_node && fault->node < 0) return refuse(text, "names no node");
  if (!of_node && fault->rank < 0) return refuse(text, "names no rank");
  if (of_node ? fault->rank >= 0 : fault->node >= 0)
    return refuse(text, of_node ? "names a rank, and is of a node" : "names a node, and is of a rank");
  if ((of_node || type == TREADLE_INJECT_FLIP) && nodes < 2)
    return treadle_fail(TREADLE_REFUSED, "--fault is '%s', and all ranks are on one node: give --nodes",
                        text);
  return TREADLE_OK;
}

treadle_status treadle_fault_read(const char *text, int ranks, int nodes, treadle_fault_spec *fault) {
  treadle_status status = TREADLE_OK;
  bool has_rank = false, has_place = false;
  int found = TREADLE_INJECT_NOTHING;
  char fields[128];
  const char *colon = strchr(text, ':');
  *fault = (treadle_fault_spec){.injection = {.point = TREADLE_AT_WAVE}, .rank = -1, .node = -1};
  for (int type = TREADLE_INJECT_KILL; colon && type <= KILLNODE; type++)
    if (strlen(types[type]) == (size_t)(colon - text) &&
        strncmp(text, types[type], (size_t)(colon - text)) == 0)
      found = type;
  fault->injection.what = found == KILLNODE ? TREADLE_INJECT_KILL : (treadle_injection_type)found;
  if (found == TREADLE_INJECT_NOTHING) return refuse(text, "begins with no type of fault");
  if (strlen(colon + 1) >= sizeof fields) return refuse(text, "is too long");
  strcpy(fields, colon + 1);
  for (char *rest = fields, *field; (field = strsep(&rest, ","));) {
    bool who = strncmp(field, "rank=", 5) == 0 || strncmp(field, "node=", 5) == 0;
    bool *given = who ? &has_rank : &has_place;
    if (*given) return refuse(text, given == &has_rank ? "names two ranks" : "names two moments");
    TRY(read_field(text, field, ranks, nodes, fault));
    *given = true;
  }
  TRY(check_who(text, found, nodes, fault));
  treadle_injection_point point = fault->injection.point;
  treadle_injection_type what = fault->injection.what;
  if (ranks < 2 && (what == TREADLE_INJECT_KILL || what == TREADLE_INJECT_STALL))
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "--fault is '%s', and on one rank nobody is left to see it: at least 2 ranks are needed", text));
  if ((what == TREADLE_INJECT_CORRUPT || what == TREADLE_INJECT_FLIP) && point != TREADLE_AT_WAVE)
    return refuse(text, "bytes are copied in waves only");
  if (what == TREADLE_INJECT_ENOMEM && (point == TREADLE_AT_COMMITTED || point == TREADLE_AT_KV))
    return refuse(text, "nothing can fail there");
  if (what == TREADLE_INJECT_CANCEL && point == TREADLE_AT_KV)
    return refuse(text, "it is too late to cancel there");
out:
  return status;
}

/* ---- What a survivor sees ---- */

/* Adds bytes of a window to a hash. */
static treadle_status add_bytes(treadle_switch *sw, treadle_class which, size_t offset, size_t bytes,
                                uint64_t *hash) {
  treadle_status status = TREADLE_OK;
  char part[64 << 10];
  for (size_t some; bytes > 0; offset += some, bytes -= some) {
    some = bytes < sizeof part ? bytes : sizeof part;
    TRY(treadle_switch_read(sw, which, offset, some, part));
    *hash = treadle_mix64(*hash ^ treadle_hash_bytes(part, some, 0));
  }
out:
  return status;
}

/* Of the bytes of the training state that are to survive: params and optimizer state, where they are now. 0: they cannot be read. */
static uint64_t digest_of(treadle_switch *sw, const treadle_layout *train, int rank) {
  treadle_status status;
  uint64_t hash = 1;
  size_t bytes;
  for (int32_t i = 0; i < treadle_layout_storage_count(train, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_layout_storage(train, rank, i, &info));
    TRY(add_bytes(sw, TREADLE_PARAMS, info.offset_bytes, info.bytes, &hash));
  }
  (void)treadle_switch_window(sw, TREADLE_OPTIMIZER, &bytes);
  TRY(add_bytes(sw, TREADLE_OPTIMIZER, 0, bytes, &hash));
  return hash ? hash : 1;
out:
  return 0;
}

/* Descriptors and mappings of this process that belong to a pool. */
static int64_t count_leaks(void) {
  int64_t count = 0;
  char line[1024], path[300];
  DIR *folder = opendir("/proc/self/fd");
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
    ssize_t length = readlink(path, line, sizeof line - 1);
    line[length > 0 ? length : 0] = 0;
    count += strstr(line, "memfd:treadle-pool") != NULL;
  }
  if (folder) closedir(folder);
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps && fgets(line, sizeof line, maps)) count += strstr(line, "memfd:treadle-pool") != NULL;
  if (maps) fclose(maps);
  return count;
}

typedef struct last_words {
  treadle_status status;
  double seconds;
  bool unchanged;
  int64_t leaked;
  treadle_rank_figures figures;
  char message[1024];
} last_words;

/* Tensors of the checkpoint, without tied ones. */
static size_t count_entries(const treadle_model *model) {
  treadle_model_info info = TREADLE_INIT(treadle_model_info);
  treadle_model_get_info(model, &info);
  return (size_t)info.tensors;
}

/* Names the entry whose digest changed, where one did. */
static treadle_status find_corrupt(treadle_job *job, const uint64_t *before) {
  treadle_status status = TREADLE_OK;
  size_t entries = count_entries(job->model);
  uint64_t *after = treadle_alloc_array(entries + 1, sizeof *after);
  if (!after) return treadle_fail(TREADLE_NO_MEMORY, "no memory for digests");
  for (int turn = 0; turn < job->session.size && job->plan.lossless; turn++) {
    TRY(treadle_switch_digest_entries(job->sw, turn, after));
    for (size_t i = 0; i < entries; i++) {
      treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
      if (after[i] == before[i]) continue;
      TRY(treadle_model_tensor(job->model, (int32_t)i, &tensor));
      TRY(treadle_fail(TREADLE_DIFFERENT,
                       "the digest of tensor '%s' is %016llx instead of %016llx after the switch to infer",
                       tensor.name, (unsigned long long)after[i], (unsigned long long)before[i]));
    }
  }
out:
  treadle_free(after);
  return status;
}

/* Are params somewhere while the mode is INFER? */
static bool holds_params(const treadle_job *job) {
  return job->options.keep == TREADLE_KEEP_HOST || job->options.offload_train_param == TREADLE_OFF;
}

/* The switch with the fault, the way back where nothing was noticed, and what is left of the old state. */
static void live_through(treadle_job *job, const treadle_fault_spec *fault, last_words *own) {
  treadle_switch *sw = job->sw;
  int rank = job->session.rank;
  uint64_t before = digest_of(sw, job->train, rank);
  uint64_t *entries = treadle_alloc_array(count_entries(job->model) + 1, sizeof *entries);
  bool corrupts = fault->injection.what == TREADLE_INJECT_CORRUPT;
  if (!entries) own->status = treadle_fail(TREADLE_NO_MEMORY, "no memory for digests");
  if (!own->status) own->status = treadle_switch_digest_entries(sw, 0, entries);
  if (!own->status && job->options.host) own->status = treadle_switch_to_host(sw);
  double begin = treadle_clock_seconds();
  bool goes = !own->status;
  if (goes) {
    bool mine = rank == fault->rank || treadle_group_node(job->session.group, rank) == fault->node;
    if (mine) own->status = treadle_switch_inject(sw, fault->injection);
    if (!own->status) own->status = treadle_switch_to_infer(sw);
  }
  if (corrupts && !own->status) own->status = find_corrupt(job, entries);
  if (goes && !corrupts && !own->status)
    own->status = treadle_switch_to_train(sw); /* notices what came last */
  own->seconds = treadle_clock_seconds() - begin;
  snprintf(own->message, sizeof own->message, "%s", own->status ? treadle_error_message() : "");
  treadle_mode mode = treadle_switch_mode(sw);
  if (mode == TREADLE_HOST || (mode == TREADLE_INFER && corrupts)) (void)treadle_switch_to_train(sw);
  if (mode == TREADLE_INFER && !corrupts && holds_params(job)) (void)treadle_switch_return(sw);
  own->unchanged =
      before && treadle_switch_mode(sw) == TREADLE_TRAIN && digest_of(sw, job->train, rank) == before;
  treadle_job_figures(job, &own->figures);
  treadle_free(entries);
}

/* ---- The report ---- */

static bool is_gone(const treadle_job *job, int rank) {
  const treadle_fault_spec *fault = &job->fault;
  bool goes = fault->injection.what == TREADLE_INJECT_KILL || fault->injection.what == TREADLE_INJECT_STALL;
  return goes && (rank == fault->rank || treadle_group_node(job->session.group, rank) == fault->node);
}

static int node_of(const treadle_job *job, int rank) {
  return treadle_group_node(job->session.group, rank);
}

/* The first rank of that node, which carries what its ranks say to other nodes. */
static int leader_of(const treadle_job *job, int rank) {
  int leader = 0;
  while (node_of(job, leader) != node_of(job, rank)) leader++;
  return leader;
}

/* Can that rank be heard by this one? Not across a cut, nor where what carries words between nodes is gone. */
static bool is_heard(const treadle_job *job, int self, int rank) {
  bool cut = job->fault.injection.what == TREADLE_INJECT_CUT && node_of(job, self) != node_of(job, rank) &&
             (node_of(job, self) == job->fault.node || node_of(job, rank) == job->fault.node);
  bool silent = node_of(job, self) != node_of(job, rank) &&
                (is_gone(job, leader_of(job, self)) || is_gone(job, leader_of(job, rank)));
  return !cut && !silent;
}

/* A rank that was stopped is killed by the first other one of its node. */
static void kill_stopped(const treadle_job *job) {
  int self = job->session.rank, first = 0, stopped = job->fault.rank;
  if (job->fault.injection.what != TREADLE_INJECT_STALL) return;
  while (first == stopped || node_of(job, first) != node_of(job, self)) first++;
  pid_t process = (pid_t)treadle_group_process(job->session.group, stopped);
  if (self == first && node_of(job, stopped) == node_of(job, self) && process > 0) kill(process, SIGKILL);
}

/* Reads what the others have to say, and prints all of it. */
static void report_all(treadle_job *job, const last_words *own, double patience) {
  treadle_group *group = job->session.group;
  int size = treadle_group_size(group), self = treadle_group_rank(group);
  treadle_rank_figures *figures = treadle_alloc_array((size_t)size, sizeof *figures);
  treadle_fault_report seen = {.injected = job->asked->fault, .digest_unchanged = true};
  for (int rank = 0; rank < size; rank++) {
    if (is_gone(job, rank) || !is_heard(job, self, rank)) continue;
    const last_words *words = rank == self ? own : treadle_group_hear(group, rank, patience);
    seen.survivors++;
    seen.digest_unchanged = seen.digest_unchanged && words && words->unchanged;
    if (!words) continue;
    seen.returned++;
    seen.leaked += words->leaked;
    if (words->seconds > seen.max_seconds) seen.max_seconds = words->seconds;
    if (figures) figures[rank] = words->figures;
    fprintf(stderr, "treadle switch: rank %d: %s\n", rank,
            words->status ? words->message : "the fault was not noticed: the switch returned as ever");
  }
  treadle_switch_report report = treadle_job_report(job, figures);
  report.fault = &seen;
  if (figures) (job->arguments->json ? treadle_switch_report_json : treadle_switch_report_text)(&report);
  treadle_free(figures);
}

_Noreturn void treadle_job_fault(treadle_job *job) {
  const treadle_fault_spec *fault = &job->fault;
  last_words own = {0};
  treadle_group *group = job->session.group;
  int rank = job->session.rank;
  signal(SIGUSR1, SIG_IGN); /* by which MPICH's launcher tells the others that one has died */
  live_through(job, fault, &own);
  treadle_switch_destroy(job->sw);
  job->sw = NULL;
  own.leaked = count_leaks();
  int lowest = 0;
  while (is_gone(job, lowest) || !is_heard(job, rank, lowest)) lowest++;
  double limit =
      job->options.timeout_seconds > 0 ? job->options.timeout_seconds : job->session.timeout_seconds;
  double patience = 3 * limit + 5;
  treadle_progress_end();
  if (rank != lowest) {
    (void)treadle_group_last_words(group, &own, sizeof own);
    (void)treadle_group_hear(group, lowest,
                             2 * patience); /* a launcher may end all of us when the first leaves */
    kill_stopped(job);
    _exit(TREADLE_EXIT_FAILED);
  }
  report_all(job, &own, patience);
  fflush(NULL);
  kill_stopped(job);
  (void)treadle_group_last_words(group, &own, sizeof own);
  _exit(TREADLE_EXIT_FAILED);
}
