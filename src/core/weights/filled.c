/* The records of all windows of this process, in one list, which is short: a switch has one. */
#include "weights/filled.h"

#include "base/alloc.h"
#include "base/text.h"

#include <pthread.h>
#include <stdatomic.h>

enum { SHOWN = 4 };

struct treadle_filled {
  const treadle_layout *layout;
  int64_t rank;
  const char *window;
  size_t bytes;
  uint8_t *has; /* [count] by storage tensor, as users count them */
  int32_t count;
  atomic_int missing;
  treadle_filled *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list, and of `has` of all records */
static treadle_filled *records;

treadle_status treadle_filled_create(const treadle_layout *layout, int64_t rank, const void *window,
                                     bool all, treadle_filled **filled_p) {
  treadle_filled *filled = treadle_alloc(sizeof *filled);
  *filled_p = NULL;
  if (!filled) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the record of a window");
  *filled = (treadle_filled){.layout = layout,
                             .rank = rank,
                             .window = window,
                             .bytes = treadle_layout_window_bytes(layout, rank),
                             .count = treadle_layout_storage_count(layout, rank)};
  filled->has = treadle_alloc((size_t)filled->count + 1);
  if (!filled->has) {
    treadle_free(filled);
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the record of a window");
  }
  filled->missing = all ? 0 : filled->count;
  pthread_mutex_lock(&lock);
  filled->next = records;
  records = filled;
  pthread_mutex_unlock(&lock);
  *filled_p = filled;
  return TREADLE_OK;
}

void treadle_filled_destroy(treadle_filled *filled) {
  if (!filled) return;
  pthread_mutex_lock(&lock);
  for (treadle_filled **at = &records; *at; at = &(*at)->next)
    if (*at == filled) {
      *at = filled->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  treadle_free(filled->has);
  treadle_free(filled);
}

/* ---- Taking: under the lock ---- */

static void take(treadle_filled *filled, int32_t storage) {
  if (filled->missing == 0 || filled->has[storage]) return;
  filled->has[storage] = 1;
  filled->missing--;
}

static void take_bytes(treadle_filled *filled, size_t offset, size_t bytes) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  if (offset == 0 && bytes >= filled->bytes) {
    filled->missing = 0;
    return;
  }
  for (int32_t i = 0; i < filled->count && filled->missing > 0; i++) {
    if (filled->has[i] || treadle_layout_storage(filled->layout, filled->rank, i, &info)) continue;
    if (info.offset_bytes >= offset && info.offset_bytes + info.bytes <= offset + bytes) take(filled, i);
  }
}

void treadle_filled_tensor(treadle_filled *filled, int32_t storage) {
  pthread_mutex_lock(&lock);
  take(filled, storage);
  pthread_mutex_unlock(&lock);
}

void treadle_filled_bytes(treadle_filled *filled, size_t offset, size_t bytes) {
  pthread_mutex_lock(&lock);
  take_bytes(filled, offset, bytes);
  pthread_mutex_unlock(&lock);
}

void treadle_filled_all(treadle_filled *filled) {
  pthread_mutex_lock(&lock);
  filled->missing = 0;
  pthread_mutex_unlock(&lock);
}

void treadle_filled_memory(const void *memory, size_t bytes) {
  if (bytes == 0) return;
  const char *from = memory, *to = from + bytes;
  pthread_mutex_lock(&lock);
  for (treadle_filled *filled = records; filled; filled = filled->next) {
    if (filled->missing == 0 || filled->bytes == 0) continue;
    const char *begin = filled->window, *end = begin + filled->bytes;
    if (from >= end || to <= begin) continue;
    const char *first = from > begin ? from : begin, *last = to < end ? to : end;
    take_bytes(filled, (size_t)(first - begin), (size_t)(last - first));
  }
  pthread_mutex_unlock(&lock);
}

/* ---- Asking ---- */

/* Has a storage tensor values? Some hold padding alone, and are zeros by right. */
static treadle_status has_values(const treadle_filled *filled, int32_t storage, bool *has_p) {
  treadle_status status;
  treadle_pieces pieces = {0};
  int32_t index;
  int64_t expert;
  *has_p = false;
  (void)treadle_layout_public(filled->layout, filled->rank, storage, &index, &expert);
  TRY(treadle_layout_pieces_in(filled->layout, filled->rank, index, &pieces));
  for (size_t i = 0; i < pieces.count && !*has_p; i++) *has_p = pieces.items[i].tensor >= 0;
out:
  treadle_array_release(&pieces);
  return status;
}

/* Takes what has no values, and names the first ones that do. */
static treadle_status name_missing(treadle_filled *filled, treadle_builder *names) {
  treadle_status status = TREADLE_OK;
  int32_t shown = 0;
  for (int32_t i = 0; i < filled->count; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    bool needs = false;
    if (filled->has[i]) continue;
    TRY(treadle_layout_storage(filled->layout, filled->rank, i, &info));
    if (info.bytes > 0) TRY(has_values(filled, i, &needs));
    if (!needs)
      take(filled, i);
    else if (shown++ < SHOWN)
      treadle_builder_add(names, "%s'%s'", shown > 1 ? ", " : "", info.name);
  }
  if (shown > SHOWN) treadle_builder_add(names, ", ...");
out:
  return status;
}

static treadle_status check(treadle_filled *filled, const char *what) {
  treadle_status status;
  treadle_builder names = {0};
  TRY(name_missing(filled, &names));
  if (filled->missing > 0)
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: rank %lld: %d of %d storage tensors of '%s' were never given values, and "
                          "hold zeros: %s. Load them "
                          "(treadle_layout_load), give them as own tensors, or say that they are filled "
                          "(treadle_switch_filled); "
                          "allow_unfilled lets zeros through",
                          what, (long long)filled->rank, (int)filled->missing, (int)filled->count,
                          filled->layout->text, names.text ? names.text : "");
out:
  treadle_builder_release(&names);
  return status;
}

treadle_status treadle_filled_check(treadle_filled *filled, const char *what) {
  if (filled->missing == 0) return TREADLE_OK;
  pthread_mutex_lock(&lock);
  treadle_status status = filled->missing == 0 ? TREADLE_OK : check(filled, what);
  pthread_mutex_unlock(&lock);
  return status;
}

treadle_status treadle_filled_check_window(const void *window, const char *what) {
  treadle_status status = TREADLE_OK;
  pthread_mutex_lock(&lock);
  for (treadle_filled *filled = records; filled; filled = filled->next)
    if (window && filled->window == window && filled->missing > 0) status = check(filled, what);
  pthread_mutex_unlock(&lock);
  return status;
}
