#include "train/critic.h"

#include "test.h"

#include "base/random.h"
#include "base/status.h"
#include "io/file.h"
#include "io/safetensors.h"

#include <math.h>

enum {
  HEADS = 4,
  KV_HEADS = 2,
  HEAD = CRITIC_HIDDEN / HEADS,
  INNER = 48,
  LONGEST = 1024,
  VALUES_MOST = 64 * 1024
};

static const char config_format[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
    "\"vocab_size\": 16, \"hidden_size\": 32,"
    " \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"intermediate_size\": 48,"
    " \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5, \"rope_theta\": "
    "10000.0, \"torch_dtype\": \"float32\","
    " \"tie_word_embeddings\": %s}";

/* ---- Files ------------------------------------------------------------------------------------------------ */

typedef struct files {
  treadle_stored tensors[CRITIC_TENSORS];
  char names[CRITIC_TENSORS][80];
  int32_t count;
  float *values; /* [VALUES_MOST] */
  size_t used;
  treadle_random random;
} files;

/* Values are even around `middle`. */
static void add(files *f, const char *name, int layer, int64_t rows, int64_t columns, double middle) {
  treadle_stored *t = &f->tensors[f->count];
  char *to = f->names[f->count++];
  if (layer >= 0)
    snprintf(to, sizeof f->names[0], "model.layers.%d.%s.weight", layer, name);
  else
    snprintf(to, sizeof f->names[0], "%s", name);
  *t = (treadle_stored){.name = to,
                        .dtype = TREADLE_FP32,
                        .dtype_text = "F32",
                        .ndim = columns ? 2 : 1,
                        .shape = {rows, columns},
                        .elems = rows * (columns ? columns : 1),
                        .data = f->values + f->used};
  t->bytes = (size_t)t->elems * sizeof(float);
  for (int64_t i = 0; i < t->elems; i++)
    f->values[f->used++] =
        (float)(middle + 0.6 * ((double)(treadle_random_next(&f->random) >> 40) / (1 << 24) - 0.5));
}

static void fill(files *f, critic_head head) {
  add(f, "model.embed_tokens.weight", -1, LOSS_VOCABULARY, CRITIC_HIDDEN, 0);
  for (int l = 0; l < CRITIC_LAYERS; l++) {
    add(f, "self_attn.q_proj", l, HEADS * HEAD, CRITIC_HIDDEN, 0);
    add(f, "self_attn.k_proj", l, KV_HEADS * HEAD, CRITIC_HIDDEN, 0);
    add(f, "self_attn.v_proj", l, KV_HEADS * HEAD, CRITIC_HIDDEN, 0);
    add(f, "self_attn.o_proj", l, CRITIC_HIDDEN, HEADS * HEAD, 0);
    add(f, "mlp.gate_proj", l, INNER, CRITIC_HIDDEN, 0);
    add(f, "mlp.up_proj", l, INNER, CRITIC_HIDDEN, 0);
    add(f, "mlp.down_proj", l, CRITIC_HIDDEN, INNER, 0);
    add(f, "input_layernorm", l, CRITIC_HIDDEN, 0, 1);
    add(f, "post_attention_layernorm", l, CRITIC_HIDDEN, 0, 1);
  }
  add(f, "model.norm.weight", -1, CRITIC_HIDDEN, 0, 1);
  if (head != CRITIC_LM) add(f, "score.weight", -1, head == CRITIC_TWO_LABELS ? 2 : 1, CRITIC_HIDDEN, 0);
  if (head == CRITIC_SCORE_BIAS) add(f, "score.bias", -1, 1, 0, 0.5);
  if (head == CRITIC_LM || head == CRITIC_BOTH)
    add(f, "lm_head.weight", -1, LOSS_VOCABULARY, CRITIC_HIDDEN, 0);
}

treadle_status critic_write(const char *folder, critic_head head) {
  files *f = calloc(1, sizeof *f);
  char path[600], config[sizeof config_format + 8];
  treadle_status status;
  if (!f || !(f->values = calloc(VALUES_MOST, sizeof *f->values))) {
    free(f);
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a critic");
  }
  f->random = (treadle_random){77};
  fill(f, head);
  snprintf(path, sizeof path, "%s/config.json", folder);
  snprintf(config, sizeof config, config_format, head == CRITIC_TIED ? "true" : "false");
  TRY(treadle_file_write(path, config, strlen(config)));
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  TRY(treadle_safetensors_write(path, f->tensors, f->count));
out:
  free(f->values);
  free(f);
  return status;
}

treadle_status critic_open(const char *folder, bool zeros, treadle_model **model_p) {
  const treadle_model_options options = {
      .struct_size = sizeof options, .head = TREADLE_HEAD_SCORE, .score_zeros = zeros};
  return treadle_model_open(folder, &options, model_p);
}

/* ---- A batch ---------------------------------------------------------------------------------------------- */

static treadle_status add_numbers(treadle_batch *batch, const char *name, double width, uint64_t seed) {
  treadle_random random = {seed};
  treadle_column ids = TREADLE_INIT(treadle_column);
  float *values = NULL;
  treadle_status status;
  TRY(treadle_batch_column(batch, "ids", &ids));
  const int64_t count = ids.offsets[treadle_batch_rows(batch)];
  values = calloc((size_t)count + 1, sizeof *values);
  if (!values) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld values", (long long)count));
  for (int64_t i = 0; i < count; i++)
    values[i] = (float)(width * ((double)(treadle_random_next(&random) >> 40) / (1 << 24) - 0.5));
  TRY(rows_add(batch, name, TREADLE_COLUMN_FP32, values));
out:
  free(values);
  return status;
}

treadle_status critic_batch(size_t longest, treadle_batch **batch_p) {
  treadle_status status;
  TRY(loss_batch(longest, false, batch_p));
  TRY(add_numbers(*batch_p, "values", 3, 5));
  TRY(add_numbers(*batch_p, "returns", 4, 6));
out:
  return status;
}

/* ---- The twin --------------------------------------------------------------------------------------------- */

void critic_twin_open(critic_twin *twin, const char *folder) {
  treadle_checkpoint *checkpoint;
  char path[600];
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_ok(treadle_checkpoint_open(path, &checkpoint));
  assert_true(checkpoint->count <= CRITIC_TENSORS);
  twin->count = checkpoint->count;
  for (int i = 0; i < twin->count; i++) {
    const treadle_stored *t = &checkpoint->tensors[i];
    snprintf(twin->names[i], sizeof twin->names[i], "%s", t->name);
    twin->counts[i] = t->elems;
    twin->weights[i] = calloc((size_t)t->elems, sizeof(double));
    assert_non_null(twin->weights[i]);
    for (int64_t k = 0; k < t->elems; k++) twin->weights[i][k] = (double)((const float *)t->data)[k];
  }
  treadle_checkpoint_close(checkpoint);
}

void critic_twin_close(critic_twin *twin) {
  for (int i = 0; i < twin->count; i++) free(twin->weights[i]);
}

double *critic_twin_find(const critic_twin *twin, const char *name, int64_t *count_p) {
  for (int i = 0; i < twin->count; i++)
    if (strcmp(twin->names[i], name) == 0) {
      if (count_p) *count_p = twin->counts[i];
      return twin->weights[i];
    }
  return NULL;
}

static const double *of_layer(const critic_twin *twin, int layer, const char *name) {
  char full[80];
  snprintf(full, sizeof full, "model.layers.%d.%s.weight", layer, name);
  const double *found = critic_twin_find(twin, full, NULL);
  assert_non_null(found);
  return found;
}

static void norm(const double *x, const double *weight, double *to) {
  double sum = 0;
  for (int i = 0; i < CRITIC_HIDDEN; i++) sum += x[i] * x[i];
  for (int i = 0; i < CRITIC_HIDDEN; i++) to[i] = x[i] / sqrt(sum / CRITIC_HIDDEN + 1e-5) * weight[i];
}

static void multiply(const double *x, const double *weight, int rows, int columns, double *to) {
  for (int r = 0; r < rows; r++) {
    to[r] = 0;
    for (int c = 0; c < columns; c++) to[r] += weight[r * columns + c] * x[c];
  }
}

static void rotate(double *x, int heads, size_t position) {
  for (int h = 0; h < heads; h++, x += HEAD)
    for (int i = 0; i < HEAD / 2; i++) {
      const double angle = (double)position * pow(10000, -2.0 * i / HEAD), a = x[i], b = x[HEAD / 2 + i];
      x[i] = a * cos(angle) - b * sin(angle);
      x[HEAD / 2 + i] = b * cos(angle) + a * sin(angle);
    }
}

/* found [HEADS * HEAD] of the token at `position`; keys and values [position + 1, KV_HEADS * HEAD]. */
static void attend(const double *q, const double *keys, const double *values, size_t position,
                   double *found) {
  double weights[LONGEST];
  for (int h = 0; h < HEADS; h++) {
    const int kv = h / (HEADS / KV_HEADS) * HEAD;
    double sum = 0;
    for (size_t t = 0; t <= position; t++) {
      double score = 0;
      for (int i = 0; i < HEAD; i++)
        score += q[h * HEAD + i] * keys[t * KV_HEADS * HEAD + (size_t)(kv + i)];
      sum += weights[t] = exp(score / sqrt(HEAD));
    }
    for (int i = 0; i < HEAD; i++) {
      found[h * HEAD + i] = 0;
      for (size_t t = 0; t <= position; t++)
        found[h * HEAD + i] += weights[t] / sum * values[t * KV_HEADS * HEAD + (size_t)(kv + i)];
    }
  }
}

static void run_mlp(const critic_twin *twin, int layer, double *x) {
  double normed[CRITIC_HIDDEN], gate[INNER], up[INNER], down[CRITIC_HIDDEN];
  norm(x, of_layer(twin, layer, "post_attention_layernorm"), normed);
  multiply(normed, of_layer(twin, layer, "mlp.gate_proj"), INNER, CRITIC_HIDDEN, gate);
  multiply(normed, of_layer(twin, layer, "mlp.up_proj"), INNER, CRITIC_HIDDEN, up);
  for (int i = 0; i < INNER; i++) up[i] *= gate[i] / (1 + exp(-gate[i]));
  multiply(up, of_layer(twin, layer, "mlp.down_proj"), CRITIC_HIDDEN, INNER, down);
  for (int i = 0; i < CRITIC_HIDDEN; i++) x[i] += down[i];
}

static void run_layer(const critic_twin *twin, int layer, double *x, size_t count) {
  static double keys[LONGEST * KV_HEADS * HEAD], values[LONGEST * KV_HEADS * HEAD];
  double normed[CRITIC_HIDDEN], q[HEADS * HEAD], found[HEADS * HEAD], o[CRITIC_HIDDEN];
  const int wide = KV_HEADS * HEAD;
  for (size_t t = 0; t < count; t++, x += CRITIC_HIDDEN) {
    norm(x, of_layer(twin, layer, "input_layernorm"), normed);
    multiply(normed, of_layer(twin, layer, "self_attn.q_proj"), HEADS * HEAD, CRITIC_HIDDEN, q);
    multiply(normed, of_layer(twin, layer, "self_attn.k_proj"), wide, CRITIC_HIDDEN,
             keys + t * (size_t)wide);
    multiply(normed, of_layer(twin, layer, "self_attn.v_proj"), wide, CRITIC_HIDDEN,
             values + t * (size_t)wide);
    rotate(q, HEADS, t);
    rotate(keys + t * (size_t)wide, KV_HEADS, t);
    attend(q, keys, values, t, found);
    multiply(found, of_layer(twin, layer, "self_attn.o_proj"), CRITIC_HIDDEN, HEADS * HEAD, o);
    for (int i = 0; i < CRITIC_HIDDEN; i++) x[i] += o[i];
    run_mlp(twin, layer, x);
  }
}

void critic_twin_run(const critic_twin *twin, const int32_t *ids, size_t count, double *to) {
  static double x[LONGEST * CRITIC_HIDDEN];
  double normed[CRITIC_HIDDEN];
  const double *embed = critic_twin_find(twin, "model.embed_tokens.weight", NULL),
               *bias = critic_twin_find(twin, "score.bias", NULL);
  assert_true(count <= LONGEST);
  for (size_t t = 0; t < count; t++)
    memcpy(x + t * CRITIC_HIDDEN, embed + ids[t] * CRITIC_HIDDEN, CRITIC_HIDDEN * sizeof *x);
  for (int l = 0; l < CRITIC_LAYERS; l++) run_layer(twin, l, x, count);
  for (size_t t = 0; t < count; t++) {
    norm(x + t * CRITIC_HIDDEN, critic_twin_find(twin, "model.norm.weight", NULL), normed);
    multiply(normed, critic_twin_find(twin, "score.weight", NULL), 1, CRITIC_HIDDEN, &to[t]);
    if (bias) to[t] += *bias;
  }
}

/* Columns of a batch of critic_batch. */
typedef struct columns {
  treadle_column prompts, ids, mask, values, returns;
} columns;

static columns columns_of(const treadle_batch *batch) {
  columns c;
  struct {
    const char *name;
    treadle_column *column;
  } all[] = {{"prompt_ids", &c.prompts},
             {"ids", &c.ids},
             {"mask", &c.mask},
             {"values", &c.values},
             {"returns", &c.returns}};
  for (size_t i = 0; i < TEST_COUNT(all); i++) {
    *all[i].column = TREADLE_INIT(treadle_column);
    assert_ok(treadle_batch_column(batch, all[i].name, all[i].column));
    assert_int_equal(all[i].column->offsets[0], 0);
  }
  return c;
}

void critic_twin_values(const critic_twin *twin, const treadle_batch *batch, double *to) {
  static double heads[LONGEST];
  static int32_t row[LONGEST];
  const columns c = columns_of(batch);
  for (int64_t r = 0; r < treadle_batch_rows(batch); r++) {
    const int64_t prompt = c.prompts.offsets[r + 1] - c.prompts.offsets[r], first = c.ids.offsets[r],
                  count = c.ids.offsets[r + 1] - first;
    assert_true(prompt > 0 && prompt + count <= LONGEST);
    memcpy(row, (const int32_t *)c.prompts.data + c.prompts.offsets[r], (size_t)prompt * sizeof *row);
    memcpy(row + prompt, (const int32_t *)c.ids.data + first, (size_t)count * sizeof *row);
    critic_twin_run(twin, row, (size_t)(prompt + count), heads);
    for (int64_t i = 0; i < count; i++)
      to[first + i] = ((const uint8_t *)c.mask.data)[first + i] ? heads[prompt + i - 1] : 0;
  }
}

static double weight_of(const treadle_loss_options *loss, int64_t tokens, int64_t rows, int64_t row) {
  const char *name = loss->aggregation ? loss->aggregation : "token-mean";
  if (strcmp(name, "token-mean") == 0) return 1 / (double)tokens;
  if (strcmp(name, "seq-mean-token-sum") == 0) return 1 / (double)rows;
  if (strcmp(name, "seq-mean-token-mean") == 0) return 1 / (double)rows / (double)row;
  return 1 / (double)rows / loss->norm_length;
}

double critic_twin_loss(const critic_twin *twin, const treadle_batch *batch,
                        const treadle_loss_options *loss) {
  static double values[LONGEST * LOSS_ROWS];
  const columns c = columns_of(batch);
  const uint8_t *mask = c.mask.data;
  const int64_t count = treadle_batch_rows(batch);
  int64_t tokens = 0, rows = 0, of_row[LOSS_ROWS] = {0};
  double sum = 0;
  assert_true(count <= LOSS_ROWS);
  critic_twin_values(twin, batch, values);
  for (int64_t r = 0; r < count; r++) {
    for (int64_t i = c.ids.offsets[r]; i < c.ids.offsets[r + 1]; i++) of_row[r] += mask[i];
    tokens += of_row[r];
    rows += of_row[r] > 0;
  }
  for (int64_t r = 0; r < count; r++)
    for (int64_t i = c.ids.offsets[r]; i < c.ids.offsets[r + 1]; i++) {
      const double old = (double)((const float *)c.values.data)[i],
                   to = (double)((const float *)c.returns.data)[i],
                   held = fmin(fmax(values[i], old - loss->clip_value), old + loss->clip_value);
      if (mask[i])
        sum += weight_of(loss, tokens, rows, of_row[r]) *
               fmax((values[i] - to) * (values[i] - to), (held - to) * (held - to)) / 2;
    }
  return sum;
}
