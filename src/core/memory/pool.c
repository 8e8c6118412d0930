/* Pools.
 *
 *   1. The file holds exactly pages * page_bytes: every page is touched once when the pool is made, and no hole
 *      is punched but by treadle_pool_trim(), between switches.
 *   2. The whole file is mapped once, at `base`, for the life of the pool; windows are further mappings of
 *      the same pages.
 *   3. Nothing here is called during a switch, but treadle_pool_remap and treadle_pool_follow by an update that doubles its
 *      infer window.
 *
 * Touching. A fault a page makes 0.4 GB/s, asking the kernel for the whole range at once several times
 * that, and with huge pages it is 512 times fewer pages. The kernel gives them to a memfd only where the
 * file is touched through a mapping that asks for them (shmem_enabled=advise), at addresses that are
 * congruent with the file offset: so all mappings begin at 2 MiB. Where it gives none, all is the same but
 * slower. Pages smaller than 2 MiB do not ask: a huge page would reach over the end of the file, and
 * held_bytes would be more.
 *
 * Windows. An address range is reserved and then covered, run by run of adjacent physical pages, by
 * mappings that replace it. Each run is a mapping of the process, of which the kernel allows max_map_count
 * (65,530). */
#include "memory/pool.h"

#include "base/alloc.h"
#include "base/text.h"
#include "memory/parking.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MREMAP_DONTUNMAP /* older headers */
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_POPULATE_READ /* Linux 5.14; older headers */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

enum { SPARE_MAPPINGS = 1024 };

typedef struct window {
  char *base;
  size_t bytes;
  int64_t runs; /* mappings that it has needed at the most */
  treadle_parking parking;
  struct window *next;
} window;

struct treadle_pool {
  int descriptor;
  int64_t pages, page_bytes;
  char *base;
  int64_t mappings; /* of all windows together */
  window *windows;
};

static bool wants_huge(int64_t page_bytes) { return page_bytes % TREADLE_HUGE_PAGE == 0; }

/* An address range without memory that begins at 2 MiB. */
static treadle_status reserve(size_t bytes, char **base_p) {
  size_t room = bytes + TREADLE_HUGE_PAGE;
  char *start = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    return treadle_fail(TREADLE_NO_MEMORY, "no address range of %s: %s", treadle_text_of_size(bytes),
                        strerror(errno));
  char *base = start + (TREADLE_HUGE_PAGE - (uintptr_t)start % TREADLE_HUGE_PAGE) % TREADLE_HUGE_PAGE;
  if (base > start) munmap(start, (size_t)(base - start));
  munmap(base + bytes, room - bytes - (size_t)(base - start));
  *base_p = base;
  return TREADLE_OK;
}

/* Enters the pages of a range in the page table, so that a switch does not fault. Old kernels refuse the
 * advice; then a byte of each page is read. */
static void populate(char *base, size_t bytes) {
  if (madvise(base, bytes, MADV_POPULATE_READ) == 0) return;
  size_t step = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < bytes; i += step) (void)*(volatile char *)(base + i);
}

static treadle_status no_pages(const treadle_pool *pool) {
  return treadle_fail(TREADLE_NO_MEMORY, "pool: the system has no %s (%" PRId64 " pages of %s): %s",
                      treadle_text_of_size(treadle_pool_bytes(pool)), pool->pages,
                      treadle_text_of_size((size_t)pool->page_bytes), strerror(errno));
}

/* Gives the file its pages. */
static treadle_status touch(treadle_pool *pool) {
  size_t bytes = treadle_pool_bytes(pool);
  if (wants_huge(pool->page_bytes)) {
    madvise(pool->base, bytes, MADV_HUGEPAGE);
    if (madvise(pool->base, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) return no_pages(pool);
  }
  /* What the advice did not give: everything with small pages or on an old kernel. */
  if (fallocate(pool->descriptor, 0, 0, (off_t)bytes) != 0) return no_pages(pool);
  populate(pool->base, bytes);
  return TREADLE_OK;
}

bool treadle_pool_is_huge(int64_t page_bytes) {
  char line[160] = "";
  if (!wants_huge(page_bytes)) return false;
  FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
  if (!file) return false;
  bool read = fgets(line, sizeof line, file) != NULL;
  fclose(file);
  return read && !strstr(line, "[never]") && !strstr(line, "[deny]");
}

static treadle_status check_size(int64_t pages, int64_t page_bytes, int64_t budget_bytes) {
  int64_t system_page = sysconf(_SC_PAGESIZE);
  if (page_bytes < system_page || (page_bytes & (page_bytes - 1)) != 0)
    return treadle_fail(TREADLE_REFUSED,
                        "page size %" PRId64 " is not a power of two of at least %" PRId64 " bytes",
                        page_bytes, system_page);
  if (pages < 0 || pages > INT32_MAX || pages > INT64_MAX / page_bytes)
    return treadle_fail(TREADLE_REFUSED, "pool of %" PRId64 " pages of %" PRId64 " bytes", pages,
                        page_bytes);
  if (pages * page_bytes > budget_bytes)
    return treadle_fail(TREADLE_NO_MEMORY,
                        "pool: %" PRId64 " pages of %s are %" PRId64 " bytes, the budget is %" PRId64
                        " bytes",
                        pages, treadle_text_of_size((size_t)page_bytes), pages * page_bytes, budget_bytes);
  return TREADLE_OK;
}

treadle_status treadle_pool_create(int64_t pages, int64_t page_bytes, int64_t budget_bytes,
                                   treadle_pool **pool_p) {
  treadle_status status = TREADLE_OK;
  treadle_pool *pool = NULL;
  *pool_p = NULL;
  TRY(check_size(pages, page_bytes, budget_bytes));
  pool = treadle_alloc(sizeof *pool);
  if (!pool) return treadle_fail(TREADLE_NO_MEMORY, "pool: memory is out");
  pool->pages = pages;
  pool->page_bytes = page_bytes;
  pool->descriptor = memfd_create("treadle-pool", MFD_CLOEXEC);
  size_t bytes = treadle_pool_bytes(pool);
  if (pool->descriptor < 0 || ftruncate(pool->descriptor, (off_t)bytes) != 0) {
    status = treadle_fail(TREADLE_SYSTEM, "pool: no file of %s: %s", treadle_text_of_size(bytes),
                          strerror(errno));
    goto out;
  }
  if (bytes > 0) {
    char *base;
    TRY(reserve(bytes, &base));
    pool->base = base;
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pool->descriptor, 0) ==
        MAP_FAILED) {
      status = treadle_fail(TREADLE_SYSTEM, "pool: its file cannot be mapped: %s", strerror(errno));
      goto out;
    }
    TRY(touch(pool));
  }
  *pool_p = pool;
out:
  if (status != TREADLE_OK) treadle_pool_destroy(pool);
  return status;
}

void treadle_pool_destroy(treadle_pool *pool) {
  if (!pool) return;
  while (pool->windows) {
    window *w = pool->windows;
    pool->windows = w->next;
    munmap(w->base, w->bytes);
    treadle_parking_release(&w->parking);
    treadle_free(w);
  }
  if (pool->base) munmap(pool->base, treadle_pool_bytes(pool));
  if (pool->descriptor >= 0) close(pool->descriptor);
  treadle_free(pool);
}

size_t treadle_pool_bytes(const treadle_pool *pool) { return (size_t)(pool->pages * pool->page_bytes); }
void *treadle_pool_base(const treadle_pool *pool) { return pool->base; }

size_t treadle_pool_held_bytes(const treadle_pool *pool) {
  struct stat file;
  return fstat(pool->descriptor, &file) == 0 ? (size_t)file.st_blocks * 512 : 0;
}

treadle_status treadle_pool_trim(treadle_pool *pool, const uint8_t *classes, uint8_t nobody) {
  for (int64_t i = 0, end; i < pool->pages; i = end + 1) {
    for (end = i; end < pool->pages && classes[end] == nobody; end++) {
    }
    if (end > i && fallocate(pool->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                             (off_t)(i * pool->page_bytes), (off_t)((end - i) * pool->page_bytes)) != 0)
      return treadle_fail(TREADLE_SYSTEM, "pool: pages cannot be given back: %s", strerror(errno));
  }
  return TREADLE_OK;
}

/* ---- Windows ---- */

/* Pages after `first` that follow each other in the file too, or are holes too: the length of the run. */
static int64_t run_length(const int32_t *table, int64_t pages, int64_t first) {
  int64_t end = first + 1;
  while (end < pages && (table[first] < 0 ? table[end] < 0 : table[end] == table[end - 1] + 1)) end++;
  return end - first;
}

static int64_t mappings_allowed(void) {
  int64_t allowed = 65530;
  FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
  if (!file) return allowed;
  if (fscanf(file, "%" SCNd64, &allowed) != 1) allowed = 65530;
  fclose(file);
  return allowed;
}

static int64_t count_runs(const int32_t *table, int64_t pages) {
  int64_t runs = 0;
  for (int64_t i = 0; i < pages; i += run_length(table, pages, i)) runs++;
  return runs;
}

/* A window of that many pages, beside `others` mappings. */
static treadle_status check_mappings(const int32_t *table, int64_t pages, int64_t page_bytes,
                                     int64_t others, int64_t *runs_p) {
  int64_t runs = *runs_p = count_runs(table, pages), allowed = mappings_allowed();
  if (runs + others + SPARE_MAPPINGS <= allowed) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "a window of %" PRId64 " pages of %s needs %" PRId64 " mappings beside %" PRId64
                      " of this pool, the system allows a process %" PRId64
                      ": larger pages need fewer, or raise vm.max_map_count",
                      pages, treadle_text_of_size((size_t)page_bytes), runs, others, allowed);
}

/* The next pages from *first_p on that are no holes: *first_p to *end_p. */
static bool next_stretch(const int32_t *table, int64_t pages, int64_t *first_p, int64_t *end_p) {
  while (*first_p < pages && table[*first_p] < 0) ++*first_p;
  for (*end_p = *first_p; *end_p < pages && table[*end_p] >= 0; ++*end_p) {
  }
  return *first_p < pages;
}

/* What lies at `base` becomes the window, run by run. Holes stay addresses that cannot be touched. */
static treadle_status cover(char *base, int descriptor, const int32_t *table, int64_t pages,
                            int64_t page_bytes, int use) {
  size_t page = (size_t)page_bytes;
  for (int64_t i = 0, length; i < pages; i += length) {
    length = run_length(table, pages, i);
    if (table[i] < 0) continue;
    char *at = mmap(base + (size_t)i * page, (size_t)length * page, use, MAP_SHARED | MAP_FIXED, descriptor,
                    (off_t)((size_t)table[i] * page));
    if (at == MAP_FAILED)
      return treadle_fail(TREADLE_SYSTEM, "pool: page %" PRId64 " of a window cannot be mapped: %s", i,
                          strerror(errno));
  }
  for (int64_t i = 0, end; wants_huge(page_bytes) && next_stretch(table, pages, &i, &end); i = end)
    madvise(base + (size_t)i * page, (size_t)(end - i) * page, MADV_HUGEPAGE);
  return TREADLE_OK;
}

/* The window at `base` lies on those pages, and is entered. */
static treadle_status fill_in(const treadle_pool *pool, char *base, const int32_t *table, int64_t pages) {
  treadle_status status =
      cover(base, pool->descriptor, table, pages, pool->page_bytes, PROT_READ | PROT_WRITE);
  for (int64_t i = 0, end; status == TREADLE_OK && next_stretch(table, pages, &i, &end); i = end)
    populate(base + (size_t)(i * pool->page_bytes), (size_t)((end - i) * pool->page_bytes));
  return status;
}

treadle_status treadle_pool_map(treadle_pool *pool, const int32_t *table, int64_t pages, void **base_p) {
  treadle_status status = TREADLE_OK;
  window *w = NULL;
  int64_t runs;
  *base_p = NULL;
  if (pages == 0) return TREADLE_OK;
  TRY(check_mappings(table, pages, pool->page_bytes, pool->mappings, &runs));
  w = treadle_alloc(sizeof *w);
  if (!w) return treadle_fail(TREADLE_NO_MEMORY, "pool: memory is out");
  size_t bytes = (size_t)(pages * pool->page_bytes);
  TRY(reserve(bytes, &w->base));
  w->bytes = bytes;
  TRY(fill_in(pool, w->base, table, pages));
  w->runs = runs;
  w->next = pool->windows;
  pool->windows = w;
  pool->mappings += runs;
  *base_p = w->base;
out:
  if (status != TREADLE_OK && w) {
    if (w->base) munmap(w->base, w->bytes);
    treadle_free(w);
  }
  return status;
}

static window *find_window(const treadle_pool *pool, const void *base) {
  window *w = pool->windows;
  while (w && w->base != base) w = w->next;
  return w;
}

treadle_status treadle_pool_remap(treadle_pool *pool, void *base, const int32_t *table, int64_t pages) {
  treadle_status status = TREADLE_OK;
  window *w = find_window(pool, base);
  int64_t runs = count_runs(table, pages);
  if (pages == 0) return TREADLE_OK;
  if (!w || w->bytes != (size_t)(pages * pool->page_bytes))
    return treadle_fail(TREADLE_SYSTEM, "pool: it has no window of %" PRId64 " pages there", pages);
  if (runs > w->runs) TRY(check_mappings(table, pages, pool->page_bytes, pool->mappings - w->runs, &runs));
  TRY(fill_in(pool, w->base, table, pages));
  if (runs <= w->runs) return TREADLE_OK;
  pool->mappings += runs - w->runs;
  w->runs = runs;
out:
  return status;
}

treadle_status treadle_pool_close_window(treadle_pool *pool, void *base, size_t bytes, bool closed) {
  treadle_status status = TREADLE_OK;
  window *w = find_window(pool, base);
  if (bytes == 0) return TREADLE_OK;
  if (!w || w->bytes != bytes)
    return treadle_fail(TREADLE_SYSTEM, "pool: it has no window of %zu bytes there", bytes);
  if (!w->parking.window) TRY(treadle_parking_init(&w->parking, base, bytes));
  if (closed)
    treadle_parking_close(&w->parking);
  else if (!treadle_parking_open(&w->parking))
    status = treadle_fail(TREADLE_SYSTEM, "pool: a window of %zu bytes cannot be opened for writing again",
                          bytes);
out:
  return status;
}

/* Page tables and all; what is left at `from` is mapped, without pages. The system call itself, as in parking.c. */
static bool move(char *from, char *to, size_t bytes) {
  const long flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  return syscall(SYS_mremap, from, bytes, bytes, flags, to) == (long)(uintptr_t)to;
}

treadle_status treadle_pool_follow(treadle_pool *pool, void *base, void *shadow, const int32_t *table,
                                   int64_t pages) {
  size_t page = (size_t)pool->page_bytes;
  for (int64_t i = 0, length; i < pages; i += length) {
    length = run_length(table, pages, i);
    if (table[i] >= 0 &&
        !move((char *)shadow + (size_t)i * page, (char *)base + (size_t)i * page, (size_t)length * page))
      return treadle_pool_remap(pool, base, table, pages);
  }
  return TREADLE_OK;
}

/* ---- Pools of others ---- */

int64_t treadle_pool_export_count(const treadle_pool *pool) { return pool->pages > 0; }

static treadle_status open_for_readers(int descriptor, int *descriptor_p) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  *descriptor_p = open(path, O_RDONLY | O_CLOEXEC);
  if (*descriptor_p >= 0) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "the pool cannot be opened for readers (%s): %s", path,
                      strerror(errno));
}

treadle_status treadle_pool_export(const treadle_pool *pool, int64_t first, int count, bool reading,
                                   int *descriptors) {
  assert(first == 0 && count == 1);
  (void)first, (void)count;
  if (reading) return open_for_readers(pool->descriptor, descriptors);
  *descriptors = fcntl(pool->descriptor, F_DUPFD_CLOEXEC, 0);
  if (*descriptors >= 0) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "pool: no descriptor for others: %s", strerror(errno));
}

treadle_status treadle_pool_map_peer_window(int descriptor, const int32_t *table, int64_t pages,
                                            int64_t page_bytes, void **base_p) {
  treadle_status status = TREADLE_OK;
  char *base = NULL;
  size_t bytes = (size_t)(pages * page_bytes);
  int64_t runs;
  struct stat file;
  *base_p = NULL;
  if (pages == 0) return TREADLE_OK;
  if (fstat(descriptor, &file) != 0)
    return treadle_fail(TREADLE_SYSTEM, "the memory of a peer cannot be looked at: %s", strerror(errno));
  for (int64_t i = 0; i < pages; i++)
    if (table[i] < 0 || table[i] >= file.st_size / page_bytes)
      return treadle_fail(TREADLE_PEER,
                          "page %" PRId64 " of a peer's window is page %" PRId32
                          " of its memory, of %" PRId64,
                          i, table[i], (int64_t)file.st_size / page_bytes);
  TRY(check_mappings(table, pages, page_bytes, 0, &runs));
  TRY(reserve(bytes, &base));
  TRY(cover(base, descriptor, table, pages, page_bytes, PROT_READ));
  *base_p = base;
out:
  if (status != TREADLE_OK && base) munmap(base, bytes);
  return status;
}

treadle_status treadle_pool_map_peer(int descriptor, size_t bytes, void **base_p) {
  treadle_status status = TREADLE_OK;
  char *base = NULL;
  *base_p = NULL;
  if (bytes == 0) return TREADLE_OK;
  struct stat file;
  if (fstat(descriptor, &file) != 0 || (uint64_t)file.st_size < bytes)
    return treadle_fail(TREADLE_PEER, "a peer's memory is smaller than the %zu bytes that it announced",
                        bytes);
  TRY(reserve(bytes, &base));
  if (mmap(base, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
    status = treadle_fail(TREADLE_SYSTEM, "a peer's memory of %s cannot be mapped: %s",
                          treadle_text_of_size(bytes), strerror(errno));
    munmap(base, bytes);
    goto out;
  }
  if (bytes % TREADLE_HUGE_PAGE == 0) madvise(base, bytes, MADV_HUGEPAGE);
  populate(base, bytes);
  *base_p = base;
out:
  return status;
}

void treadle_pool_unmap_peer(void *base, size_t bytes) {
  if (base && bytes > 0) munmap(base, bytes);
}
