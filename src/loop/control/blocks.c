/* A list of what is kept, the last first. A block has its size in front of it; one of twice the bytes that are asked for, or more, is left for others. */
#include "control/blocks.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct block {
  struct block *next; /* while it is kept */
  size_t bytes;       /* behind this head */
  alignas(max_align_t) char memory[];
} block;

static const size_t LARGE = 256 << 10, MOST = 256 << 20; /* the least block that is kept; bytes of all */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static block *kept;
static size_t kept_bytes;
static int users;

void treadle_blocks_open(void) {
  pthread_mutex_lock(&lock);
  users++;
  pthread_mutex_unlock(&lock);
}

void treadle_blocks_close(void) {
  block *list = NULL;
  pthread_mutex_lock(&lock);
  if (--users == 0) {
    list = kept;
    kept = NULL;
    kept_bytes = 0;
  }
  pthread_mutex_unlock(&lock);
  for (block *next; list; list = next) {
    next = list->next;
    treadle_free(list);
  }
}

static block *find(size_t bytes) {
  block *found = NULL;
  pthread_mutex_lock(&lock);
  for (block **at = &kept; *at && !found;) {
    if ((*at)->bytes < bytes || (*at)->bytes / 2 > bytes) {
      at = &(*at)->next;
      continue;
    }
    found = *at;
    *at = found->next;
    kept_bytes -= found->bytes;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void *treadle_block_take(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL;
  block *b = bytes < LARGE ? NULL : find(bytes);
  if (b) return b->memory;
  b = treadle_realloc(NULL, sizeof *b + bytes);
  if (!b) return NULL;
  treadle_alloc_hint(b, sizeof *b + bytes);
  b->bytes = bytes;
  return b->memory;
}

void treadle_block_give(void *memory) {
  if (!memory) return;
  block *b = (block *)((char *)memory - offsetof(block, memory));
  bool keeps = false;
  if (b->bytes >= LARGE) {
    pthread_mutex_lock(&lock);
    keeps = users > 0 && b->bytes <= MOST - kept_bytes;
    if (keeps) {
      b->next = kept;
      kept = b;
      kept_bytes += b->bytes;
    }
    pthread_mutex_unlock(&lock);
  }
  if (!keeps) treadle_free(b);
}
