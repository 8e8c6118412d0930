/* treadle attach: what an engine in another process would see of a rank's infer parameters. */
#include "cli/cli.h"
#include "cli/handle_file.h"
#include "cli/json_out.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "treadle_attach.h"

static const double TIMEOUT = 60; /* seconds */

typedef struct view {
  treadle_attached *attached;
  treadle_attached_info info;
  size_t bytes;            /* of the window */
  double seconds;          /* that attaching took */
  uint64_t version, *sums; /* [storage tensors] */
  int32_t count;
} view;

/* Of a storage tensor, wherever it lies. */
static treadle_status sum_of(const view *v, const treadle_storage_info *storage, uint64_t *sum_p) {
  treadle_status status = TREADLE_OK;
  char *bytes = treadle_alloc(storage->bytes + 1);
  if (!bytes) return treadle_fail(TREADLE_NO_MEMORY, "no memory for storage tensor '%s'", storage->name);
  TRY(treadle_attached_read(v->attached, storage->offset_bytes, storage->bytes, bytes));
  *sum_p = treadle_hash_bytes(bytes, storage->bytes, 0);
out:
  treadle_free(bytes);
  return status;
}

/* Sums of one version: it is held while they are made. A version that goes between the wait and the hold is waited for again. */
static treadle_status look(view *v, uint64_t version, double timeout) {
  treadle_status status = TREADLE_OK;
  double deadline = treadle_clock_seconds() + timeout, left = timeout;
  (void)treadle_attached_window(v->attached, &v->bytes);
  v->count = treadle_attached_storage_count(v->attached);
  v->sums = treadle_alloc_array((size_t)v->count + 1, sizeof *v->sums);
  if (!v->sums) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d checksums", (int)v->count);
  do {
    TRY(treadle_attached_wait(v->attached, version, left, NULL, NULL));
    status = treadle_attached_hold(v->attached, &v->version);
    left = deadline - treadle_clock_seconds();
  } while (status == TREADLE_STATE && left > 0);
  if (status) goto out;
  for (int32_t i = 0; i < v->count; i++) {
    treadle_storage_info storage = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_attached_storage(v->attached, i, &storage));
    TRY(sum_of(v, &storage, &v->sums[i]));
  }
  treadle_attached_get_info(v->attached, &v->info);
  TRY(treadle_attached_release(v->attached, v->version));
out:
  return status;
}

static const char *sum_text(uint64_t sum, char room[17]) {
  snprintf(room, 17, "%016llx", (unsigned long long)sum);
  return room;
}

static treadle_status print_json(const view *v) {
  treadle_status status = TREADLE_OK;
  treadle_json_out out = {.file = stdout};
  char room[17];
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_int(&out, "process", v->info.process);
  treadle_json_out_int(&out, "rank", v->info.rank);
  treadle_json_out_int(&out, "ranks", v->info.ranks);
  treadle_json_out_text(&out, "layout", v->info.layout);
  treadle_json_out_int(&out, "version", (int64_t)v->version);
  treadle_json_out_int(&out, "bytes", (int64_t)v->bytes);
  treadle_json_out_int(&out, "page_bytes", (int64_t)v->info.page_bytes);
  treadle_json_out_real(&out, "attach_seconds", v->seconds);
  treadle_json_out_open(&out, "storages", '[');
  for (int32_t i = 0; i < v->count; i++) {
    treadle_storage_info storage = TREADLE_INIT(treadle_storage_info);
    TRY(treadle_attached_storage(v->attached, i, &storage));
    treadle_json_out_open(&out, NULL, '{');
    treadle_json_out_text(&out, "name", storage.name);
    treadle_json_out_int(&out, "chunk", storage.chunk);
    treadle_json_out_text(&out, "dtype", treadle_dtype_name(storage.dtype));
    treadle_json_out_open(&out, "shape", '[');
    for (int d = 0; d < storage.ndim; d++) treadle_json_out_int(&out, NULL, storage.shape[d]);
    treadle_json_out_close(&out, ']');
    treadle_json_out_int(&out, "offset_bytes", (int64_t)storage.offset_bytes);
    treadle_json_out_int(&out, "bytes", (int64_t)storage.bytes);
    treadle_json_out_text(&out, "sum", sum_text(v->sums[i], room));
    treadle_json_out_close(&out, '}');
  }
  treadle_json_out_close(&out, ']');
  treadle_json_out_close(&out, '}');
out:
  return status;
}

static treadle_status print_text(const view *v) {
  treadle_status status = TREADLE_OK;
  char room[17];
  printf("rank %d of %d, process %d, %s: version %llu, %s in %d storage tensors, attached in %.6f s\n\n",
         (int)v->info.rank, (int)v->info.ranks, (int)v->info.process, treadle_text_shown(v->info.layout),
         (unsigned long long)v->version, treadle_text_of_size(v->bytes), (int)v->count, v->seconds);
  printf("%-16s  %-5s %-24s %s\n", "sum (XXH3)", "type", "shape", "storage tensor");
  for (int32_t i = 0; i < v->count; i++) {
    treadle_storage_info storage = TREADLE_INIT(treadle_storage_info);
    char shape[96] = "[";
    size_t length = 1;
    TRY(treadle_attached_storage(v->attached, i, &storage));
    for (int d = 0; d < storage.ndim && length < sizeof shape; d++)
      length += (size_t)snprintf(shape + length, sizeof shape - length, "%s%lld", d ? ", " : "",
                                 (long long)storage.shape[d]);
    if (length < sizeof shape) snprintf(shape + length, sizeof shape - length, "]");
    printf("%-16s  %-5s %-24s %s\n", sum_text(v->sums[i], room), treadle_dtype_name(storage.dtype), shape,
           treadle_text_shown(storage.name));
  }
out:
  return status;
}

int treadle_command_attach(const treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  view v = {.info = TREADLE_INIT(treadle_attached_info)};
  char handle[TREADLE_HANDLE_BYTES];
  size_t bytes;
  bool refused = false;
  double timeout = arguments->attach.timeout_seconds > 0 ? arguments->attach.timeout_seconds : TIMEOUT;
  double begin = treadle_clock_seconds();
  status = treadle_handle_file_read(arguments->words[0], handle, &bytes);
  if (!status) status = treadle_attach(handle, bytes, timeout, &v.attached);
  refused = status == TREADLE_REFUSED;
  if (status) goto out;
  v.seconds = treadle_clock_seconds() - begin;
  TRY(look(&v, (uint64_t)arguments->attach.wait, timeout));
  TRY(arguments->json ? print_json(&v) : print_text(&v));
out:
  treadle_detach(v.attached);
  treadle_free(v.sums);
  if (status)
    return refused ? treadle_report_refusal("attach", status) : treadle_report_error("attach", status);
  return treadle_finish_output("attach", TREADLE_EXIT_OK);
}
