/* Processes of one machine: a control block in shared memory, sockets to hand descriptors around, and a
 * descriptor of each process (pidfd) that says whether it still lives.
 *
 * A process number may be used again after a process died, so the start time that a rank gave when it
 * joined is compared once the descriptor is open: the descriptor then stays with that process for good. */
#include "group/shm.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

treadle_status treadle_shm_map_control(treadle_shm *shm) {
  struct stat file;
  if (fstat(shm->control_descriptor, &file) != 0 || (uint64_t)file.st_size != shm->control_bytes)
    return treadle_fail(TREADLE_PEER, "the control block has not the size it should have");
  void *at = mmap(NULL, shm->control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                  shm->control_descriptor, 0);
  if (at == MAP_FAILED)
    return treadle_fail(TREADLE_SYSTEM, "the control block cannot be mapped: %s", strerror(errno));
  shm->control = at;
  return TREADLE_OK;
}

/* Field 22 of /proc/PID/stat; the command, field 2, stands in brackets and may hold anything. */
uint64_t treadle_shm_start_time(pid_t pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  ssize_t length = read(descriptor, text, sizeof text - 1);
  close(descriptor);
  if (length <= 0) return 0;
  text[length] = 0;
  const char *at = strrchr(text, ')');
  unsigned long long ticks = 0;
  if (!at ||
      sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
             &ticks) != 1)
    return 0;
  return ticks;
}

/* ---- Liveness ---- */

treadle_status treadle_shm_process(pid_t pid, uint64_t start_time, const char *who, int *process_p) {
  int process = (int)syscall(SYS_pidfd_open, pid, 0);
  if (process < 0 && errno != ESRCH)
    return treadle_fail(TREADLE_SYSTEM, "%s (process %d) cannot be watched: %s", who, (int)pid,
                        strerror(errno));
  if (process >= 0 && treadle_shm_start_time(pid) != start_time) {
    close(process);
    process = -1;
  }
  *process_p = process;
  return TREADLE_OK;
}

bool treadle_shm_is_alive(int process) {
  struct pollfd one = {.fd = process, .events = POLLIN};
  if (process < 0) return false;
  return poll(&one, 1, 0) == 0 || !(one.revents & POLLIN);
}

static treadle_status watch_processes(treadle_shm *shm) {
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < shm->size; rank++) {
    const treadle_rank_line *line = &shm->control->lines[rank];
    char who[24];
    snprintf(who, sizeof who, "rank %d", rank);
    TRY(treadle_shm_process((pid_t)atomic_load(&line->pid), atomic_load(&line->start_time), who,
                            &shm->processes[rank]));
  }
out:
  return status;
}

static bool shm_alive(treadle_group *group, int rank) {
  const treadle_shm *shm = group->state;
  return treadle_shm_is_alive(shm->processes[rank]);
}

/* ---- The table ---- */

static void release(treadle_shm *shm) {
  for (int i = 0; i < shm->size; i++) {
    if (shm->sockets && shm->sockets[i] >= 0) close(shm->sockets[i]);
    if (shm->processes && shm->processes[i] >= 0) close(shm->processes[i]);
  }
  if (shm->control) munmap(shm->control, shm->control_bytes);
  if (shm->control_descriptor >= 0) close(shm->control_descriptor);
  treadle_free(shm->sockets);
  treadle_free(shm->processes);
  treadle_free(shm->counts);
  treadle_free(shm);
}

static void shm_destroy(treadle_group *group) { release(group->state); }

static const treadle_group_ops shm_ops = {"shared memory", &treadle_shm_link, shm_alive, shm_destroy};

treadle_status treadle_shm_check_rank(const char *what, int rank, int size) {
  if (size >= 1 && size <= TREADLE_GROUP_MAX && rank >= 0 && rank < size) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "group '%.80s': rank %d of %d; a group has 1 to %d ranks", what,
                      rank, size, TREADLE_GROUP_MAX);
}

treadle_status treadle_shm_open(const treadle_shm_name *naming, int rank, int size, double timeout_seconds,
                                treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = NULL;
  treadle_shm *shm = NULL;
  double deadline = treadle_clock_seconds() + timeout_seconds;
  shm = treadle_alloc(sizeof *shm);
  if (!shm) return treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
  shm->control_descriptor = -1;
  shm->size = size;
  shm->sockets = treadle_alloc_array((size_t)size, sizeof *shm->sockets);
  shm->processes = treadle_alloc_array((size_t)size, sizeof *shm->processes);
  shm->counts = treadle_alloc_array((size_t)size, sizeof *shm->counts);
  for (int i = 0; i < size; i++) {
    if (shm->sockets) shm->sockets[i] = -1;
    if (shm->processes) shm->processes[i] = -1;
  }
  if (!shm->sockets || !shm->processes || !shm->counts) {
    status = treadle_fail(TREADLE_NO_MEMORY, "group: memory is out");
    goto out;
  }
  TRY(treadle_group_make(&shm_ops, rank, size, timeout_seconds, NULL, shm, &group));
  TRY(treadle_shm_meet(shm, naming, rank, size, deadline));
  group->control = shm->control;
  TRY(watch_processes(shm));
  group->timeout_seconds = deadline - treadle_clock_seconds(); /* what is left; maybe none */
  TRY(treadle_group_barrier(group));
  group->timeout_seconds = timeout_seconds;
  *group_p = group;
out:
  if (status != TREADLE_OK && group && group->control) {
    treadle_group_fail(group);
    treadle_group_close(group);
  } else if (status != TREADLE_OK && shm) {
    release(shm);
    treadle_free(group);
  }
  return status;
}

/* ---- A name that is given ---- */

static treadle_status find_given(void *context, double deadline, char *name) {
  (void)deadline;
  snprintf(name, TREADLE_SHM_NAME, "%s", *(const char **)context);
  return TREADLE_OK;
}

treadle_status treadle_group_open(const char *name, int rank, int size, double timeout_seconds,
                                  treadle_group **group_p) {
  treadle_status status = TREADLE_OK;
  struct sockaddr_un address;
  socklen_t length;
  TREADLE_NEED(group_p);
  *group_p = NULL;
  TREADLE_NEED(name);
  TRY(TREADLE_CHECK_SECONDS(timeout_seconds));
  TRY(treadle_shm_check_rank(name, rank, size));
  TRY(treadle_shm_address(name, &address, &length));
  TRY(treadle_shm_open(&(treadle_shm_name){find_given, &name}, rank, size, timeout_seconds, group_p));
out:
  return status;
}
