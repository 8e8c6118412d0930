/* Many runs, watched.
 *
 * A worker is a fork of this process that makes, runs and checks one run after another, and tells by a shared page which one,
 * and how far. It ends when its share is done; or with the command, which ends the process itself where ranks could not agree;
 * or badly. The watcher looks at time and memory, finishes the check of a run that ended the worker, and forks the next worker
 * behind it. */
#include "commands/work.h"

#include "base/text.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#define HAS_ASAN __has_feature(address_sanitizer) /* clang */
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1 /* gcc */
#else
#define HAS_ASAN 0
#endif

#if HAS_ASAN
#include <sanitizer/lsan_interface.h>
#define ASKED __attribute__((visibility("default"))) /* the sanitizers' library asks for options */
ASKED const char *__asan_default_options(void);
ASKED const char *__ubsan_default_options(void);
/* Memory that is not there is no crash; a run that was ended for its time says where it was; an error is never taken for the
 * command's own end. */
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1:max_allocation_size_mb=4096:quarantine_size_mb=8:handle_abort=1:"
         "abort_on_error=1:exitcode=99";
}
const char *__ubsan_default_options(void) { return "print_stacktrace=1:abort_on_error=1:exitcode=99"; }
static bool leaks(void) { return __lsan_do_recoverable_leak_check() != 0; }
#else
static bool leaks(void) { return false; }
#endif

enum { SHARE = 300, WALL_SECONDS = 300, LEAK_LOOK = 50, SAY_EACH = 3000, SAID = 1 << 14 };
enum { CPU_SECONDS = 10 * (HAS_ASAN ? 4 : 1) }; /* the sanitizers make three to five of one second */
static const size_t MOST_BYTES = (size_t)1 << 30;

typedef enum state { MAKING, RUNNING, CHECKING, LEAKING, DONE } state;

typedef struct shared_page {
  volatile uint64_t seed; /* of the run at hand; or the number of the case */
  volatile state state;
  volatile double wall, cpu; /* when the run began */
  volatile size_t bytes;     /* resident then */
  volatile size_t allowed;   /* that it may become more */
  volatile int bad;          /* what the worker found itself: 1, and `why` */
  char why[200];
  uint64_t ends[3]; /* runs by exit status: when nearly all are refused, the fuzzer has become blunt */
  fuzz_run run;
} shared_page;

static shared_page *page;
static int out_fd, err_fd; /* files in memory for what a run prints */

static double seconds(clockid_t clock) {
  struct timespec now;
  return clock_gettime(clock, &now) ? 0 : (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- What a process has ------------------------------------------------------------------------ */

static size_t status_bytes(pid_t pid, const char *name) {
  char path[40], line[128];
  size_t kib = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file))
    if (strncmp(line, name, strlen(name)) == 0) kib = strtoull(line + strlen(name), NULL, 10);
  if (file) fclose(file);
  return kib << 10;
}

static int count_descriptors(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/fd");
  if (!dir) return 0;
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

/* Mappings of pools and files. */
static int count_mappings(void) {
  char line[512];
  int count = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  while (file && fgets(line, sizeof line, file)) count += strstr(line, "memfd:") || strstr(line, "/run/");
  if (file) fclose(file);
  return count;
}

/* The largest resident size is counted from here. */
static void reset_peak(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (!file) return;
  fputs("5", file);
  fclose(file);
}

static void read_said(int fd, fuzz_bytes *text) {
  off_t end = lseek(fd, 0, SEEK_END);
  char *bytes = malloc((size_t)end + 1);
  ssize_t count = bytes ? pread(fd, bytes, (size_t)end, 0) : -1;
  fuzz_bytes_replace(text, 0, text->count, bytes, count > 0 ? (size_t)count : 0);
  free(bytes);
}

static void forget_said(void) {
  if (ftruncate(out_fd, 0) || ftruncate(err_fd, 0)) err(3, "ftruncate");
  lseek(out_fd, 0, SEEK_SET);
  lseek(err_fd, 0, SEEK_SET);
}

/* ---- A worker ---------------------------------------------------------------------------------- */

typedef struct share {
  const fuzz_work *work;
  const char *corpus; /* cases in place of seeds */
  const fuzz_files *cases;
  uint64_t next, end;
  bool each_leak; /* look for leaks after each run, to find whose they are */
} share;

static void enter(const fuzz_work *work, const char *name) {
  if (chdir(work->home)) err(3, "%s", work->home);
  fuzz_folder_remove(name);
  fuzz_folder_make(name);
  if (chdir(name)) err(3, "%s", name);
}

static void make(const share *s, uint64_t seed) {
  if (!s->corpus) {
    enter(s->work, "run");
    fuzz_run_make(s->work->base, seed, &page->run);
    return;
  }
  char path[2 * FUZZ_PATH];
  snprintf(path, sizeof path, "%s/%s", s->corpus, s->cases->names[seed]);
  if (chdir(s->work->home)) err(3, "%s", s->work->home);
  fuzz_folder_remove("run");
  fuzz_folder_link(path, "run");
  if (chdir("run") || !fuzz_run_read("command", &page->run)) errx(3, "%s: no case", path);
}

static const char *check_said(int exit_status) {
  fuzz_bytes output = {0}, messages = {0};
  read_said(out_fd, &output);
  read_said(err_fd, &messages);
  const char *wrong = fuzz_run_check(&page->run, exit_status, &output, &messages);
  if (exit_status >= 0 && exit_status < 3) page->ends[exit_status]++;
  fuzz_bytes_release(&output);
  fuzz_bytes_release(&messages);
  return wrong;
}

static void note(const char *why) {
  snprintf(page->why, sizeof page->why, "%s", why);
  page->bad = 1;
}

/* What a switch holds because it was told to: pools and twins of the budget, and of a model of some 100 MB its parameters,
 * gradients, optimizer state, their twins and what --check compares with. */
static size_t asked_bytes(const fuzz_run *run) {
  size_t bytes = 0;
  if (run->count == 0 || strcmp(run->words[0], "switch") != 0) return 0;
  for (int i = 1; i + 1 < run->count; i++)
    if (strcmp(run->words[i], "--budget") == 0)
      (void)treadle_text_to_size("--budget", run->words[i + 1], &bytes);
  return 2 * MOST_BYTES + (bytes < (size_t)1 << 35 ? 2 * bytes : 0);
}

static void work_one(const share *s, uint64_t seed) {
  page->state = MAKING;
  page->seed = seed;
  page->wall = seconds(CLOCK_MONOTONIC);
  page->cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  make(s, seed);
  page->run.continues = fuzz_exists("out");
  forget_said();
  int descriptors = count_descriptors(), mappings = seed % LEAK_LOOK ? 0 : count_mappings();
  reset_peak();
  page->bytes = status_bytes(getpid(), "VmRSS:");
  page->allowed = MOST_BYTES + asked_bytes(&page->run);
  page->wall = seconds(CLOCK_MONOTONIC);
  page->cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  page->state = RUNNING;
  int exit_status = fuzz_run_call(&page->run);
  page->state = CHECKING;
  size_t peak = status_bytes(getpid(), "VmHWM:");
  const char *wrong = check_said(exit_status);
  if (!wrong && peak > page->bytes + page->allowed) wrong = "more than 1 GiB of memory";
  if (!wrong && count_descriptors() != descriptors) wrong = "descriptors are left";
  if (!wrong && !(seed % LEAK_LOOK) && count_mappings() != mappings) wrong = "mappings are left";
  page->state = LEAKING;
  if (!wrong && s->each_leak && leaks()) wrong = "memory is lost";
  if (wrong) note(wrong);
}

static _Noreturn void worker(const share *s) {
  const struct rlimit none = {0, 0};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setrlimit(RLIMIT_CORE, &none);
  signal(SIGXFSZ, SIG_IGN);
  if (dup2(out_fd, STDOUT_FILENO) < 0 || dup2(err_fd, STDERR_FILENO) < 0) _exit(3);
  for (uint64_t seed = s->next; seed < s->end; seed++) {
    work_one(s, seed);
    if (page->bad) _exit(0);
  }
  page->state = LEAKING;
  forget_said();
  if (!s->each_leak && leaks()) note("memory is lost in one of the last runs");
  page->state = DONE;
  _exit(0);
}

/* ---- The watcher ------------------------------------------------------------------------------- */

static double cpu_of(pid_t pid) {
  clockid_t clock;
  return clock_getcpuclockid(pid, &clock) ? 0 : seconds(clock);
}

/* Waits for the worker; ends it when a run is over a limit, and says which. */
static int watch(pid_t pid, const char **over_p) {
  int how, waited = 0, pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
  *over_p = NULL;
  for (;;) {
    struct pollfd watched = {.fd = pid_fd, .events = POLLIN};
    if (poll(&watched, 1, 100) != 0) break;
    if (*over_p && waited++ == 100) kill(pid, SIGKILL); /* did not manage to say where it was */
    if (*over_p || page->state == DONE || page->state == LEAKING) continue;
    double cpu = cpu_of(pid) - page->cpu, wall = seconds(CLOCK_MONOTONIC) - page->wall;
    if (cpu > CPU_SECONDS) *over_p = "too much processor time";
    if (wall > WALL_SECONDS) *over_p = "waits for ever";
    if (page->bytes && status_bytes(pid, "VmRSS:") > page->bytes + page->allowed + MOST_BYTES / 4)
      *over_p = "more than 1 GiB of memory, and growing";
    if (*over_p) {
      kill(pid, SIGCONT);
      kill(pid, SIGABRT);
    }
  }
  if (waitpid(pid, &how, 0) != pid) err(3, "waitpid");
  close(pid_fd);
  return how;
}

/* Says what was found, and keeps it as a case. */
static void report(const share *s, const char *why) {
  fuzz_bytes messages = {0};
  read_said(err_fd, &messages);
  printf("%s %llu: %s\n  treadle", s->corpus ? s->cases->names[page->seed] : "seed",
         (unsigned long long)page->seed, why);
  for (int i = 0; i < page->run.count; i++) printf(" '%s'", page->run.words[i]);
  printf("\n%.*s\n", messages.count < SAID ? (int)messages.count : SAID, messages.count ? messages.at : "");
  fflush(stdout);
  if (*s->work->found && !s->corpus) {
    char path[FUZZ_PATH + 32];
    snprintf(path, sizeof path, "%s/%llu", s->work->found, (unsigned long long)page->seed);
    fuzz_folder_remove(path);
    fuzz_folder_make(path);
    if (chdir(path)) err(3, "%s", path);
    fuzz_run again;
    if (page->state != MAKING) fuzz_run_make(s->work->base, page->seed, &again);
    if (page->state != MAKING) fuzz_run_write("command", &again);
    fuzz_bytes said = {0};
    fuzz_bytes_add(&said, "%s\n", why);
    fuzz_bytes_replace(&said, said.count, 0, messages.at, messages.count);
    fuzz_file_replace("said", said.at, said.count);
    fuzz_bytes_release(&said);
  }
  fuzz_bytes_release(&messages);
}

/* Why the run at which the worker ended is bad; NULL when it is not. */
static const char *judge(int how, const char *over) {
  static char text[80];
  if (over) return over;
  if (WIFSIGNALED(how)) {
    snprintf(text, sizeof text, "ended by signal %d%s", WTERMSIG(how),
             page->state == RUNNING ? "" : " in the fuzzer");
    return text;
  }
  if (page->bad) return page->why;
  if (page->state == RUNNING) return check_said(WEXITSTATUS(how));
  if (page->state == DONE) return NULL;
  return "the fuzzer itself failed";
}

static int work_share(share *s) {
  int bad = 0;
  while (s->next < s->end) {
    const char *over;
    page->bad = 0;
    page->state = MAKING;
    page->bytes = 0;
    page->seed = s->next;
    page->wall = seconds(CLOCK_MONOTONIC);
    page->cpu = 0;
    uint64_t first = s->next;
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) err(3, "fork");
    if (pid == 0) worker(s);
    int how = watch(pid, &over);
    const char *why = judge(how, over);
    bool leak_somewhere = page->bad && page->seed + 1 == s->end && strstr(page->why, "one of the last");
    if (leak_somewhere && !s->each_leak) { /* whose it is */
      s->each_leak = true;
      s->next = first;
      continue;
    }
    if (why) {
      report(s, why);
      bad++;
    }
    s->next = page->state == DONE && !page->bad ? s->end : page->seed + 1;
  }
  return bad;
}

static void prepare(void) {
  page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  out_fd = memfd_create("out", MFD_CLOEXEC);
  err_fd = memfd_create("err", MFD_CLOEXEC);
  if (page == MAP_FAILED || out_fd < 0 || err_fd < 0) err(3, "memory");
}

int fuzz_work_seeds(const fuzz_work *work) {
  int bad = 0;
  if (!page) prepare();
  for (uint64_t from = work->first, end = work->first + work->runs; from < end; from += SHARE) {
    share s = {.work = work, .next = from, .end = from + SHARE < end ? from + SHARE : end};
    bad += work_share(&s);
    if ((from - work->first) % SAY_EACH < SHARE)
      printf("at seed %llu, %d found\n", (unsigned long long)s.end, bad);
    fflush(stdout);
  }
  printf("%llu runs from seed %llu; exit status 0, 1, 2: %llu, %llu, %llu\n",
         (unsigned long long)work->runs, (unsigned long long)work->first, (unsigned long long)page->ends[0],
         (unsigned long long)page->ends[1], (unsigned long long)page->ends[2]);
  return bad;
}

int fuzz_work_corpus(const fuzz_work *work, const char *corpus) {
  static fuzz_files files, cases;
  if (!page) prepare();
  if (!*corpus) return 0;
  fuzz_folder_list(corpus, false, &files);
  for (int i = 0; i < files.count; i++) {
    size_t length = strlen(files.names[i]);
    if (length < 9 || strcmp(files.names[i] + length - 8, "/command") != 0) continue;
    strcpy(cases.names[cases.count], files.names[i]);
    cases.names[cases.count++][length - 8] = 0;
  }
  share s = {.work = work, .corpus = corpus, .cases = &cases, .end = (uint64_t)cases.count};
  int bad = work_share(&s);
  printf("%d cases\n", cases.count);
  return bad;
}
