/* Layouts, as text, of what a file says of a switch. */
#include "run/config_switch.h"

#include "base/utf8.h"
#include "layout/settings.h"

#include <string.h>

static const char *before_setting(const treadle_builder *text) {
  return text->text && strchr(text->text, ':') ? "," : ":";
}

void treadle_asked_add_size(treadle_builder *text, const char *key, int64_t value) {
  if (value > 1) treadle_builder_add(text, "%s%s=%lld", before_setting(text), key, (long long)value);
}

void treadle_asked_add_word(treadle_builder *text, const char *key, const char *value) {
  const char *quote = value && strchr(value, ',') ? "\"" : "";
  if (value) treadle_builder_add(text, "%s%s=%s%s%s", before_setting(text), key, quote, value, quote);
}

void treadle_asked_add_ranks(treadle_builder *text, int64_t first, int64_t last, int64_t ranks) {
  if (first == 0 && last == ranks - 1) return;
  treadle_builder_add(text, "%son=%lld-%lld", before_setting(text), (long long)first, (long long)last);
}

treadle_status treadle_asked_keep(treadle_config_reader *reader, const treadle_builder *text,
                                  treadle_switch_key ask, const char **text_p) {
  treadle_arena *arena = &reader->config->arena;
  treadle_settings words;
  *text_p = text->failed ? NULL : treadle_arena_copy_text(arena, text->text);
  if (!*text_p) return treadle_given_no_memory(reader->config);
  treadle_status status = treadle_settings_parse(*text_p, arena, &words);
  return status ? treadle_fail_in(status, "%s: ", treadle_asked_head(reader, ask)) : TREADLE_OK;
}

treadle_status treadle_asked_check_ranks(const treadle_config_reader *reader, treadle_switch_key ask,
                                         const char *what, int64_t ranks, int64_t product) {
  if (!ranks || ranks % product == 0) return TREADLE_OK;
  REFUSE("%s: %s makes %lld, which %s not a multiple of", treadle_asked_head(reader, ask), what,
         (long long)product, treadle_text_count_is(ranks, "rank"));
}

/* ---- Megatron ----------------------------------------------------------------------------------------------- */

/* Chunks of a stage, by their layers. */
static treadle_status count_chunks(treadle_config_reader *reader, int64_t pp, int64_t *chunks_p) {
  int64_t each, layers;
  treadle_status status;
  *chunks_p = 1;
  if (!treadle_asked_is_given(reader, TREADLE_ASK_CHUNK_LAYERS)) return TREADLE_OK;
  TRY(treadle_asked_size(reader, TREADLE_ASK_CHUNK_LAYERS, 1, 1, &each));
  TRY(treadle_asked_size(reader, TREADLE_ASK_LAYERS, 1, 0, &layers));
  if (!layers)
    REFUSE("%s: the chunks of a stage follow from the number of layers, which the file does not say: give "
           "%s, such as %s=28",
           treadle_asked_head(reader, TREADLE_ASK_CHUNK_LAYERS), "actor_config.num_layers",
           "actor_config.num_layers");
  if (layers % (pp * each) != 0)
    REFUSE("%s: %s not divided by pp=%lld times %lld", treadle_asked_head(reader, TREADLE_ASK_CHUNK_LAYERS),
           treadle_text_count_is(layers, "layer"), (long long)pp, (long long)each);
  *chunks_p = layers / pp / each;
out:
  return status;
}

/* "8,6,7,7" as "Et*8|t*6|t*7|t*7,L": a number of layers for each stage, each of which has `chunks`. */
static treadle_status add_layer_list(treadle_config_reader *reader, int64_t pp, int64_t chunks,
                                     treadle_builder *layout) {
  enum { MOST = 1024 };
  const char *text = treadle_asked_text(reader, TREADLE_ASK_LAYER_LIST, NULL),
             *head = treadle_asked_head(reader, TREADLE_ASK_LAYER_LIST);
  int64_t layers[MOST], count = 0;
  for (const char *at = text; *at; count++) {
    char one[24];
    size_t length = strcspn(at, ",");
    snprintf(one, sizeof one, "%.*s", (int)(length < sizeof one ? length : sizeof one - 1),
             at + strspn(at, " "));
    one[strcspn(one, " ,")] = 0;
    if (count == MOST || !treadle_text_to_int64(one, &layers[count]) || layers[count] < 1 ||
        layers[count] > 4096)
      REFUSE("%s is '%s', and must be the layers of each stage, as 8,6,7,7", head,
             treadle_text_shown(text));
    at += length + (at[length] == ',');
  }
  if (count != pp)
    REFUSE("%s is '%s': %s, and pp=%lld", head, treadle_text_shown(text),
           treadle_text_of_count(count, "stage"), (long long)pp);
  for (int64_t i = 0; i < pp * chunks; i++) {
    const int64_t stage = i % pp;
    if (layers[stage] % chunks != 0)
      REFUSE("%s is '%s': %s of stage %lld cannot be divided into %lld chunks", head,
             treadle_text_shown(text), treadle_text_of_count(layers[stage], "layer"), (long long)stage,
             (long long)chunks);
    treadle_builder_add(layout, "%st*%lld", i ? "|" : "E", (long long)(layers[stage] / chunks));
  }
  treadle_builder_add(layout, ",L");
  return TREADLE_OK;
}

/* How layers are divided into stages. */
static treadle_status add_stages(treadle_config_reader *reader, int64_t pp, treadle_builder *text) {
  treadle_builder list = {0};
  int64_t chunks, vpp, first, last;
  bool embedding, loss;
  treadle_status status;
  TRY(treadle_asked_size(reader, TREADLE_ASK_VPP, 1, 1, &vpp));
  TRY(count_chunks(reader, pp, &chunks));
  TRY(treadle_asked_size(reader, TREADLE_ASK_FIRST, 1, 0, &first));
  TRY(treadle_asked_size(reader, TREADLE_ASK_LAST, 1, 0, &last));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_EMBEDDING_SPLIT, false, &embedding));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_LOSS_SPLIT, false, &loss));
  if (vpp > 1 && pp == 1)
    TRY(treadle_fail(TREADLE_REFUSED, "%s is %lld, and needs pp above 1, which is 1",
                     treadle_asked_head(reader, TREADLE_ASK_VPP), (long long)vpp));
  if (chunks > 1) vpp = chunks;
  if (treadle_asked_is_given(reader, TREADLE_ASK_LAYER_LIST)) {
    TRY(add_layer_list(reader, pp, vpp, &list));
    if (list.failed) TRY(treadle_given_no_memory(reader->config));
    if (pp > 1) treadle_asked_add_word(text, "layout", list.text);
    goto out;
  }
  if (treadle_asked_is_given(reader, TREADLE_ASK_STAGES)) {
    treadle_asked_add_word(text, "layout", treadle_asked_text(reader, TREADLE_ASK_STAGES, NULL));
    goto out;
  }
  treadle_asked_add_size(text, "vpp", vpp);
  if (first) treadle_builder_add(text, "%sfirst=%lld", before_setting(text), (long long)first);
  if (last) treadle_builder_add(text, "%slast=%lld", before_setting(text), (long long)last);
  if (embedding) treadle_asked_add_word(text, "embedding_split", "on");
  if (loss) treadle_asked_add_word(text, "loss_split", "on");
out:
  treadle_builder_release(&list);
  return status;
}

/* MindSpeed-RL counts ep in whole tp groups where moe_tp_extend_ep is on: then no expert is cut. */
static treadle_status add_experts(treadle_config_reader *reader, int64_t tp, treadle_builder *text) {
  int64_t ep, etp;
  bool of_tp;
  treadle_status status;
  TRY(treadle_asked_size(reader, TREADLE_ASK_EP, 1, 1, &ep));
  TRY(treadle_asked_size(reader, TREADLE_ASK_ETP, 1, 0, &etp));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_EP_OF_TP, false, &of_tp));
  if (of_tp && etp > 1)
    REFUSE("%s is %lld, and %s is true: experts are then not cut",
           treadle_asked_head(reader, TREADLE_ASK_ETP), (long long)etp,
           reader->asked->of[TREADLE_ASK_EP_OF_TP].path);
  treadle_asked_add_size(text, "ep", of_tp ? ep * tp : ep);
  if (of_tp) etp = 1;
  if (etp && etp != tp) treadle_builder_add(text, "%setp=%lld", before_setting(text), (long long)etp);
out:
  return status;
}

/* Of one key for the dtype, or of MindSpeed-RL's two. */
static treadle_status add_dtype(treadle_config_reader *reader, treadle_builder *text) {
  const char *dtype;
  bool bf16, fp16;
  treadle_status status;
  TRY(treadle_asked_dtype(reader, TREADLE_ASK_MEGATRON_DTYPE, &dtype));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_BF16, false, &bf16));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_FP16, false, &fp16));
  if (bf16 && fp16)
    REFUSE("%s: fp16 and bf16 exclude each other", treadle_asked_head(reader, TREADLE_ASK_FP16));
  if (fp16) dtype = "fp16";
  if (!fp16 && treadle_asked_is_given(reader, TREADLE_ASK_BF16)) dtype = bf16 ? "bf16" : "fp32";
  treadle_asked_add_word(text, "dtype", dtype);
out:
  return status;
}

treadle_status treadle_asked_add_megatron(treadle_config_reader *reader, treadle_builder *text,
                                          int64_t ranks, int64_t *tp_p) {
  int64_t pp, cp, divisor;
  bool before;
  treadle_status status;
  TRY(treadle_asked_size(reader, TREADLE_ASK_TP, 1, 1, tp_p));
  TRY(treadle_asked_size(reader, TREADLE_ASK_PP, 1, 1, &pp));
  TRY(treadle_asked_size(reader, TREADLE_ASK_CP, 1, 1, &cp));
  TRY(treadle_asked_size(reader, TREADLE_ASK_VOCAB_DIVISIBLE_BY, 1, 0, &divisor));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_PP_BEFORE_DP, false, &before));
  TRY(treadle_asked_check_ranks(reader,
                                *tp_p > 1 ? TREADLE_ASK_TP
                                : pp > 1  ? TREADLE_ASK_PP
                                          : TREADLE_ASK_CP,
                                "tp * pp * cp", ranks, *tp_p * pp * cp));
  treadle_builder_add(text, "megatron");
  treadle_asked_add_size(text, "tp", *tp_p);
  treadle_asked_add_size(text, "pp", pp);
  treadle_asked_add_size(text, "cp", cp);
  TRY(add_stages(reader, pp, text));
  TRY(add_experts(reader, *tp_p, text));
  if (before) treadle_asked_add_word(text, "order", "tp-cp-ep-pp-dp");
  if (divisor)
    treadle_builder_add(text, "%svocab_divisible_by=%lld", before_setting(text), (long long)divisor);
  TRY(add_dtype(reader, text));
out:
  return status;
}

/* ---- FSDP ------------------------------------------------------------------------------------------------- */

treadle_status treadle_asked_add_fsdp(treadle_config_reader *reader, treadle_builder *text,
                                      const char *type, int64_t ranks) {
  const char *dtype;
  int64_t size;
  bool orig_params;
  treadle_status status;
  TRY(treadle_asked_size(reader, TREADLE_ASK_FSDP_SIZE, -1, -1, &size));
  TRY(treadle_asked_truth(reader, TREADLE_ASK_ORIG_PARAMS, false, &orig_params));
  TRY(treadle_asked_dtype(reader, TREADLE_ASK_FSDP_DTYPE, &dtype));
  if (size == 0)
    REFUSE("%s is 0, and must be -1, for all ranks, or from 1",
           treadle_asked_head(reader, TREADLE_ASK_FSDP_SIZE));
  if (size > 0 && !ranks)
    REFUSE("%s is %lld: how many copies there are follows from the number of ranks, which the file does "
           "not say",
           treadle_asked_head(reader, TREADLE_ASK_FSDP_SIZE), (long long)size);
  treadle_builder_add(text, "%s", type);
  if (size > 0 && size < ranks) {
    TRY(treadle_asked_check_ranks(reader, TREADLE_ASK_FSDP_SIZE, "it", ranks, size));
    treadle_asked_add_size(text, "dp", size);
    treadle_asked_add_size(text, "replicate", ranks / size);
  }
  if (orig_params && strcmp(type, "fsdp") == 0) treadle_asked_add_word(text, "orig_params", "on");
  treadle_asked_add_word(text, "dtype", dtype);
out:
  return status;
}
