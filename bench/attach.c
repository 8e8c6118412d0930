/* bench_attach [--layers L] [--scale-down N] [--device DEVICE] [--rounds R]: a window of 2 GB attached in another process.
 *
 * The owner is one rank with megatron:tp=1 to vllm:tp=1 in Llama-2-7B's widths; its infer window lies on pages of 2 MiB as the plan
 * places them. The reader is a process that was made before any of that. Each round it
 *
 *   attach    treadle_attach: asks for the descriptors, maps the window, reads the table of storage tensors
 *   resident  by how much its resident memory has grown then, before it reads
 *   map       for comparison, one mmap of as many bytes of a file, which is the least that could be done
 *   hold      treadle_attached_hold and release
 *   detach
 *
 * On a CUDA device there is no map, and what the driver itself takes of resident memory is not looked at; the window is read by copies to the host.
 * In the end it reads the window twice, holds it, and is killed by SIGKILL while the owner is on its way back to training: how long until the
 * owner has dropped the hold. Medians are printed, and the most for resident. Bars: attach within 10 ms (CUDA: 200 ms), resident under 16 MiB, dropped
 * within 1 s. A missed bar is printed; the exit status is 1 only when something fails. */
#include "bench.h"
#include "treadle_attach.h"

#include "base/clock.h"
#include "base/text.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MOST_ROUNDS = 1000 };
static const double attach_bar = 10e-3, device_attach_bar = 200e-3, drop_bar = 1;
static const int64_t resident_bar = 16 << 20;

typedef struct message { /* of the owner */
  size_t bytes;
  char handle[TREADLE_HANDLE_BYTES];
} message;

typedef struct figures { /* of the reader */
  double attach, map, hold, detach, first_read, second_read;
  int64_t resident;
  size_t bytes;
  int32_t storages;
} figures;

static _Noreturn void give_up(const char *what) {
  fprintf(stderr, "bench_attach: %s: %s\n", what, treadle_error_message());
  exit(1);
}

#define MUST(call)                                                                                         \
  do {                                                                                                     \
    if ((call) != TREADLE_OK) give_up(#call);                                                              \
  } while (0)

static void send_all(int to, const void *bytes, size_t count) {
  if (write(to, bytes, count) != (ssize_t)count) _exit(1);
}
static void get_all(int from, void *bytes, size_t count) {
  for (size_t have = 0; have < count;) {
    ssize_t got = read(from, (char *)bytes + have, count - have);
    if (got <= 0) give_up("the other process is gone");
    have += (size_t)got;
  }
}

/* ---- The reader ---- */

static int64_t resident_bytes(void) {
  long long all = 0, pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (!file || fscanf(file, "%lld %lld", &all, &pages) != 2) give_up("/proc/self/statm");
  fclose(file);
  return pages * (int64_t)sysconf(_SC_PAGESIZE);
}

static bool is_on_host(const treadle_attached *attached) {
  treadle_attached_info info = TREADLE_INIT(treadle_attached_info);
  treadle_attached_get_info(attached, &info);
  return info.memory.kind == TREADLE_MEMORY_HOST;
}

static double read_by_copies(const treadle_attached *attached, size_t bytes) {
  static char part[4 << 20];
  double begin = treadle_clock_seconds();
  for (size_t at = 0; at < bytes; at += sizeof part) {
    size_t left = bytes - at;
    MUST(treadle_attached_read(attached, at, left < sizeof part ? left : sizeof part, part));
  }
  return treadle_clock_seconds() - begin;
}

/* Every cache line once. */
static double read_through(const treadle_attached *attached) {
  size_t bytes;
  const char *window = treadle_attached_window(attached, &bytes);
  if (!is_on_host(attached)) return read_by_copies(attached, bytes);
  double begin = treadle_clock_seconds();
  uint64_t sum = 0;
  for (size_t i = 0; i + sizeof sum <= bytes; i += 64) {
    uint64_t word;
    memcpy(&word, window + i, sizeof word);
    sum += word;
  }
  double seconds = treadle_clock_seconds() - begin;
  if (sum == 1) fprintf(stderr, " "); /* it is used */
  return seconds;
}

static double map_plainly(int file, size_t bytes) {
  double begin = treadle_clock_seconds();
  void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
  double seconds = treadle_clock_seconds() - begin;
  if (at == MAP_FAILED) give_up("mmap");
  munmap(at, bytes);
  return seconds;
}

static treadle_attached *measure(const message *m, int file, figures *f) {
  treadle_attached *attached;
  uint64_t version;
  int64_t before = resident_bytes();
  double begin = treadle_clock_seconds();
  MUST(treadle_attach(m->handle, m->bytes, 10, &attached));
  double end = treadle_clock_seconds();
  f->attach = end - begin;
  f->resident = resident_bytes() - before;
  (void)treadle_attached_window(attached, &f->bytes);
  f->storages = treadle_attached_storage_count(attached);
  if (is_on_host(attached)) {
    if (ftruncate(file, (off_t)f->bytes) != 0) give_up("ftruncate");
    f->map = map_plainly(file, f->bytes);
  }
  begin = treadle_clock_seconds();
  MUST(treadle_attached_hold(attached, &version));
  MUST(treadle_attached_release(attached, version));
  f->hold = treadle_clock_seconds() - begin;
  return attached;
}

static void be_reader(int from, int to, int64_t rounds) {
  message m;
  figures f = {0};
  uint64_t version;
  get_all(from, &m, sizeof m);
  int file = memfd_create("bench", MFD_CLOEXEC);
  for (int64_t i = 0; i < rounds; i++) {
    treadle_attached *attached = measure(&m, file, &f);
    double begin = treadle_clock_seconds();
    treadle_detach(attached);
    f.detach = treadle_clock_seconds() - begin;
    send_all(to, &f, sizeof f);
  }
  treadle_attached *attached = measure(&m, file, &f);
  MUST(treadle_attached_hold(attached, &version));
  f.first_read = read_through(attached);
  f.second_read = read_through(attached);
  send_all(to, &f, sizeof f);
  for (;;) pause(); /* until it is killed, holding */
}

/* ---- The owner ---- */

typedef struct owner {
  treadle_memory memory; /* of the windows */
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_group *group;
  treadle_switch *sw;
} owner;

static void make_owner(owner *o, int64_t layers, int64_t scale_down) {
  char config[400];
  snprintf(config, sizeof config,
           "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 11008, "
           "\"num_hidden_layers\": %" PRId64 ", \"num_attention_heads\": 32, \"num_key_value_heads\": 32, "
           "\"vocab_size\": 32000, \"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false}",
           layers);
  MUST(bench_open_model(config, scale_down, &o->model));
  MUST(treadle_layout_create(o->model, "megatron:tp=1", 1, NULL, &o->train));
  MUST(treadle_layout_create(o->model, "vllm:tp=1", 1, NULL, &o->infer));
  MUST(treadle_group_self(&o->group));
  const treadle_switch_options options = {.struct_size = sizeof options,
                                          .memory = o->memory,
                                          .allow_unfilled = true}; /* what is read are zeros */
  MUST(treadle_switch_create(o->group, o->train, o->infer, &options, &o->sw));
  MUST(treadle_switch_to_infer(o->sw));
}

static void destroy_owner(owner *o) {
  treadle_switch_destroy(o->sw);
  treadle_group_close(o->group);
  treadle_layout_destroy(o->train);
  treadle_layout_destroy(o->infer);
  treadle_model_close(o->model);
}

/* The reader holds; it is killed when the owner waits for it. */
static double drop_hold(owner *o, pid_t reader) {
  treadle_attached *self;
  message m;
  MUST(treadle_switch_handle(o->sw, TREADLE_INFER_PARAMS, m.handle, sizeof m.handle, &m.bytes));
  MUST(treadle_attach(m.handle, m.bytes, 10, &self));
  MUST(treadle_switch_start(o->sw, TREADLE_TRAIN));
  while (treadle_attached_is_valid(self)) {
  }
  treadle_detach(self);
  double begin = treadle_clock_seconds();
  kill(reader, SIGKILL);
  MUST(treadle_switch_wait(o->sw));
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  double seconds = treadle_clock_seconds() - begin;
  treadle_switch_get_stats(o->sw, &stats);
  return seconds - stats.wave_seconds; /* moving the weights back came after it */
}

static void say_bar(const char *what, double value, double bar, const char *unit) {
  printf("  bar: %s %.3f %s, at most %.3f: %s\n", what, value, unit, bar, value <= bar ? "met" : "MISSED");
}

static void report(bool on_host, figures *all, int64_t rounds, const figures *last, double dropped) {
  static double attach[MOST_ROUNDS], map[MOST_ROUNDS], hold[MOST_ROUNDS], detach[MOST_ROUNDS];
  int64_t resident = 0;
  for (int64_t i = 0; i < rounds; i++) {
    attach[i] = all[i].attach;
    map[i] = all[i].map;
    hold[i] = all[i].hold;
    detach[i] = all[i].detach;
    if (all[i].resident > resident) resident = all[i].resident;
  }
  double slowest = 0;
  for (int64_t i = 0; i < rounds; i++) slowest = attach[i] > slowest ? attach[i] : slowest;
  double median = bench_median(attach, (int)rounds);
  printf("attach: a window of %s, %d storage tensors, %" PRId64 " rounds\n",
         treadle_text_of_size(last->bytes), (int)last->storages, rounds);
  printf("  attach %.3f ms (slowest %.3f), hold and release %.4f ms, detach %.3f ms\n", median * 1e3,
         slowest * 1e3, bench_median(hold, (int)rounds) * 1e3, bench_median(detach, (int)rounds) * 1e3);
  if (on_host) printf("  one mmap %.3f ms\n", bench_median(map, (int)rounds) * 1e3);
  printf("  read for the first time %.2f GB/s, again %.2f GB/s (ratio %.2f)\n",
         (double)last->bytes / last->first_read * 1e-9, (double)last->bytes / last->second_read * 1e-9,
         last->second_read / last->first_read);
  say_bar("attach", median * 1e3, (on_host ? attach_bar : device_attach_bar) * 1e3, "ms");
  if (on_host)
    say_bar("resident before it reads", (double)resident / (1 << 20), (double)resident_bar / (1 << 20),
            "MiB");
  say_bar("a killed holder is dropped after", dropped, drop_bar, "s");
}

int main(int count, char **texts) {
  int64_t layers = 4, scale_down = 0, rounds = 21;
  const char *device = NULL;
  static figures all[MOST_ROUNDS];
  figures last;
  owner o = {.memory.kind = TREADLE_MEMORY_HOST};
  message m;
  int there[2], back[2];
  for (int i = 1; i < count; i++) {
    const char *value;
    if ((value = bench_option(texts, &i, "--layers")))
      layers = atoll(value);
    else if ((value = bench_option(texts, &i, "--scale-down")))
      scale_down = atoll(value);
    else if ((value = bench_option(texts, &i, "--device")))
      device = value;
    else if ((value = bench_option(texts, &i, "--rounds")))
      rounds = atoll(value);
    else
      return fprintf(stderr,
                     "usage: bench_attach [--layers L] [--scale-down N] [--device DEVICE] [--rounds R]\n"),
             2;
  }
  if (layers < 1 || scale_down < 0 || rounds < 1 || rounds > MOST_ROUNDS)
    return fprintf(stderr, "1 to %d rounds\n", MOST_ROUNDS), 2;
  if (pipe(there) != 0 || pipe(back) != 0) give_up("pipe");
  pid_t reader = fork();
  if (reader < 0) give_up("fork");
  if (reader == 0) {
    close(there[1]);
    close(back[0]);
    be_reader(there[0], back[1], rounds);
  }
  close(there[0]);
  close(back[1]);
  MUST(
      treadle_device_choose(device, NULL, &o.memory)); /* a driver that was started before would not fork */
  make_owner(&o, layers, scale_down);
  memset(&m, 0, sizeof m);
  MUST(treadle_switch_handle(o.sw, TREADLE_INFER_PARAMS, m.handle, sizeof m.handle, &m.bytes));
  send_all(there[1], &m, sizeof m);
  for (int64_t i = 0; i < rounds; i++) get_all(back[0], &all[i], sizeof all[i]);
  get_all(back[0], &last, sizeof last);
  double dropped = drop_hold(&o, reader);
  waitpid(reader, NULL, 0);
  report(o.memory.kind == TREADLE_MEMORY_HOST, all, rounds, &last, dropped);
  destroy_owner(&o);
  return 0;
}
