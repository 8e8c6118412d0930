/* Prompts as a batch, and those of a step: pieces of a loop of one's own. */
#include "rl/prompts.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/hash.h"
#include "base/sized.h"
#include "run/order.h"

#include <string.h>

enum { SEED_BITS = 53 };

int64_t treadle_rl_seed(int64_t sampling_seed, int64_t key, int64_t place) {
  uint64_t h = treadle_hash_more(0, (uint64_t)sampling_seed);
  h = treadle_hash_more(treadle_hash_more(h, (uint64_t)key), (uint64_t)place);
  return (int64_t)(h >> (64 - SEED_BITS));
}

/* ---- All prompts ------------------------------------------------------------------------------------------------ */

static treadle_status add_ids(treadle_batch *batch, const treadle_rl_prompt *items, size_t count) {
  int64_t *offsets = treadle_alloc_array(count + 1, sizeof *offsets);
  treadle_column ids = {.struct_size = sizeof ids, .name = "prompt_ids", .type = TREADLE_COLUMN_INT32};
  treadle_status status;
  if (!offsets) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu prompts", count);
  offsets[0] = 0;
  for (size_t i = 0; i < count; i++) offsets[i + 1] = offsets[i] + items[i].count;
  ids.offsets = offsets;
  TRY(treadle_batch_add(batch, &ids));
  TRY(treadle_batch_column(batch, "prompt_ids", &ids));
  for (size_t i = 0; i < count; i++)
    memcpy((int32_t *)ids.data + ids.offsets[i], items[i].ids, (size_t)items[i].count * sizeof(int32_t));
out:
  treadle_free(offsets);
  return status;
}

static treadle_status add_texts(treadle_batch *batch, const treadle_rl_prompt *items, size_t count) {
  static const struct {
    const char *name;
    size_t at;
  } columns[] = {{"prompt", offsetof(treadle_rl_prompt, text)},
                 {"answer", offsetof(treadle_rl_prompt, answer)},
                 {"data_source", offsetof(treadle_rl_prompt, data_source)}};
  const char **texts = treadle_alloc_array(count + 1, sizeof(*texts));
  treadle_status status = TREADLE_OK;
  if (!texts) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu prompts", count);
  for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
    for (size_t i = 0; i < count; i++)
      memcpy(&texts[i], (const char *)&items[i] + columns[c].at, sizeof(*texts));
    TRY(treadle_batch_add_texts(batch, columns[c].name, texts, NULL));
  }
out:
  treadle_free(texts);
  return status;
}

treadle_status treadle_prompts_read(const treadle_prompts_options *options, treadle_batch **prompts_p) {
  static const treadle_rl_prompts_words words = {.prompt_key = "prompt_key",
                                                 .answer_key = "answer_key",
                                                 .too_long = "most_tokens is the limit",
                                                 .no_answer = "need_answers asks for one",
                                                 .no_tokenizer = "the options name none"};
  treadle_prompts_options o;
  treadle_rl_prompts *read = NULL;
  treadle_batch *batch = NULL;
  size_t count;
  treadle_status status;
  TREADLE_NEED(prompts_p);
  *prompts_p = NULL;
  TREADLE_NEED(options);
  TRY(TREADLE_TAKE(options, &o));
  TREADLE_NEED(o.path);
  const treadle_rl_prompts_spec spec = {.path = o.path,
                                        .words = &words,
                                        .prompt_key = o.prompt_key ? o.prompt_key : "prompt",
                                        .answer_key = o.answer_key ? o.answer_key : "answer",
                                        .data_source_key =
                                            o.data_source_key ? o.data_source_key : "data_source",
                                        .tokenizer = o.tokenizer,
                                        .chat = o.chat,
                                        .vocabulary = o.vocabulary ? o.vocabulary : INT32_MAX,
                                        .most_tokens = o.most_tokens ? o.most_tokens : INT32_MAX,
                                        .need_answer = o.need_answers};
  TRY(treadle_rl_prompts_read(&spec, &read));
  const treadle_rl_prompt *items = treadle_rl_prompts_items(read, &count);
  TRY(treadle_batch_create((int64_t)count, &batch));
  TRY(add_ids(batch, items, count));
  TRY(add_texts(batch, items, count));
  *prompts_p = batch;
  batch = NULL;
out:
  treadle_batch_destroy(batch);
  treadle_rl_prompts_destroy(read);
  return status;
}

/* ---- Those of a step --------------------------------------------------------------------------------------------- */

static treadle_status find_rows(const treadle_draw_options *o, int64_t prompts, int64_t *rows) {
  treadle_train_order order;
  treadle_status status;
  TRY(treadle_train_order_init(&order, (uint64_t)o->seed, (size_t)prompts));
  if (o->in_place) treadle_train_order_keep(&order);
  for (int64_t i = 0; i < o->count; i++)
    rows[i] = (int64_t)treadle_train_order_at(&order, o->step * o->count + i);
  treadle_train_order_release(&order);
out:
  return status;
}

/* Values [count], int64. */
static treadle_status add_numbers(treadle_batch *batch, const char *name, int64_t *values) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = name, .type = TREADLE_COLUMN_INT64, .width = 1, .data = values};
  return treadle_batch_add(batch, &column);
}

treadle_status treadle_prompts_draw(const treadle_batch *prompts, const treadle_draw_options *options,
                                    treadle_batch **drawn_p) {
  treadle_draw_options o;
  treadle_batch *drawn = NULL;
  int64_t *numbers = NULL;
  treadle_status status;
  TREADLE_NEED(drawn_p);
  *drawn_p = NULL;
  TREADLE_NEED(prompts);
  TREADLE_NEED(options);
  TRY(TREADLE_TAKE(options, &o));
  if (treadle_batch_rows(prompts) < 1 || o.count < 1 || o.step < 0 || o.step > INT64_MAX / o.count - 1)
    REFUSE("%lld prompts, step %lld of %lld each: at least one prompt, a step from 0 and a count from 1",
           (long long)treadle_batch_rows(prompts), (long long)o.step, (long long)o.count);
  numbers = treadle_alloc_array((size_t)o.count, sizeof *numbers);
  if (!numbers) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld prompts", (long long)o.count));
  TRY(find_rows(&o, treadle_batch_rows(prompts), numbers));
  TRY(treadle_batch_index(prompts, numbers, (size_t)o.count, &drawn));
  for (int64_t i = 0; i < o.count; i++) numbers[i] = treadle_rl_seed(o.sampling_seed, o.step, i);
  TRY(add_numbers(drawn, "seed", numbers));
  for (int64_t i = 0; i < o.count; i++) numbers[i] = i;
  TRY(add_numbers(drawn, "group", numbers));
  *drawn_p = drawn;
  drawn = NULL;
out:
  treadle_batch_destroy(drawn);
  treadle_free(numbers);
  return status;
}
