/* The oracle of layouts: which canonical element lies where, written down element by element.
 *
 * It is the second opinion that the library's layouts and plans are tested against: plain loops over
 * rows and columns, one function per rule of docs/rules.md (its section
 * numbers stand beside each rule), and it shares no code and no header with src/core/layout, src/core/plan or
 * src/core/model. It is slow and big on purpose: every local element is one entry of an array. Models of up to some
 * 1e5 elements.
 *
 * Families, from a config.json object in Hugging Face's words (text_config is looked into): llama, smollm3,
 * qwen2, qwen3, gemma3_text, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3 (kimi_k2), glm4_moe,
 * gpt_oss, qwen3_next, qwen3_5_text, qwen3_5_moe_text, qwen3_vl_moe_text, deepseek_ocr.
 *
 * Canonical tensors are those of the files on the hub: one for each expert, but for gpt_oss and
 * qwen3_vl_moe_text, whose experts are packed. Copies (a tied lm_head, the embedding and the head of an MTP layer) are aliases of one tensor.
 *
 * Layouts (sizes of 1 may be left out; a value with commas stands in double quotes):
 *   hf                 every rank has every canonical tensor        hf:root=R   rank R only
 *   megatron:          tp pp vpp cp dp ep etp order first last embedding_split=on loss_split=on layout="Et|tL"
 *                      padded_vocab_size vocab_divisible_by (128) spec=te|local
 *                      experts=grouped|sequential|stacked|legacy mla_down_proj_fusion=on; what is left is dp
 *   vllm:              tp pp dp pcp partition="1,3,1" ep=on placement=linear|round_robin redundant=N map=@file
 *                      names=old; what is left is engine replicas, slowest
 *   sglang:            tp pp attn_dp attn_cp ep moe_dp partition redundant=N map=@file shared_fusion=on
 *                      moe_dense_tp=1 dp_lm_head=on a2a=deepep moe=triton_kernels|triton; the same
 *   fsdp:              dp tp replicate orig_params=on wrap=layer|none
 *   fsdp2:             dp tp replicate
 *   zero1 zero2 zero3: dp tp
 *   distopt:           the keys of megatron, bucket_size and pad=on
 * The last four types are in oracle_flat.c and oracle_distopt.c, which say what a rank's tensors are.
 * on="0-3,8" with each of them: only these ranks hold the layout, which is made for as many ranks as these.
 * dtype= is accepted and says nothing here, but for the alignment of fsdp, and for fp8 models (those whose
 * quantization_config has a weight_block_size): hf, vllm and sglang hold these in codes, with scales behind
 * each tensor, unless dtype= is another type than fp8. ep=1 and ep=off are accepted where
 * there are no experts. The draft (MTP) model of vllm and sglang is chunk 1 of the last stage.
 *
 * What an engine's loader never writes is marked: it may hold anything, and a layout may leave it out.
 *
 * Memory: everything made here is ended by oracle_model_free and oracle_layout_free; when memory is out the
 * program ends, as it is a test. */
#ifndef TREADLE_TESTS_ORACLE_H
#define TREADLE_TESTS_ORACLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- The model ------------------------------------------------------------------------------- */

typedef struct oracle_tensor { /* a canonical tensor: Hugging Face's name, row-major shape */
  char name[96];
  int32_t layer; /* -1 outside layers */
  int ndim;
  int64_t shape[3];
  int64_t elems;
  int64_t first; /* elements of all tensors before it */
  uint64_t hash; /* of the name */
  int32_t scale,
      weight; /* of a tensor that fp8 files hold in blocks: its scales; of scales: that tensor; else 0 */
} oracle_tensor;

typedef struct oracle_model {
  char type[24];                  /* one of the families; kimi_k2 is deepseek_v3, smollm3 stays */
  int64_t V, H, L, nh, ng, hd, I; /* as in docs/rules.md 0 */
  bool tied, qkv_bias, o_bias, mlp_bias, qk_norm;
  bool wrapped;  /* the config was the text_config of another */
  bool sandwich; /* four norms in a layer: gemma3 */
  bool sinks;    /* gpt_oss */
  bool gated;    /* q_proj has a gate beside every query head: qwen3_next, qwen3_5 */

  int64_t E, Im, Is;      /* 0: no experts, no shared expert */
  int64_t shared, groups; /* n_shared_experts; n_group */
  bool halves;            /* experts in one tensor, transposed, gate beside up: qwen3_vl_moe */
  bool packed;            /* experts in one tensor, transposed and interleaved: gpt_oss */
  bool router_bias, correction_bias, shared_gate;

  bool mla;
  int64_t q_lora, kv_lora, nope, rope, vd; /* q_lora 0: none */

  int64_t nk, nv, dk, dv, K; /* nk 0: no linear attention */
  bool split_in_proj;        /* in_proj_qkv, z, b, a: qwen3_5 */

  int64_t mtp;   /* layers behind the L of the decoder */
  bool next_mtp; /* named mtp.*, not model.layers.{L}.* */
  bool *moe;     /* [L + mtp] has experts */
  bool *linear;  /* [L + mtp] linear attention */

  int64_t block[2]; /* rows and columns of an fp8 block; 0: none */
  int elem_bytes;   /* by dtype or torch_dtype; 2 when neither is there */
  int32_t tensor_count, tensor_room;
  oracle_tensor *tensors;
  int64_t elems;
} oracle_model;

/* NULL, and a reason in why[200], when the config is of no family above or misses a field. */
oracle_model *oracle_model_new(const json_t *config, char why[200]);
void oracle_model_free(oracle_model *model);
/* The tensor of a name, -1 when there is none. A tied lm_head.weight is the embedding; so are an MTP layer's
 * embed_tokens.weight, and its shared_head.head.weight is the head. */
int32_t oracle_model_find(const oracle_model *model, const char *name);
/* The value that tests give a canonical element: a hash of the tensor's name and the index. */
uint64_t oracle_value(const oracle_model *model, int32_t tensor, int64_t index);

/* ---- Layouts --------------------------------------------------------------------------------- */

enum { ORACLE_PADDING = -1 };

typedef struct oracle_storage { /* one tensor in the memory of a rank */
  char name[128];               /* the engine's name on that rank */
  int chunk;                    /* virtual pipeline stage */
  int ndim;
  int64_t shape[3];
  int64_t elems;
  int add;         /* the stored value is the canonical one plus this: -1 for Megatron's GDN out_norm */
  bool mixed;      /* a buffer of many: those elements that are stored less 1 in Megatron are so here */
  bool unwritten;  /* nothing of the file is loaded into it; here it has what a tied or shared tensor would
                      have, or padding */
  bool derived;    /* made after loading, from what another tensor has: W_UK_T, w_kc */
  int32_t *tensor; /* [elems] the canonical tensor of each local element, ORACLE_PADDING: a zero */
  int64_t *index;  /* [elems] the element of that tensor, row-major; 0 for padding */
} oracle_storage;

typedef struct oracle_rank {
  int count, room;
  oracle_storage *storages; /* in the order of the engine's named_parameters */
  struct {
    char name[12];
    int64_t index;
  } at[16]; /* coordinates: "tp", "pp", ...; ended by an empty name */
} oracle_rank;

typedef struct oracle_layout {
  const oracle_model *model;
  int64_t ranks;
  bool fp8;          /* holds blocks of codes, and their scales */
  bool split;        /* a block is cut, or has several scales: values cannot be quantised into it */
  oracle_rank *rank; /* [ranks] by physical rank */
} oracle_layout;

/* Makes the layout of `text` on `ranks` ranks. `strides` is the rank map of an inference layout: 1 is
 * contiguous; d puts layout rank i = g * T + t (T = tp of this layout) on physical rank
 * (g / d) * (d * T) + g % d + d * t, and d * T must divide the ranks. NULL and a reason when the layout
 * cannot be. The model must outlive the layout. */
oracle_layout *oracle_layout_new(const oracle_model *model, const char *text, int64_t ranks,
                                 int64_t strides, char why[200]);
void oracle_layout_free(oracle_layout *layout);
/* The coordinate of a rank in a dimension; -1 when the layout has none of that name. */
int64_t oracle_layout_coordinate(const oracle_layout *layout, int64_t rank, const char *dimension);
/* NULL when the rank has no tensor of that name in that chunk. */
const oracle_storage *oracle_layout_find(const oracle_layout *layout, int64_t rank, int chunk,
                                         const char *name);

/* What is added to the canonical value of one element. */
int oracle_add_of(const oracle_model *model, const oracle_storage *storage, int64_t elem);

/* ---- The lower bound of a move --------------------------------------------------------------- */

/* The number of distinct canonical elements that a rank holds. */
int64_t oracle_held(const oracle_layout *layout, int64_t rank);
/* The number of distinct canonical elements that `rank` has in `to` and does not already hold in `from`.
 * Times the bytes of one element it is the least that must travel to the rank. */
int64_t oracle_inbound(const oracle_layout *from, const oracle_layout *to, int64_t rank);
int64_t oracle_inbound_total(const oracle_layout *from, const oracle_layout *to);

#endif
