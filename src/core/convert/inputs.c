/* Stamps of inputs, and when they can be trusted. */
#include "convert/inputs.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "io/folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

static const double SETTLING = 2; /* seconds: the coarsest clock of a file system in use (FAT) */

static treadle_status no_memory(const char *path) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its name", path);
}

void treadle_inputs_release(treadle_inputs *inputs) {
  treadle_array_release(&inputs->items);
  treadle_arena_release(&inputs->arena);
}

/* ---- Settling ---------------------------------------------------------------------------------- */

/* Does this machine's clock give the times of its files? */
static bool is_local(const char *path) {
  static const uint32_t types[] = {0xef53,     /* ext2, ext3, ext4 */
                                   0x58465342, /* xfs */
                                   0x9123683e, /* btrfs */
                                   0x01021994, /* tmpfs */
                                   0xf2f52010, /* f2fs */
                                   0x2fc12fc1, /* zfs */
                                   0x794c7630 /* overlayfs */};
  struct statfs about;
  if (statfs(path, &about) != 0) return false;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if ((uint32_t)about.f_type == types[i]) return true;
  return false;
}

static double seconds_of(struct timespec time) { return (double)time.tv_sec + (double)time.tv_nsec * 1e-9; }

/* Seconds from now on until a stamp that was taken not later than now can be trusted; 0: it can. */
static double unsettled_seconds(const char *path, const treadle_file_stamp *stamp) {
  struct timespec now;
  double modified = seconds_of(stamp->modified), changed = seconds_of(stamp->changed);
  double newest = modified > changed ? modified : changed;
  clock_gettime(CLOCK_REALTIME, &now);
  double age = seconds_of(now) - newest;
  if (age < 0 || !is_local(path)) return SETTLING;
  return age < SETTLING ? SETTLING - age : 0;
}

bool treadle_inputs_settled(const treadle_inputs *inputs) {
  return !inputs->unsettled || treadle_clock_seconds() >= inputs->settled_at;
}

/* ---- Adding ------------------------------------------------------------------------------------ */

static treadle_status add(treadle_inputs *inputs, treadle_input input) {
  treadle_status status = TREADLE_OK;
  const char *path = input.path;
  input.path = treadle_arena_copy_text(&inputs->arena, path);
  if (input.companion) input.companion = treadle_arena_copy_text(&inputs->arena, input.companion);
  if (!input.path) TRY(no_memory(path));
  TRY(treadle_array_push(&inputs->items, input));
  double wait = unsettled_seconds(path, &input.stamp), until = treadle_clock_seconds() + wait;
  if (wait > 0 && (!inputs->unsettled || until > inputs->settled_at)) {
    inputs->settled_at = until;
    inputs->unsettled = input.path;
  }
out:
  return status;
}

treadle_status treadle_inputs_add(treadle_inputs *inputs, const char *path, const char *companion) {
  treadle_status status;
  treadle_input input = {.path = path, .companion = companion};
  TRY(treadle_file_stamp_now(path, &input.stamp));
  TRY(add(inputs, input));
out:
  return status;
}

treadle_status treadle_inputs_add_mapped(treadle_inputs *inputs, const char *path, const void *image) {
  treadle_status status;
  treadle_input input = {.path = path, .image = image};
  if (!treadle_file_mapped_stamp(image, &input.stamp)) TRY(treadle_file_stamp_now(path, &input.stamp));
  TRY(add(inputs, input));
out:
  return status;
}

treadle_status treadle_inputs_add_companions(treadle_inputs *inputs, const char *folder) {
  treadle_folder_names names = {0};
  treadle_status status;
  TRY(treadle_folder_check_companions(folder));
  TRY(treadle_folder_list_companions(folder, &inputs->arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    const char *path = treadle_arena_format(&inputs->arena, "%s/%s", folder, names.items[i]);
    if (!path) TRY(no_memory(names.items[i]));
    TRY(treadle_inputs_add(inputs, path, names.items[i]));
  }
out:
  treadle_array_release(&names);
  return status;
}

/* ---- Asking ------------------------------------------------------------------------------------ */

static uint64_t hash_time(uint64_t hash, struct timespec time) {
  return treadle_hash_more(treadle_hash_more(hash, (uint64_t)time.tv_sec), (uint64_t)time.tv_nsec);
}

/* The order in which a folder lists its files says nothing: a sum. */
uint64_t treadle_inputs_digest(const treadle_inputs *inputs, uint64_t seed) {
  uint64_t sum = 0;
  for (size_t i = 0; i < inputs->items.count; i++) {
    const treadle_input *input = &inputs->items.items[i];
    const char *slash = strrchr(input->path, '/');
    uint64_t hash = treadle_hash_text(slash ? slash : input->path, seed);
    hash = treadle_hash_more(hash, (uint64_t)input->stamp.bytes);
    hash = treadle_hash_more(hash, input->stamp.inode);
    sum += hash_time(hash_time(hash, input->stamp.modified), input->stamp.changed);
  }
  return treadle_hash_more(sum, seed);
}

treadle_status treadle_inputs_intact(const treadle_inputs *inputs) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < inputs->items.count; i++) TRY(treadle_file_intact(inputs->items.items[i].image));
out:
  return status;
}

static bool same_time(struct timespec a, struct timespec b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static treadle_status check(const treadle_input *input) {
  const treadle_file_stamp *first = &input->stamp;
  treadle_file_stamp now;
  if (treadle_file_stamp_now(input->path, &now) != TREADLE_OK)
    return treadle_fail(TREADLE_DIFFERENT, "%s: went away while it was read", input->path);
  if (now.inode != first->inode || now.device != first->device)
    return treadle_fail(TREADLE_DIFFERENT, "%s: was replaced by another file while it was read",
                        input->path);
  if (now.bytes != first->bytes)
    return treadle_fail(
        TREADLE_DIFFERENT, "%s: became %s while it was read (%lld bytes at first, now %lld)", input->path,
        now.bytes < first->bytes ? "shorter" : "longer", (long long)first->bytes, (long long)now.bytes);
  if (!same_time(now.modified, first->modified))
    return treadle_fail(TREADLE_DIFFERENT, "%s: was written to while it was read", input->path);
  if (!same_time(now.changed, first->changed))
    return treadle_fail(
        TREADLE_DIFFERENT,
        "%s: was changed while it was read: its times, permissions or links were set, and it "
        "may have been written to",
        input->path);
  return TREADLE_OK;
}

treadle_status treadle_inputs_check(const treadle_inputs *inputs) {
  treadle_status status;
  TRY(treadle_inputs_intact(inputs));
  for (size_t i = 0; i < inputs->items.count; i++) TRY(check(&inputs->items.items[i]));
out:
  return status;
}

treadle_status treadle_inputs_say_torn(const treadle_inputs *inputs) {
  return treadle_fail(TREADLE_DIFFERENT,
                      "%s: was written to while it was read: what it held at first is not there any more "
                      "(it, or another input that was written less than %.0f s before)",
                      inputs->unsettled ? inputs->unsettled : "the inputs", SETTLING);
}
