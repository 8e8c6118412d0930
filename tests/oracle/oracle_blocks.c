/* fp8 blocks: which tensors have them, their scales, and where engines keep the scales. Rules 4.10. */
#include "oracle/oracle_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The model ------------------------------------------------------------------------------- */

void oracle_blocks_read(const json_t *config, oracle_model *model) {
  const json_t *found = json_object_get(config, "quantization_config");
  const char *method = json_string_value(json_object_get(found, "quant_method"));
  const json_t *size = json_object_get(found, "weight_block_size");
  if (!method || strcmp(method, "fp8") != 0) return;
  model->block[0] = json_integer_value(json_array_get(size, 0));
  model->block[1] = json_integer_value(json_array_get(size, 1));
}

/* All projections of attention and MLP; not embedding, head, norms, routers, gates of shared experts, convolutions,
 * eh_proj. */
static bool has_blocks(const oracle_model *m, const oracle_tensor *tensor) {
  static const char *const projections[] = {
      "q_proj",    "k_proj",   "v_proj",       "o_proj",      "q_a_proj",  "q_b_proj",
      "gate_proj", "up_proj",  "down_proj",    "kv_b_proj",   "w1",        "w2",
      "w3",        "out_proj", "in_proj_qkvz", "in_proj_qkv", "in_proj_z", "kv_a_proj_with_mqa",
      NULL};
  char end[ORACLE_NAME];
  size_t length = strlen(tensor->name);
  bool never = oracle_is(m, "gemma3_text") || oracle_is(m, "deepseek_ocr") || m->packed || m->halves;
  for (int i = 0; projections[i] && !never && tensor->ndim == 2; i++) {
    snprintf(end, sizeof end, ".%s.weight", projections[i]);
    if (length > strlen(end) && strcmp(tensor->name + length - strlen(end), end) == 0) return true;
  }
  return false;
}

void oracle_scales_make(oracle_model *m) {
  int32_t count = m->tensor_count;
  for (int32_t i = 0; i < count && m->block[0]; i++) {
    const oracle_tensor *of = &m->tensors[i];
    char name[2 * ORACLE_NAME];
    if (!has_blocks(m, of)) continue;
    snprintf(name, sizeof name, "%s_scale_inv", of->name);
    oracle_tensor_add(m, name, (of->shape[0] + m->block[0] - 1) / m->block[0],
                      (of->shape[1] + m->block[1] - 1) / m->block[1]);
    m->tensors[m->tensor_count - 1].layer = m->tensors[i].layer;
    m->tensors[m->tensor_count - 1].weight = i;
    m->tensors[i].scale = m->tensor_count - 1;
  }
}

/* ---- Layouts --------------------------------------------------------------------------------- */

/* Rows of a stored matrix that follow each other in one canonical tensor. */
typedef struct section {
  int64_t first, rows; /* of the stored matrix */
  const oracle_tensor *tensor;
  int64_t row; /* of the tensor */
} section;

/* What is known of a storage tensor of [matrices, rows, columns]. */
typedef struct stored {
  const oracle_model *model;
  const oracle_storage *of;
  int64_t matrices, rows, columns;
  int64_t high, wide; /* of the blocks that scales are kept for */
} stored;

static section section_at(const stored *s, int64_t matrix, int64_t first) {
  const int64_t begin = (matrix * s->rows + first) * s->columns;
  const oracle_tensor *tensor = &s->model->tensors[s->of->tensor[begin]];
  section found = {first, 1, tensor, s->of->index[begin] / tensor->shape[1]};
  while (first + found.rows < s->rows) {
    int64_t next = begin + found.rows * s->columns;
    if (&s->model->tensors[s->of->tensor[next]] != tensor ||
        s->of->index[next] / tensor->shape[1] != found.row + found.rows)
      break;
    found.rows++;
  }
  return found;
}

static bool is_of_blocks(const oracle_model *m, const oracle_storage *s) {
  if (s->derived || s->elems == 0 || s->ndim < 2) return false;
  for (int64_t e = 0; e < s->elems; e++)
    if (s->tensor[e] < 0 || !m->tensors[s->tensor[e]].scale) return false;
  return true;
}

static int64_t divisor(int64_t a, int64_t b) { return b ? divisor(b, a % b) : a; }

/* A section is cut in whole blocks; or it is all of the tensor, and no other follows it. vLLM keeps scales of finer
 * blocks for experts that are cut otherwise (4.10), so that each is repeated; of 32 at least, and of whole ones. */
static bool choose_blocks(stored *s, bool refines, char *why) {
  int64_t finer = s->model->block[0];
  bool fit = true, whole = true;
  s->high = s->model->block[0];
  s->wide = s->model->block[1];
  for (int64_t m = 0; m < s->matrices; m++)
    for (int64_t row = 0; row < s->rows;) {
      section at = section_at(s, m, row);
      row += at.rows;
      bool rows_fit = (at.rows % s->high == 0 && at.row % s->high == 0) ||
                      (at.rows == at.tensor->shape[0] && row == s->rows);
      fit = fit && rows_fit && (s->columns % s->wide == 0 || s->columns == at.tensor->shape[1]);
      finer = divisor(divisor(at.rows, s->columns), finer);
      whole = whole && at.tensor->shape[0] % s->high == 0 && at.tensor->shape[1] % s->wide == 0;
    }
  if (fit) return true;
  if (!refines || s->of->ndim != 3 || s->high != s->wide || (s->high > 32 && (!whole || finer < 32)))
    return oracle_refuse(why, "%s is cut inside of its blocks", s->of->name);
  s->high = s->wide = finer;
  return true;
}

/* The scales of one section from row `at` of their matrix on, where there are any; the rows that it takes. */
static int64_t set_scales(const stored *s, int64_t matrix, const section *from, int64_t at,
                          const oracle_window *w) {
  int64_t down = (from->rows + s->high - 1) / s->high;
  for (int64_t i = 0; i < down && w; i++)
    for (int64_t j = 0; j < w->cols; j++) {
      int64_t code = (matrix * s->rows + from->first + i * s->high) * s->columns + j * s->wide;
      int64_t row = s->of->index[code] / from->tensor->shape[1];
      int64_t column = s->of->index[code] % from->tensor->shape[1];
      const oracle_tensor *scales = &s->model->tensors[from->tensor->scale];
      const oracle_matrix all = {from->tensor->scale, 0, scales->shape[1], 1, scales->shape[0],
                                 scales->shape[1]};
      oracle_set(s->model, *w, at + i, j, all, row / s->model->block[0], column / s->model->block[1]);
    }
  return down;
}

static int64_t set_matrix(const stored *s, int64_t matrix, const oracle_window *w) {
  int64_t down = 0;
  for (int64_t row = 0; row < s->rows;) {
    section at = section_at(s, matrix, row);
    down += set_scales(s, matrix, &at, down, w);
    row += at.rows;
  }
  return down;
}

/* Is a block of the model cut, or are scales of its parts kept? */
static bool is_split(const stored *s) {
  int64_t high = s->model->block[0], wide = s->model->block[1];
  int64_t across = (s->columns + s->wide - 1) / s->wide;
  for (int64_t m = 0; m < s->matrices; m++)
    for (int64_t row = 0; row < s->rows;) {
      section at = section_at(s, m, row);
      int64_t column = s->of->index[(m * s->rows + row) * s->columns] % at.tensor->shape[1];
      int64_t end = at.row + at.rows, column_end = column + s->columns;
      bool cut = at.row % high || column % wide || (end % high && end < at.tensor->shape[0]) ||
                 (column_end % wide && column_end < at.tensor->shape[1]);
      int64_t blocks = (at.rows + high - 1) / high * ((s->columns + wide - 1) / wide);
      if (cut || (at.rows + s->high - 1) / s->high * across != blocks) return true;
      row += at.rows;
    }
  return false;
}

/* The tensor of scales of a storage tensor, added behind the others of the rank. */
static bool add_scales(const oracle_place *at, const oracle_storage *of, bool refines, bool *split_p,
                       char *why) {
  const bool stacked = of->ndim == 3;
  stored s = {.model = at->model,
              .of = of,
              .matrices = stacked ? of->shape[0] : 1,
              .rows = of->shape[stacked],
              .columns = of->shape[stacked + 1]};
  if (!choose_blocks(&s, refines, why)) return false;
  *split_p = *split_p || is_split(&s);
  int64_t down = set_matrix(&s, 0, NULL), across = (s.columns + s.wide - 1) / s.wide;
  oracle_window w = stacked ? oracle_add_stack(at, s.matrices, down, across, "%s_scale_inv", of->name)
                            : oracle_add(at, down, across, "%s_scale_inv", of->name);
  oracle_last(at)->unwritten = of->unwritten;
  for (int64_t m = 0; m < s.matrices; m++) {
    oracle_window one = stacked ? oracle_step(w, m) : w;
    set_matrix(&s, m, &one);
  }
  return true;
}

/* The stack of scales of that name on a rank before this one that has experts; NULL: there is none. */
static const oracle_storage *find_scales(const oracle_layout *layout, int64_t before, const char *name) {
  for (int64_t r = 0; r < before; r++)
    for (int i = 0; i < layout->rank[r].count; i++) {
      const oracle_storage *s = &layout->rank[r].storages[i];
      if (s->elems > 0 && strcmp(s->name, name) == 0) return s;
    }
  return NULL;
}

/* A rank without experts has a stack of none, and one of no scales: of gate and up, or of down. The blocks are those of ranks
 * with experts. */
static void add_no_scales(const oracle_layout *layout, int64_t rank, const oracle_place *at,
                          const oracle_storage *of) {
  const int64_t *block = at->model->block;
  int64_t parts = strstr(of->name, "w13") ? 2 : 1, rows = of->shape[1] / parts;
  int64_t down = (rows + block[0] - 1) / block[0] * parts,
          across = (of->shape[2] + block[1] - 1) / block[1];
  char name[2 * ORACLE_NAME];
  snprintf(name, sizeof name, "%s_scale_inv", of->name);
  const oracle_storage *same = find_scales(layout, rank, name);
  oracle_add_stack(at, 0, same ? same->shape[1] : down, same ? same->shape[2] : across, "%s", name);
  oracle_last(at)->unwritten = of->unwritten;
}

bool oracle_blocks_add(oracle_layout *layout, bool refines, char *why) {
  for (int64_t r = 0; r < layout->ranks; r++) {
    oracle_rank bare = layout->rank[r], *rank = &layout->rank[r];
    bool good = true;
    rank->count = rank->room = 0;
    rank->storages = NULL;
    for (int i = 0; i < bare.count; i++) {
      const oracle_place at = {
          .model = layout->model, .rank = rank, .layer = -1, .chunk = bare.storages[i].chunk};
      if (rank->count + 2 > rank->room) {
        rank->room = 2 * rank->room + 64;
        rank->storages = realloc(rank->storages, (size_t)rank->room * sizeof *rank->storages);
        if (!rank->storages) abort();
      }
      rank->storages[rank->count++] = bare.storages[i];
      if (good && is_of_blocks(layout->model, &bare.storages[i]))
        good = add_scales(&at, &bare.storages[i], refines, &layout->split, why);
      else if (good && bare.storages[i].elems == 0 && strstr(bare.storages[i].name, "experts.w"))
        add_no_scales(layout, r, &at, &bare.storages[i]);
    }
    free(bare.storages);
    if (!good) return false;
  }
  return true;
}
