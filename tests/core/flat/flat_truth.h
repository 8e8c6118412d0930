/* The parameters of Hugging Face modules, element by element: what flat layouts are tested against. Plain loops over
 * rows and columns, which share nothing with the library but the names and shapes of the model's tensors. */
#ifndef TREADLE_TESTS_FLAT_TRUTH_H
#define TREADLE_TESTS_FLAT_TRUTH_H

#include "layout/layout.h"

typedef struct flat_elem { /* of the tensor that Hugging Face names so; tensor -1: a fill */
  int32_t tensor;
  int64_t index;
  int8_t add; /* stored is the value plus this */
} flat_elem;

typedef struct flat_elems {
  flat_elem *items;
  int64_t count;
} flat_elems;

typedef struct flat_param { /* as one tp rank has it */
  char name[128];
  int32_t layer; /* -1 outside */
  bool buffer;
  int64_t shape[4];
  flat_elems elems; /* row-major */
} flat_param;

typedef struct flat_module {
  const treadle_model *model;
  int count;
  flat_param *params; /* in module order */
} flat_module;

/* config: a config.json; the family is one of llama, qwen2, qwen3, mixtral, qwen3_moe, deepseek_v3. */
treadle_model *flat_model(const char *config);
flat_module flat_module_make(const treadle_model *model, int64_t tp, int64_t t);
void flat_module_free(flat_module *module);

void flat_add(flat_elems *elems, const flat_elems *more);
void flat_pad(flat_elems *elems, int64_t count); /* with fills */
void flat_free(flat_elems *elems);

treadle_layout *flat_layout(const treadle_model *model, const char *text, int64_t ranks);
/* A storage tensor of a rank has this name and these elements, and the bytes for them. */
void flat_check(const treadle_layout *layout, int64_t rank, int32_t storage, const char *name,
                const flat_elem *elems, int64_t count);
/* The buffers of the module lie whole behind `storage` others. */
void flat_check_buffers(const treadle_layout *layout, int64_t rank, int32_t storage,
                        const flat_module *module);

/* Models of all families, small and with sizes that divide badly. */
extern const char *const flat_configs[];
enum { FLAT_CONFIGS = 6 };

#endif
