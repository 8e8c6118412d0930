#include "cuda/fake_parts.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fake_cuda_ledger fake_ledger;

void fake_level_add(fake_cuda_level *level, int64_t count) {
  level->now += (uint64_t)count;
  if (level->now > level->most) level->most = level->now;
}

/* ---- Calls ---- */

#define NAME(name) #name,

static const char *const names[] = {FAKE_CALLS(NAME) "launch"};
static _Atomic uint64_t calls[FAKE_CALL_COUNT];

void fake_count_call(fake_call call) { atomic_fetch_add(&calls[call], 1); }

fake_call fake_call_named(const char *name, size_t length) {
  for (int i = 0; i < FAKE_CALL_COUNT; i++)
    if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) return (fake_call)i;
  return FAKE_CALL_COUNT;
}

FAKE_API uint64_t fake_cuda_calls(const char *name) {
  const fake_call call = fake_call_named(name, strlen(name));
  return call == FAKE_CALL_COUNT ? 0 : atomic_load(&calls[call]);
}

FAKE_API void fake_cuda_ledger_read(fake_cuda_ledger *ledger_p) {
  FAKE_LOCKED;
  *ledger_p = fake_ledger;
}

/* ---- The line ---- */

typedef struct row {
  const char *name;
  const uint64_t *value;
} row;

#define ROW(name)                                                                                          \
  { #name, &fake_ledger.name }
#define LEVEL(name)                                                                                        \
  {#name, &fake_ledger.name.now}, { #name "_most", &fake_ledger.name.most }

static const row rows[] = {ROW(launches),
                           ROW(kernel_bytes),
                           ROW(host_to_device),
                           ROW(device_to_host),
                           ROW(device_to_device),
                           ROW(host_to_host),
                           ROW(set),
                           ROW(created),
                           ROW(imported),
                           ROW(exported),
                           LEVEL(handles),
                           LEVEL(ranges),
                           LEVEL(objects),
                           LEVEL(mappings),
                           LEVEL(mapped_bytes),
                           LEVEL(accessible),
                           LEVEL(accessible_bytes),
                           LEVEL(pinned_bytes),
                           ROW(waiting)};

static void print(FILE *to) {
  fprintf(to, "{\"pid\": %d", (int)getpid());
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    fprintf(to, ", \"%s\": %llu", rows[i].name, (unsigned long long)*rows[i].value);
  fputs(", \"calls\": {", to);
  const char *between = "";
  for (int i = 0; i < FAKE_CALL_COUNT; i++) {
    if (!calls[i]) continue;
    fprintf(to, "%s\"%s\": %llu", between, names[i], (unsigned long long)calls[i]);
    between = ", ";
  }
  fputs("}}\n", to);
}

void fake_ledger_write(void) {
  const char *path = getenv("FAKE_CUDA_LEDGER");
  char *line = NULL;
  size_t bytes = 0;
  if (!path || !*path) return;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  FILE *text = open_memstream(&line, &bytes);
  if (file < 0 || !text) abort();
  print(text);
  fclose(text);
  if (write(file, line, bytes) != (ssize_t)bytes) abort(); /* in one piece: others add theirs */
  close(file);
  free(line);
}
