/* Golden buffers of the distributed optimizer. Two patterns of cases: whole models on whole grids, where each
 * rank's chunks have buffers of named parameters, and raw ones, of parameters of given sizes. */
#include "flat/shards.h"
#include "golden_support/golden_flat.h"

#include <stdlib.h>
#include <string.h>

/* A buffer as the library lays it. */
typedef struct buffer {
  treadle_distopt_options options;
  treadle_distopt_param *params;
  int64_t count;
  treadle_distopt_buckets buckets;
} buffer;

/* `golden` has params [name, numel, start, end, bucket], buckets and sums. */
static golden_verdict compare_table(const golden_case *c, const buffer *b, const json_t *golden) {
  const json_t *params = json_object_get(golden, "params"), *buckets = json_object_get(golden, "buckets");
  for (int64_t i = 0; i < b->count; i++) {
    const json_t *row = json_array_get(params, (size_t)i);
    const treadle_distopt_param *param = &b->params[i];
    if (golden_at(row, 1) != param->numel || golden_at(row, 2) != param->start ||
        golden_at(row, 3) != param->end || golden_at(row, 4) != param->bucket)
      return golden_differ(c, "parameter %lld is at [%lld, %lld), bucket %d; golden [%lld, %lld), %lld",
                           (long long)i, (long long)param->start, (long long)param->end, param->bucket,
                           (long long)golden_at(row, 2), (long long)golden_at(row, 3),
                           (long long)golden_at(row, 4));
  }
  if (json_array_size(buckets) != b->buckets.count)
    return golden_differ(c, "%d buckets, golden %d", (int)b->buckets.count, (int)json_array_size(buckets));
  int64_t unpadded = 0, end = 0;
  for (size_t k = 0; k < b->buckets.count; k++) {
    const treadle_distopt_bucket *bucket = &b->buckets.items[k];
    const json_t *row = json_array_get(buckets, k);
    if (golden_at(row, 0) != bucket->start || golden_at(row, 1) != bucket->end ||
        golden_at(row, 2) != bucket->unpadded)
      return golden_differ(c, "bucket %d is [%lld, %lld)", (int)k, (long long)bucket->start,
                           (long long)bucket->end);
    unpadded += bucket->unpadded;
    end = bucket->end;
  }
  if (golden_int(golden, "numel", -1) != end || golden_int(golden, "numel_unpadded", -1) != unpadded)
    return golden_differ(c, "a buffer of %lld, %lld without padding", (long long)end, (long long)unpadded);
  return GOLDEN_EQUAL;
}

static bool is_range(const json_t *range, int64_t low, int64_t high) {
  return golden_at(range, 0) == low && golden_at(range, 1) == high;
}

/* Rows [bucket, name, range in the parameter, in the buffer, in the rank's part of the bucket], by address.
 * Names are those of `params`. */
static golden_verdict compare_owned(const golden_case *c, const buffer *b, const json_t *params,
                                    int64_t rank, const json_t *owned) {
  golden_verdict verdict = GOLDEN_EQUAL;
  treadle_strideds parts = {0};
  size_t row = 0;
  for (int64_t i = b->count - 1; i >= 0; i--) {
    const treadle_distopt_param *param = &b->params[i];
    treadle_span own = flat_owned_of(&b->buckets.items[param->bucket], b->options.dp, rank);
    treadle_strided whole = treadle_strided_whole(&param->numel, 1, param->start);
    parts.count = 0;
    if (treadle_strided_clip(&whole, own, own.low, &parts) != TREADLE_OK) abort();
    if (parts.count == 0) continue;
    int64_t low = parts.items[0].box.start[0], high = low + parts.items[0].box.size[0];
    int64_t at = parts.items[0].offset;
    const json_t *line = json_array_get(owned, row++);
    if (golden_at(line, 0) != param->bucket ||
        !json_equal(json_array_get(line, 1), json_array_get(json_array_get(params, (size_t)i), 0)) ||
        !is_range(json_array_get(line, 2), low, high) ||
        !is_range(json_array_get(line, 3), param->start + low, param->start + high) ||
        !is_range(json_array_get(line, 4), at, at + high - low)) {
      verdict = golden_differ(c, "dp rank %lld, row %d: has [%lld, %lld) of parameter %lld",
                              (long long)rank, (int)row - 1, (long long)low, (long long)high, (long long)i);
      break;
    }
  }
  if (verdict == GOLDEN_EQUAL && row != json_array_size(owned))
    verdict = golden_differ(c, "dp rank %lld has %d pieces, golden %d", (long long)rank, (int)row,
                            (int)json_array_size(owned));
  treadle_array_release(&parts);
  return verdict;
}

static void release(buffer *b) {
  free(b->params);
  treadle_array_release(&b->buckets);
}

static golden_verdict lay(const golden_case *c, buffer *b, const json_t *golden) {
  if (treadle_distopt_layout(&b->options, b->params, b->count, &b->buckets) != TREADLE_OK)
    return golden_differ(c, "refused: %s", treadle_error_message());
  return compare_table(c, b, golden);
}

static void allocate(buffer *b, size_t count) {
  b->count = (int64_t)count;
  b->params = calloc(count + 1, sizeof *b->params);
  if (!b->params) abort();
}

static golden_verdict check_raw(golden_case *c) {
  buffer b = {{golden_int(c->item, "dp", 0), golden_int(c->item, "bucket_size", 0),
               json_is_true(json_object_get(c->item, "pad_buckets_for_high_nccl_busbw"))},
              NULL,
              0,
              {0}};
  const json_t *numels = json_object_get(c->item, "forward_order_numel");
  const json_t *shared = json_object_get(c->item, "shared_embedding");
  allocate(&b, json_array_size(numels));
  for (size_t i = 0; i < json_array_size(numels); i++) b.params[i].numel = golden_at(numels, i);
  for (size_t i = 0; i < json_array_size(shared); i++)
    b.params[golden_at(shared, i)].shared_embedding = true;
  c->ranks = b.options.dp;
  golden_verdict verdict = lay(c, &b, c->item);
  for (int64_t r = 0; verdict == GOLDEN_EQUAL && r < c->ranks; r++)
    verdict = compare_owned(c, &b, json_object_get(c->item, "params"), r,
                            json_array_get(json_object_get(c->item, "ranks"), (size_t)r));
  release(&b);
  return verdict;
}

/* With pp > 1: the tied embedding and its copy; with MTP the embedding and its copy, tied or not. */
static bool is_shared(const golden_case *c, const char *name) {
  const json_t *config = json_object_get(c->item, "config");
  bool has_mtp = golden_int(config, "mtp_num_layers", 0) > 0;
  bool is_tied = json_is_true(json_object_get(config, "tied"));
  if (golden_int(json_object_get(c->item, "grid"), "pp", 1) == 1) return false;
  if (strcmp(name, "embedding.word_embeddings.weight") == 0) return is_tied || has_mtp;
  return strcmp(name, "output_layer.weight") == 0 && is_tied && !has_mtp;
}

static golden_verdict check_buffer(const golden_case *c, const json_t *chunk, const json_t *golden) {
  const json_t *ddp = json_object_get(c->item, "ddp"), *params = json_object_get(golden, "params");
  buffer b = {{golden_int(golden, "dp_size", 0), golden_int(chunk, "bucket_size_used", 0),
               json_is_true(json_object_get(ddp, "pad_buckets_for_high_nccl_busbw"))},
              NULL,
              0,
              {0}};
  allocate(&b, json_array_size(params));
  for (size_t i = 0; i < json_array_size(params); i++) {
    const json_t *row = json_array_get(params, i);
    b.params[i].numel = golden_at(row, 1);
    b.params[i].shared_embedding = is_shared(c, json_string_value(json_array_get(row, 0)));
  }
  golden_verdict verdict = lay(c, &b, golden);
  if (verdict == GOLDEN_EQUAL)
    verdict =
        compare_owned(c, &b, params, golden_int(golden, "dp_rank", -1), json_object_get(golden, "owned"));
  release(&b);
  return verdict;
}

golden_verdict golden_check_dist_optimizer(golden_case *c) {
  if (!golden_flat_asks(c)) return GOLDEN_NOT_ASKED;
  snprintf(c->text, sizeof c->text, "distributed optimizer");
  if (json_is_true(json_object_get(c->item, "raw"))) return check_raw(c);
  const json_t *ranks = json_object_get(c->item, "ranks");
  c->ranks = (int64_t)json_array_size(ranks);
  golden_verdict verdict = GOLDEN_EQUAL;
  int buffers = 0;
  for (size_t r = 0; r < json_array_size(ranks); r++) {
    const json_t *chunks = json_object_get(json_array_get(ranks, r), "chunks");
    for (size_t k = 0; k < json_array_size(chunks); k++) {
      const json_t *chunk = json_array_get(chunks, k), *list = json_object_get(chunk, "buffers");
      for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(list); i++, buffers++)
        verdict = check_buffer(c, chunk, json_array_get(list, i));
    }
  }
  if (buffers == 0) return golden_differ(c, "golden has no buffers");
  return verdict == GOLDEN_EQUAL ? golden_compare_distopt_layout(c) : verdict;
}
