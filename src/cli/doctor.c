/* treadle doctor: what this machine has and lacks. One function a question, all in one table; an answer has
 * a level, what was found, and what to do about it. */
#include "cli/doctor.h"
#include "cli/cli.h"

#include "base/text.h"
#include "treadle_tools.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

static const size_t kib = 1024, mib = (size_t)1 << 20;

/* The first line of a small file, without its end; false when it cannot be read. */
static bool read_line(const char *path, char *line, size_t capacity) {
  FILE *file = fopen(path, "re");
  if (!file) return false;
  bool read = fgets(line, (int)capacity, file) != NULL;
  fclose(file);
  if (read) line[strcspn(line, "\n")] = 0;
  return read;
}

/* ---- Starting ranks -------------------------------------------------------------------------- */

static void ask_launcher(doctor_answer *answer) {
  static const char *const launchers[] = {"mpirun", "mpiexec"};
  for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
    char command[64], line[160] = "";
    SAY(command, "%s --version 2>/dev/null", launchers[i]);
    FILE *pipe = popen(command, "r");
    if (!pipe) continue;
    while (!line[0] && fgets(line, sizeof line, pipe)) line[strcspn(line, "\n")] = 0;
    if (pclose(pipe) != 0 || !line[0]) continue;
    SAY(answer->found, "%s: %s", launchers[i], line);
    return;
  }
  answer->level = WARNING;
  SAY(answer->found, "neither mpirun nor mpiexec");
  SAY(answer->advice, "treadle switch runs one process a rank: install openmpi-bin or mpich");
}

/* ---- Limits ---------------------------------------------------------------------------------- */

static void ask_mappings(doctor_answer *answer) {
  char line[64];
  int64_t limit;
  if (!read_line("/proc/sys/vm/max_map_count", line, sizeof line) || !treadle_text_to_int64(line, &limit)) {
    answer->level = WARNING;
    SAY(answer->found, "vm.max_map_count cannot be read");
    return;
  }
  SAY(answer->found, "%lld mappings a process", (long long)limit);
  if (limit >= 65530) return;
  answer->level = WARNING;
  SAY(answer->advice,
      "windows of many scattered pages need more: sysctl -w vm.max_map_count=262144, or larger "
      "pages with --page-size");
}

static const char *limit_text(rlim_t limit, bool bytes) {
  static char text[32];
  if (limit == RLIM_INFINITY) return "unlimited";
  if (bytes) return treadle_text_of_size((size_t)limit);
  SAY(text, "%llu", (unsigned long long)limit);
  return text;
}

static void ask_files(doctor_answer *answer) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return;
  SAY(answer->found, "%s open files", limit_text(limit.rlim_cur, false));
  if (limit.rlim_cur >= 1024) return;
  answer->level = WARNING;
  SAY(answer->advice,
      "a rank opens a few files for each peer of its machine: ulimit -n 4096 (at most %s here)",
      limit_text(limit.rlim_max, false));
}

static void ask_locked_memory(doctor_answer *answer) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit)) return;
  SAY(answer->found, "%s of locked memory", limit_text(limit.rlim_cur, true));
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= 64 * kib) return;
  answer->level = WARNING;
  SAY(answer->advice, "networks and devices that register memory need more: ulimit -l unlimited");
}

/* ---- Shared memory --------------------------------------------------------------------------- */

static void ask_shared_memory(doctor_answer *answer) {
  struct statvfs about;
  if (statvfs("/dev/shm", &about)) {
    answer->level = WARNING;
    SAY(answer->found, "/dev/shm: %s", strerror(errno));
    SAY(answer->advice, "MPI launchers keep their buffers there: mount -t tmpfs tmpfs /dev/shm");
    return;
  }
  size_t size = (size_t)about.f_blocks * about.f_frsize,
         available = (size_t)about.f_bavail * about.f_frsize;
  SAY(answer->found, "/dev/shm: %s, %s free", treadle_text_of_size(size), treadle_text_of_size(available));
  if (available >= 64 * mib) return;
  answer->level = WARNING;
  SAY(answer->advice,
      "MPI launchers keep their buffers there; pools do not. In a container: --shm-size=1g");
}

static void ask_memfd(doctor_answer *answer) {
  size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
  int descriptor = memfd_create("treadle-doctor", MFD_CLOEXEC);
  void *page = MAP_FAILED;
  if (descriptor >= 0 && ftruncate(descriptor, (off_t)bytes) == 0)
    page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (page != MAP_FAILED) {
    memset(page, 1, bytes);
    munmap(page, bytes);
    SAY(answer->found, "files without a name (memfd) work");
  } else {
    answer->level = MISSING;
    SAY(answer->found, "files without a name (memfd): %s", strerror(errno));
    SAY(answer->advice,
        "pools live in them: a Linux of 3.17 or later, and a sandbox that allows memfd_create");
  }
  if (descriptor >= 0) close(descriptor);
}

static void ask_pidfd(doctor_answer *answer) {
  int descriptor = (int)syscall(SYS_pidfd_open, getpid(), 0);
  if (descriptor >= 0) {
    SAY(answer->found, "processes can be watched (pidfd)");
    close(descriptor);
    return;
  }
  answer->level = WARNING;
  SAY(answer->found, "processes cannot be watched (pidfd): %s", strerror(errno));
  SAY(answer->advice,
      "a rank that dies may be noticed only when a wait runs into --timeout; Linux 5.3 has it");
}

static void ask_huge_pages(doctor_answer *answer) {
  char line[160];
  if (!read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", line, sizeof line)) {
    SAY(answer->found, "huge pages for shared memory: the system does not tell");
    return;
  }
  SAY(answer->found, "huge pages for shared memory: %s", line);
  if (!strstr(line, "[never]") && !strstr(line, "[deny]")) return;
  answer->level = WARNING;
  SAY(answer->advice, "pools could use 2 MiB pages of the processor, which makes touching them faster: "
                      "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

/* ---- The machine ----------------------------------------------------------------------------- */

static void ask_cores(doctor_answer *answer) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int usable = sched_getaffinity(0, sizeof set, &set) ? 0 : CPU_COUNT(&set);
  SAY(answer->found, "%d cores for this process, %ld in the machine", usable,
      sysconf(_SC_NPROCESSORS_ONLN));
  if (usable == 1) SAY(answer->advice, "more ranks than cores work, but take turns");
}

/* What products can be computed by; the last is the one that is taken. */
static void ask_kernels(doctor_answer *answer) {
  size_t used = 0;
  for (int32_t i = 0; i < treadle_machine_kernel_count(); i++) {
    treadle_kernel_info kernel = TREADLE_INIT(treadle_kernel_info);
    if (treadle_machine_kernel(i, &kernel) != TREADLE_OK || used >= sizeof answer->found) continue;
    used += (size_t)snprintf(answer->found + used, sizeof answer->found - used, "%s%s%s%s%s",
                             used ? ", " : "", kernel.name,
                             kernel.usable ? "" : " (not here: ", kernel.lacks, kernel.usable ? "" : ")");
  }
}

/* What ranks on different nodes send each other messages by. */
static void ask_nets(doctor_answer *answer) {
  size_t used = 0;
  for (int32_t i = 0; i < treadle_machine_net_count(); i++) {
    treadle_net_info net = TREADLE_INIT(treadle_net_info);
    if (treadle_machine_net(i, &net) != TREADLE_OK || used >= sizeof answer->found) continue;
    used += (size_t)snprintf(answer->found + used, sizeof answer->found - used, "%s%s%s%s%s%s%s",
                             used ? "; " : "", net.name, net.version[0] ? " " : "", net.version,
                             net.usable ? " (" : ": not here", net.usable ? net.devices : "",
                             net.usable ? ")" : "");
    if (net.usable) continue;
    answer->level = WARNING;
    SAY(answer->advice, "%s", net.lacks);
  }
}

static const char *const lacking = "treadle plan --model ... says what a switch takes on each rank";

static treadle_limit_info limit_of(treadle_limit_kind kind) {
  treadle_limit_info limit = TREADLE_INIT(treadle_limit_info);
  (void)treadle_machine_limit(kind, &limit);
  return limit;
}

/* What the machine has, and below, what limits this process. */
static void ask_memory(doctor_answer *answer) {
  treadle_limit_info limit = limit_of(TREADLE_OF_MACHINE);
  if (limit.limited)
    SAY(answer->found, "%s of memory, %s available", treadle_text_of_size(limit.bytes),
        treadle_text_of_size(limit.left));
  else
    SAY(answer->found, "the system does not tell");
  if (limit.limited && limit.left >= 1024 * mib) return;
  answer->level = WARNING;
  SAY(answer->advice, "%s", lacking);
}

/* The control group that leaves least, of all that this process lies in. */
static void ask_control_group(doctor_answer *answer) {
  treadle_limit_info limit = limit_of(TREADLE_OF_GROUP);
  if (!limit.limited) {
    SAY(answer->found, "no control group limits the memory");
    return;
  }
  SAY(answer->found, "%s: %s of %s left", limit.text, treadle_text_of_size(limit.left),
      treadle_text_of_size(limit.bytes));
  if (limit.left >= 1024 * mib) return;
  answer->level = WARNING;
  SAY(answer->advice, "%s; a container gets more with --memory", lacking);
}

static void ask_addresses(doctor_answer *answer) {
  treadle_limit_info limit = limit_of(TREADLE_OF_ADDRESSES);
  if (!limit.limited) {
    SAY(answer->found, "addresses are unlimited");
    return;
  }
  SAY(answer->found, "%s: %s of %s left", limit.text, treadle_text_of_size(limit.left),
      treadle_text_of_size(limit.bytes));
  answer->level = WARNING;
  SAY(answer->advice, "each rank maps the memory of all ranks of its machine: ulimit -v unlimited");
}

/* ---- The command ----------------------------------------------------------------------------- */

static const struct {
  const char *name;
  void (*ask)(doctor_answer *answer);
} questions[] = {
    {"launcher", ask_launcher},
    {"mappings", ask_mappings},
    {"files", ask_files},
    {"locked memory", ask_locked_memory},
    {"shared memory", ask_shared_memory},
    {"memfd", ask_memfd},
    {"pidfd", ask_pidfd},
    {"huge pages", ask_huge_pages},
    {"cores", ask_cores},
    {"kernels", ask_kernels},
    {"nets", ask_nets},
    {"memory", ask_memory},
    {"control group", ask_control_group},
    {"addresses", ask_addresses},
};

static void print_kernels(treadle_json_out *out) {
  treadle_json_out_open(out, "kernels", '[');
  for (int32_t i = 0; i < treadle_machine_kernel_count(); i++) {
    treadle_kernel_info kernel = TREADLE_INIT(treadle_kernel_info);
    if (treadle_machine_kernel(i, &kernel) != TREADLE_OK) continue;
    treadle_json_out_open(out, NULL, '{');
    treadle_json_out_text(out, "name", kernel.name);
    treadle_json_out_text(out, "needs", kernel.needs);
    treadle_json_out_bool(out, "usable", kernel.usable);
    treadle_json_out_text(out, "lacks", kernel.usable ? NULL : kernel.lacks);
    treadle_json_out_close(out, '}');
  }
  treadle_json_out_close(out, ']');
}

static void print_nets(treadle_json_out *out) {
  treadle_json_out_open(out, "nets", '[');
  for (int32_t i = 0; i < treadle_machine_net_count(); i++) {
    treadle_net_info net = TREADLE_INIT(treadle_net_info);
    if (treadle_machine_net(i, &net) != TREADLE_OK) continue;
    treadle_json_out_open(out, NULL, '{');
    treadle_json_out_text(out, "name", net.name);
    treadle_json_out_bool(out, "usable", net.usable);
    treadle_json_out_text(out, "version", net.version[0] ? net.version : NULL);
    treadle_json_out_text(out, "devices", net.usable ? net.devices : NULL);
    treadle_json_out_text(out, "lacks", net.usable ? NULL : net.lacks);
    treadle_json_out_close(out, '}');
  }
  treadle_json_out_close(out, ']');
}

/* What the command has said so far. */
typedef struct doctor {
  bool json;
  treadle_json_out out;
  doctor_level worst;
} doctor;

static const char *const level_texts[] = {"ok", "warn", "missing"};

static void say(doctor *d, const char *name, const doctor_answer *answer) {
  if (answer->level > d->worst) d->worst = answer->level;
  if (!d->json) {
    printf("%-8s %-14s %s\n", level_texts[answer->level], name, answer->found);
    if (answer->advice[0]) printf("%23s %s\n", "->", answer->advice);
    return;
  }
  treadle_json_out_open(&d->out, NULL, '{');
  treadle_json_out_text(&d->out, "name", name);
  treadle_json_out_text(&d->out, "level", level_texts[answer->level]);
  treadle_json_out_text(&d->out, "found", answer->found);
  treadle_json_out_text(&d->out, "advice", answer->advice[0] ? answer->advice : NULL);
  treadle_json_out_close(&d->out, '}');
}

static void say_devices(doctor *d, const doctor_devices *devices) {
  doctor_answer answer = {.level = FINE};
  doctor_devices_answer(devices, &answer);
  say(d, "devices", &answer);
  for (int32_t i = 0; i < devices->count; i++) {
    char name[32];
    SAY(name, "device %d", (int)i);
    answer = (doctor_answer){.level = FINE};
    doctor_device_answer(devices, i, &answer);
    say(d, name, &answer);
  }
}

int treadle_command_doctor(const treadle_arguments *arguments) {
  doctor d = {.json = arguments->json, .out = {.file = stdout}, .worst = FINE};
  doctor_devices devices;
  if (d.json) {
    treadle_json_out_open(&d.out, NULL, '{');
    treadle_json_out_open(&d.out, "checks", '[');
  }
  for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
    doctor_answer answer = {.level = FINE};
    questions[i].ask(&answer);
    say(&d, questions[i].name, &answer);
  }
  doctor_devices_find(&devices);
  say_devices(&d, &devices);
  if (d.json) {
    treadle_json_out_close(&d.out, ']');
    print_kernels(&d.out);
    print_nets(&d.out);
    doctor_devices_print(&devices, &d.out);
    treadle_json_out_text(&d.out, "worst", level_texts[d.worst]);
    treadle_json_out_close(&d.out, '}');
  }
  doctor_devices_release(&devices);
  return treadle_finish_output("doctor", d.worst == MISSING ? TREADLE_EXIT_FAILED : TREADLE_EXIT_OK);
}
