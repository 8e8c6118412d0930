/* A card: a sparse file that begins with a header, and goes on with the memory. Memory is given out in units of the
 * granularity.
 *
 * Locks of the file (fcntl) say who lives, because the system ends them with their process: byte 0 is held by who
 * changes the header, and byte 1 + n by the process that has slot n. A unit that begins a range has one bit for each
 * slot that holds the range. A range with a bit is in use, and one store gives it back: whenever a process dies, the
 * table is whole. Bits of slots without a process are cleared (reclaim) before anybody is told that there is no
 * memory. A process must not open and close the file besides: that ends its locks. */
#include "cuda/fake_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  SLOTS = 64,
  SPARE = 4 /* the file has this many times the memory: ranges find room however small its holes are */
};

typedef struct unit {
  uint64_t holders; /* a bit for each slot; 0 in all units but the first of a range in use */
  uint64_t generation, count;
} unit;

typedef struct fake_header {
  char magic[16], identity[16];
  uint64_t total, granularity, units, memory; /* the offset at which the memory begins */
  uint64_t generation, used;                  /* units in use; corrected by reclaim */
  uint64_t next, top; /* where the search begins; no unit from `top` on was ever used */
  uint64_t slots;     /* that have had a process since they were reclaimed */
  unit unit[];        /* [units] */
} fake_header;

static const char magic[16] = "fake CUDA card 1";

fake_card fake_cards[FAKE_CARDS];
_Atomic int fake_card_count;

/* ---- Locks ---- */

static bool set_lock(const fake_card *card, int command, short type, int byte) {
  struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
  int failed;
  do failed = fcntl(card->file, command, &lock);
  while (failed && errno == EINTR);
  return !failed;
}

static void enter(const fake_card *card) {
  if (!set_lock(card, F_SETLKW, F_WRLCK, 0)) abort();
}

static void leave(const fake_card *card) { set_lock(card, F_SETLK, F_UNLCK, 0); }

/* Of another process. */
static bool lives(const fake_card *card, int slot) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + slot, .l_len = 1};
  return fcntl(card->file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool is_alone(const fake_card *card) {
  for (int s = 0; s < SLOTS; s++)
    if (lives(card, s)) return false;
  return true;
}

/* ---- Ranges ---- */

static uint64_t bit(int slot) { return (uint64_t)1 << slot; }

static void give_back(fake_card *card, uint64_t at) {
  fake_header *h = card->header;
  unit *u = &h->unit[at];
  fallocate(card->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            (off_t)(h->memory + at * h->granularity), (off_t)(u->count * h->granularity));
  h->used -= u->count;
  u->holders = 0;
}

/* Clears the bits of `dead`, and counts again: their processes may have died in the middle of a change. */
static void clear_slots(fake_card *card, uint64_t dead) {
  fake_header *h = card->header;
  uint64_t used = 0;
  for (uint64_t i = 0; i < h->top;) {
    unit *u = &h->unit[i];
    const uint64_t count = u->holders ? u->count : 1;
    if (u->holders && !(u->holders & ~dead))
      give_back(card, i);
    else if (u->holders) {
      u->holders &= ~dead;
      used += count;
    }
    i += count;
  }
  h->used = used;
}

static void reclaim(fake_card *card) {
  fake_header *h = card->header;
  uint64_t dead = 0;
  for (int s = 0; s < SLOTS; s++)
    if (h->slots & bit(s) && s != card->slot && !lives(card, s)) dead |= bit(s);
  if (!dead) return;
  clear_slots(card, dead);
  h->slots &= ~dead;
}

/* The first of `count` free units in [from, to). */
static bool find_free(const fake_header *h, uint64_t from, uint64_t to, uint64_t count, uint64_t *at_p) {
  uint64_t start = from;
  for (uint64_t i = from; i - start < count; i++) {
    if (start + count > to) return false;
    if (!h->unit[i].holders) continue;
    start = i + h->unit[i].count;
    i = start - 1;
  }
  *at_p = start;
  return true;
}

static bool has_room(const fake_header *h, uint64_t count) {
  return count <= h->total / h->granularity - h->used;
}

static bool take(fake_card *card, uint64_t count, uint64_t *at_p) {
  fake_header *h = card->header;
  if (!has_room(h, count)) reclaim(card);
  if (!has_room(h, count)) return false;
  if (!find_free(h, h->next, h->units, count, at_p) && !find_free(h, 0, h->units, count, at_p))
    return false;
  unit *u = &h->unit[*at_p];
  h->next = *at_p + count;
  if (h->top < h->next) h->top = h->next;
  u->count = count;
  u->generation = ++h->generation;
  h->used += count;
  __atomic_store_n(&u->holders, bit(card->slot), __ATOMIC_RELEASE);
  return true;
}

bool fake_card_take(fake_card *card, uint64_t bytes, fake_range *range_p) {
  fake_header *h = card->header;
  uint64_t at;
  enter(card);
  const bool found = take(card, bytes / h->granularity, &at);
  if (found) *range_p = (fake_range){h->memory + at * h->granularity, bytes, h->unit[at].generation};
  leave(card);
  return found;
}

static unit *unit_of(const fake_card *card, const fake_range *range) {
  fake_header *h = card->header;
  return &h->unit[(range->at - h->memory) / h->granularity];
}

bool fake_card_hold(fake_card *card, const fake_range *range) {
  const fake_header *h = card->header;
  if (range->at < h->memory || range->at - h->memory >= h->units * h->granularity) return false;
  enter(card);
  unit *u = unit_of(card, range);
  reclaim(card);
  const bool found = u->holders && u->generation == range->generation;
  if (found) u->holders |= bit(card->slot);
  leave(card);
  return found;
}

void fake_card_drop(fake_card *card, const fake_range *range) {
  enter(card);
  unit *u = unit_of(card, range);
  if (u->holders & ~bit(card->slot))
    u->holders &= ~bit(card->slot);
  else
    give_back(card, (uint64_t)(u - card->header->unit));
  leave(card);
}

uint64_t fake_card_free(fake_card *card) {
  fake_header *h = card->header;
  enter(card);
  reclaim(card);
  const uint64_t bytes = h->total - h->used * h->granularity;
  leave(card);
  return bytes;
}

uint64_t fake_card_total(const fake_card *card) { return card->header->total; }
uint64_t fake_card_granularity(const fake_card *card) { return card->header->granularity; }
const char *fake_card_identity(const fake_card *card) { return card->header->identity; }

/* ---- Opening ---- */

static uint64_t number_of(const char *variable, uint64_t otherwise) {
  const char *text = getenv(variable);
  return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static fake_header *map_header(const fake_card *card, size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, card->file, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* A new card, in a file that no process uses. */
static bool make(fake_card *card) {
  const uint64_t granularity = number_of("FAKE_CUDA_GRANULARITY", 2 << 20);
  if (granularity < 4096 || (granularity & (granularity - 1)) != 0) return false;
  const uint64_t total = number_of("FAKE_CUDA_TOTAL", (uint64_t)4 << 30) / granularity * granularity;
  fake_header h = {.total = total, .granularity = granularity, .units = SPARE * (total / granularity)};
  h.memory = (sizeof h + h.units * sizeof(unit) + granularity - 1) / granularity * granularity;
  memcpy(h.magic, magic, sizeof magic);
  return getrandom(h.identity, sizeof h.identity, 0) == sizeof h.identity &&
         ftruncate(card->file, 0) == 0 &&
         ftruncate(card->file, (off_t)(h.memory + h.units * granularity)) == 0 &&
         pwrite(card->file, &h, sizeof h, 0) == sizeof h;
}

/* The file under its name, with byte 0 locked: another process may have taken the name away meanwhile. */
static bool open_locked(fake_card *card, const char *path) {
  for (;;) {
    struct stat found;
    card->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (card->file < 0) return false;
    enter(card);
    if (fstat(card->file, &found) == 0 && found.st_nlink > 0) return true;
    close(card->file);
  }
}

static CUresult join(fake_card *card) {
  fake_header start;
  if (is_alone(card) && !make(card)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (pread(card->file, &start, sizeof start, 0) != sizeof start ||
      memcmp(start.magic, magic, sizeof magic) != 0)
    return CUDA_ERROR_NO_DEVICE;
  card->header = map_header(card, sizeof start + start.units * sizeof(unit));
  if (!card->header) return CUDA_ERROR_OUT_OF_MEMORY;
  reclaim(card);
  for (int s = 0; s < SLOTS; s++)
    if (!lives(card, s)) {
      card->slot = s;
      card->header->slots |= bit(s);
      return set_lock(card, F_SETLK, F_WRLCK, 1 + s) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    }
  return CUDA_ERROR_OUT_OF_MEMORY; /* processes */
}

CUresult fake_card_open(fake_card *card, const char *path) {
  *card = (fake_card){.slot = -1, .path = strdup(path)};
  if (!open_locked(card, path)) return CUDA_ERROR_NO_DEVICE;
  CUresult result = join(card);
  leave(card);
  if (result != CUDA_SUCCESS) close(card->file);
  return result;
}

/* Processes that end together see each other's locks until they are dead, so each takes its own away. */
void fake_card_close(fake_card *card) {
  enter(card);
  clear_slots(card, bit(card->slot));
  set_lock(card, F_SETLK, F_UNLCK, 1 + card->slot);
  if (is_alone(card)) unlink(card->path);
  set_lock(card, F_SETLK, F_UNLCK,
           1 + card->slot); /* others may end before the system has ended this process */
  leave(card);
}
