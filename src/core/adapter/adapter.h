/* Adapters: what LoRA adds to the matrices of a model. A matrix W [rows, columns] with an adapter stands for W + scale * B A, with A
 * [rank, columns], B [rows, rank] and scale = alpha / rank.
 *
 * Targets are the matrices of layers that multiply rows and are neither routers nor single experts: chosen by the module names of
 * Hugging Face (q_proj, down_proj, ..), or all of them. The head is one where it is named, lm_head, and has a matrix of its own.
 * The tensors of all adapters are a model of their own, with peft's names and fp32 values, so that layouts, files and digests work on
 * it as on any other.
 *
 * Merged values: each element of B A is a chain of fused multiply-adds over rank, ascending, from 0 in fp32; it is multiplied by scale, W is
 * added, and the sum is rounded to W's type. So a merged element depends on its row of B, its column of A and W alone, whoever makes it. */
#ifndef TREADLE_ADAPTER_ADAPTER_H
#define TREADLE_ADAPTER_ADAPTER_H

#include "model/model.h"

enum { TREADLE_ADAPTER_RANK_MOST = 1024 };

/* A target. */
typedef struct treadle_adapter_matrix {
  int32_t tensor;        /* of the base */
  int32_t a, b;          /* of the adapters' model */
  int64_t rows, columns; /* of the base's matrix */
  int64_t at_a, at_b; /* in values of all adapters: elements before A [rank, columns] and B [rows, rank] */
} treadle_adapter_matrix;

typedef struct treadle_adapter {
  const treadle_model *base;
  treadle_model *model; /* the adapters' tensors: of each target A, then B */
  int64_t rank;
  double alpha;
  float scale;
  int32_t count;
  treadle_adapter_matrix *matrices; /* [count] by tensor of the base, ascending */
  int32_t *of_tensor;               /* [tensors of the base] its target; -1: it has no adapter */
  const char **modules;             /* [module_count] names of the targets, each once, in model order */
  int32_t module_count;
  int64_t elems; /* of all adapters */
  treadle_arena arena;
} treadle_adapter;

/* What the adapters of a model are to be. */
typedef struct treadle_adapter_spec {
  int64_t rank;
  double alpha;
  const char *modules; /* names, divided by commas; NULL or "all-linear": all of layers that can have one */
} treadle_adapter_spec;

/* Refused: a rank or alpha out of range, also of their quotient; a list without names; a name that no target of the
 * model has, by that name; a model without targets. The base must outlive the adapter. On failure *adapter_p is
 * NULL. */
treadle_status treadle_adapter_create(const treadle_model *base, const treadle_adapter_spec *spec,
                                      treadle_adapter **adapter_p);
void treadle_adapter_destroy(treadle_adapter *adapter);

/* ---- Merging (merge.c) ---- */

/* Elements of a row of W, and what their adapter has for them. */
typedef struct treadle_adapter_row {
  const float *b; /* [rank] the row of B */
  const float *a; /* [rank, a_stride] A, from the first of these columns on */
  int64_t a_stride;
  void *w; /* [count] */
  treadle_dtype dtype;
  int64_t count;
} treadle_adapter_row;

/* Merges them in place. The plain twin of what trainers merge by. Returns the first of them that was finite and is
 * not any more; -1: there is none. */
int64_t treadle_adapter_merge_row(const treadle_adapter *adapter, const treadle_adapter_row *row);

/* ---- peft's folder (folder.c) ----
 *
 *   adapter_config.json          rank, alpha, modules; what else peft knows is refused where it would change a value
 *   adapter_model.safetensors    "base_model.model." NAME ".lora_A.weight", and B; peft adds a copy of a head that has an adapter */

/* Refused: a path that is empty or that of no folder; a folder without one of the two files. */
treadle_status treadle_adapter_need_folder(const char *folder);
/* The adapters that a folder's config describes. Refused, by name: a folder like that; another method than LoRA,
 * dropout, DoRA, rslora, biases, ranks that differ by module, and the like; adapters that began with a change of the
 * weights beside them, as pissa's do. */
treadle_status treadle_adapter_open(const treadle_model *base, const char *folder,
                                    treadle_adapter **adapter_p);
/* values [elems] of a safetensors file, in fp32. Refused: tensors that are missing, of another shape, or of no
 * target; elements that are infinite or not a number. */
treadle_status treadle_adapter_read(const treadle_adapter *adapter, const char *path, float *values);
/* Is a tensor of that file a copy of the base's head (base_layer.c)? Refused: one with other values, or with nothing at hand to compare it with. */
treadle_status treadle_adapter_check_copy(const treadle_adapter *adapter, const char *path,
                                          const treadle_stored *stored, bool *is_copy_p);
/* Writes adapter_config.json. */
treadle_status treadle_adapter_write_config(const treadle_adapter *adapter, const char *folder);

/* ---- The mark of merged weights (mark.c) ----
 *
 * A folder of weights with adapters in them says whose they are: merged_adapter.json, {"digests": ["0123456789abcdef", ..]}, of the values of each adapter.
 * Nobody can tell otherwise, and merging once more would be wrong. */

/* Folders that say something of the same weights; NULL: none. */
enum { TREADLE_ADAPTER_FOLDERS = 2 };
typedef struct treadle_adapter_folders {
  const char *folder[TREADLE_ADAPTER_FOLDERS];
} treadle_adapter_folders;

/* Refused: one of the folders has them already. *text_p: those of the folders and then theirs, as a JSON text that
 * free() ends. adapter: NULL adds none, and *text_p is NULL where no folder has a mark. */
treadle_status treadle_adapter_mark(const treadle_adapter *adapter, const float *values,
                                    const treadle_adapter_folders *of, char **text_p);
#define TREADLE_ADAPTER_MARK    "merged_adapter.json"
#define TREADLE_ADAPTER_CONFIG  "adapter_config.json"
#define TREADLE_ADAPTER_WEIGHTS "adapter_model.safetensors"

#endif
