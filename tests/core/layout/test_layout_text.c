/* Layout texts: what was printed parses to the same layout; what cannot be is refused, by the key or number
 * that is wrong. */
#include "test.h"

#include "plan/small.h"

#include <inttypes.h>

static const small_config config = {
    .type = "qwen2", .V = 300, .H = 48, .L = 8, .nh = 12, .ng = 4, .hd = 4, .I = 24};

/* ---- Round trips ---- */

static void assert_same_pieces(const treadle_layout *a, const treadle_layout *b) {
  for (int64_t r = 0; r < a->ranks; r++) {
    treadle_pieces one = {0}, two = {0};
    assert_ok(treadle_layout_pieces(a, r, &one));
    assert_ok(treadle_layout_pieces(b, r, &two));
    assert_int_equal(one.count, two.count);
    for (size_t i = 0; i < one.count; i++) {
      const treadle_piece *x = &one.items[i], *y = &two.items[i];
      assert_int_equal(x->tensor, y->tensor);
      assert_int_equal(x->storage, y->storage);
      assert_int_equal(x->dtype, y->dtype);
      assert_int_equal(x->offset, y->offset);
      assert_true(treadle_box_equal(&x->box, &y->box));
      assert_memory_equal(x->stride, y->stride, sizeof x->stride);
    }
    int32_t storages = treadle_layout_storage_count(a, r);
    assert_int_equal(storages, treadle_layout_storage_count(b, r));
    for (int32_t s = 0; s < storages; s++) {
      treadle_storage_info first = TREADLE_INIT(treadle_storage_info),
                           second = TREADLE_INIT(treadle_storage_info);
      assert_ok(treadle_layout_storage(a, r, s, &first));
      assert_ok(treadle_layout_storage(b, r, s, &second));
      assert_string_equal(first.name, second.name);
      assert_int_equal(first.chunk, second.chunk);
    }
    treadle_array_release(&one);
    treadle_array_release(&two);
  }
}

typedef struct round_trip {
  int64_t ranks;
  const char *text, *normal; /* NULL: the text is its own normal form */
} round_trip;

static const round_trip round_trips[] = {
    {1, "hf", NULL},
    {4, "hf:root=3", NULL},
    {4, "hf:root=0,dtype=fp32", NULL},
    {2, "hf:dtype=fp16", NULL},
    {2, "hf:dtype=bfloat16", "hf:dtype=bf16"}, /* as Hugging Face says it */
    {1, "megatron", NULL},
    {4, "megatron:tp=4", NULL},
    {8, "megatron:dp=2,pp=2,tp=2", "megatron:tp=2,pp=2"},
    {1, "megatron:tp=1,pp=1,cp=1,dp=1,ep=1,etp=1", "megatron"},
    {8, "megatron:tp=2,pp=2,vpp=2,cp=2", NULL},
    {8, "megatron:tp=2,pp=4,vpp=1", "megatron:tp=2,pp=4"},
    {8, "megatron:tp=2,etp=2", "megatron:tp=2"},
    {8, "megatron:tp=2,etp=1", "megatron:tp=2,etp=1"},
    {8, "megatron:tp=2,pp=2,order=tp-cp-ep-pp-dp", NULL},
    {8, "megatron:tp=2,pp=2,order=tp-cp-ep-dp-pp", "megatron:tp=2,pp=2"},
    {4, "megatron:pp=4,first=1,last=1", NULL},
    {3, "megatron:pp=3,last=2", NULL},
    {3, "megatron:pp=3,loss_split=on", NULL},
    {2, "megatron:pp=2,embedding_split=on,loss_split=on", NULL},
    {2, "megatron:pp=2,embedding_split=off,loss_split=off", "megatron:pp=2"},
    {2, "megatron:pp=2,layout=Ettt|tttttL", NULL},
    {2, "megatron:pp=2,layout=\"Ettt|tttttL\"", "megatron:pp=2,layout=Ettt|tttttL"},
    {2, "megatron:pp=2,layout=\"Et*3,|(tt)*2,tL\"", NULL},
    {2, "megatron:pp=2,vpp=2,layout=Et|tt|ttt|ttL", "megatron:pp=2,layout=Et|tt|ttt|ttL"},
    {2, "megatron:tp=2,padded_vocab_size=302", NULL},
    {2, "megatron:tp=2,vocab_divisible_by=7", NULL},
    {2, "megatron:tp=2,vocab_divisible_by=128", "megatron:tp=2"},
    {2, "megatron:tp=2,spec=local", NULL},
    {2, "megatron:spec=te,tp=2", "megatron:tp=2"},
    {2, "megatron:tp=2,dtype=fp32", NULL},
    {1, "vllm", NULL},
    {8, "vllm:tp=2,pp=2,dp=2", NULL},
    {8, "vllm:dp=2,pp=2,tp=2", "vllm:tp=2,pp=2,dp=2"},
    {8, "vllm:tp=2,pcp=2", NULL},
    {2, "vllm:pp=2,partition=\"3,5\"", NULL},
    {2, "vllm:pp=2,partition=\" 3, 5 \"", NULL},
    {2, "vllm:pp=2,partition=\"8,0\"", NULL},
    {1, "vllm:partition=8", NULL},
    {2, "vllm:tp=2,ep=off,redundant=0", "vllm:tp=2"},
    {4, "vllm:tp=4,dtype=bf16", NULL},
    {1, "sglang", NULL},
    {8, "sglang:tp=4,attn_dp=2", NULL},
    {8, "sglang:tp=4,pp=1,attn_dp=2,attn_cp=2", "sglang:tp=4,attn_dp=2,attn_cp=2"},
    {4, "sglang:pp=4,partition=\"1,2,3,2\"", NULL},
    {4, "sglang:pp=4,tp=1,dtype=fp16", "sglang:pp=4,dtype=fp16"},
    {8, "megatron:tp=2,on=0-3", NULL},
    {8, "megatron:on=7-7,tp=1,dtype=fp32", "megatron:dtype=fp32,on=7"},
    {8, "vllm:tp=2,on=\"7,2,1,0,4-5\"", "vllm:tp=2,on=\"0-2,4-5,7\""},
    {8, "vllm:tp=2,on=\"4-7,0-3\"", "vllm:tp=2"}, /* all of them */
    {8, "fsdp2:on=\"1,2,3\"", "fsdp2:dp=3,on=1-3"},
    {8, "sglang:tp=2,on=6-7", NULL},
    {3, "hf:on=1", NULL},
    {8, "zero3:on=\"0,2\"", "zero3:dp=2,on=\"0,2\""},
    {8, "distopt:tp=2,on=0-5", NULL},
};

static void texts_make_a_round_trip(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  for (size_t i = 0; i < TEST_COUNT(round_trips); i++) {
    const round_trip *trip = &round_trips[i];
    treadle_layout *first, *second;
    if (treadle_layout_create(model, trip->text, trip->ranks, NULL, &first) != TREADLE_OK)
      fail_msg("%s", treadle_error_message());
    const char *normal = treadle_layout_text(first);
    assert_string_equal(normal, trip->normal ? trip->normal : trip->text);
    assert_ok(treadle_layout_create(model, normal, trip->ranks, NULL, &second));
    assert_string_equal(treadle_layout_text(second), normal);
    assert_true(first->digest == second->digest);
    assert_int_equal(treadle_layout_ranks(second), trip->ranks);
    assert_same_pieces(first, second);
    treadle_layout_destroy(first);
    treadle_layout_destroy(second);
  }
  treadle_model_close(model);
}

static void digests_differ(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  static const char *const texts[] = {"hf",
                                      "hf:root=0",
                                      "hf:dtype=fp32",
                                      "megatron",
                                      "megatron:tp=2",
                                      "megatron:tp=4",
                                      "megatron:pp=4",
                                      "megatron:pp=4,first=3,last=3",
                                      "megatron:tp=2,spec=local",
                                      "vllm",
                                      "vllm:tp=2",
                                      "vllm:tp=2,dtype=fp32",
                                      "sglang",
                                      "sglang:tp=2"};
  uint64_t digest[TEST_COUNT(texts) + 1];
  for (size_t i = 0; i <= TEST_COUNT(texts); i++) { /* the last: other ranks */
    treadle_layout *layout;
    bool more = i < TEST_COUNT(texts);
    assert_ok(treadle_layout_create(model, more ? texts[i] : "hf", more ? 4 : 8, NULL, &layout));
    digest[i] = layout->digest;
    for (size_t k = 0; k < i; k++) assert_true(digest[i] != digest[k]);
    treadle_layout_destroy(layout);
  }
  treadle_model_close(model);
}

/* What is left out is what its default says. */
static void defaults(void **state) {
  (void)state;
  static const struct {
    int64_t ranks;
    const char *text, *same;
  } rows[] = {
      {8, "megatron:tp=2,pp=2",
       "megatron:tp=2,pp=2,dp=2,cp=1,spec=te,vocab_divisible_by=128,order=tp-cp-ep-dp-pp"},
      {2, "megatron:tp=2", "megatron:tp=2,padded_vocab_size=512"}, /* ceil(300 / 256) * 256 */
      {4, "megatron:pp=4", "megatron:pp=4,layout=Ett|tt|tt|ttL"},
      {4, "megatron:pp=4,first=1,last=1", "megatron:pp=4,layout=Et|ttt|ttt|tL"},
      {2, "megatron:pp=2,embedding_split=on,loss_split=on", "megatron:pp=2,layout=Etttt|ttttL"},
      {2, "megatron:pp=2,vpp=2", "megatron:pp=2,layout=Ett|tt|tt|ttL"},
      {3, "vllm:pp=3", "vllm:pp=3,partition=\"3,3,2\""},
      {3, "sglang:pp=3", "sglang:pp=3,partition=\"2,3,3\""},
      {4, "vllm:tp=2",
       "vllm:tp=2,dp=2"}, /* replicas of an engine or its data parallel ranks: the same weights */
      {2, "hf", "hf:dtype=bf16"},
  };
  treadle_model *model = small_model(&config);
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_layout *one, *two;
    assert_ok(treadle_layout_create(model, rows[i].text, rows[i].ranks, NULL, &one));
    if (treadle_layout_create(model, rows[i].same, rows[i].ranks, NULL, &two) != TREADLE_OK)
      fail_msg("%s", treadle_error_message());
    assert_same_pieces(one, two);
    treadle_layout_destroy(one);
    treadle_layout_destroy(two);
  }
  treadle_model_close(model);
}

/* ---- Refusals ---- */

typedef struct refusal {
  int64_t ranks;
  const char *text, *part; /* what the message must say */
} refusal;

static const refusal refusals[] = {
    /* form */
    {1, "", "no type"},
    {1, ":tp=2", "no type"},
    {1, "megatorn:tp=2", "nearest: megatron"},
    {1, "vlm", "nearest: vllm"},
    {1, "sg lang", "nearest: sglang"},
    {1, "HF", "no type 'HF'"},
    {1, "hf ", "no type 'hf '"},
    {1, "hf,dtype=fp32", "no type 'hf,dtype=fp32'"},
    {1, "hf:", "key=value"},
    {1, "megatron:tp", "key=value at 'tp'"},
    {1, "megatron:=2", "key=value at '=2'"},
    {1, "megatron:tp=1,", "key=value"},
    {1, "megatron:,tp=1", "key=value"},
    {1, "megatron:tp=1,,pp=1", "key=value"},
    {1, "megatron:tp=", "tp has no value"},
    {1, "megatron:tp=,pp=1", "tp has no value"},
    {1, "megatron:layout=\"\"", "layout has no value"},
    {1, "megatron:layout=\"EttttttttL", "quote is not closed"},
    {1, "megatron:layout=\"EttttttttL\"x", "comma at 'x'"},
    {1, "megatron:\"tp\"=1", "key=value"},
    {1, "megatron:tp=1,tp=1", "tp is given twice"},
    {1, "megatron:tp=1,pp=1,tp=2", "tp is given twice"},
    {1, "megatron:tpp=1", "tpp is not a key of megatron (nearest: tp)"},
    {1, "megatron:vocab_divisable_by=64", "nearest: vocab_divisible_by"},
    {1, "megatron:partition=8", "partition is not a key of megatron"},
    {1, "megatron: tp=1", " tp is not a key of megatron (nearest: tp)"},
    {1, "megatron:TP=1", "TP is not a key"},
    {1, "vllm:cp=1", "cp is not a key of vllm (nearest: "},
    {1, "vllm:order=tp-pp", "order is not a key of vllm"},
    {1, "sglang:dp=2", "dp is not a key of sglang (nearest: "},
    {1, "hf:tp=1", "tp is not a key of hf"},
    {1, "hf:@file", "only pieces and placements are read from a file"},
    {1, "megatron:@file", "only pieces"},
    {1, "pieces", "pieces:@file"},
    {1, "pieces:file=x", "pieces:@file"},
    {1, "pieces:@", "pieces:@file"},
    /* numbers and words */
    {1, "megatron:tp=0", "tp=0 is not a whole number"},
    {1, "megatron:tp=-1", "tp=-1 is not"},
    {1, "megatron:tp=+1", "tp=+1 is not"},
    {1, "megatron:tp=1.0", "tp=1.0 is not"},
    {1, "megatron:tp= 1", "tp= 1 is not"},
    {1, "megatron:tp=1 ", "tp=1  is not"},
    {1, "megatron:tp=two", "tp=two is not"},
    {1, "megatron:tp=0x1", "tp=0x1 is not"},
    {1, "megatron:tp=99999999999999999999", "tp=99999999999999999999 is not"},
    {1, "megatron:tp=1099511627777", "tp=1099511627777 is not"},
    {1, "megatron:pp=0", "pp=0"},
    {1, "megatron:vpp=0", "vpp=0"},
    {1, "megatron:first=0", "first=0"},
    {1, "megatron:padded_vocab_size=0", "padded_vocab_size=0"},
    {1, "megatron:vocab_divisible_by=-128", "vocab_divisible_by=-128"},
    {1, "vllm:dp=0", "dp=0"},
    {1, "vllm:pcp=x", "pcp=x"},
    {1, "sglang:attn_dp=0", "attn_dp=0"},
    {1, "hf:root=-1", "root=-1 is not a rank from 0 to 0"},
    {4, "hf:root=4", "root=4 is not a rank from 0 to 3"},
    {4, "hf:root=x", "root=x"},
    {1, "hf:dtype=float31", "dtype=float31 is none of fp32, bf16, fp16"},
    {1, "vllm:dtype=", "dtype has no value"},
    {2, "megatron:pp=2,embedding_split=yes", "embedding_split=yes is neither on nor off"},
    {2, "megatron:pp=2,loss_split=1", "loss_split=1 is neither on nor off"},
    {1, "megatron:spec=transformer_engine", "spec=transformer_engine is neither te nor local"},
    /* ranks */
    {0, "hf", "0 ranks"},
    {-4, "hf", "-4 ranks"},
    {INT64_MAX, "hf", "ranks"},
    {3, "megatron:tp=2", "3 ranks are not divisible by tp * cp * pp = 2 * 1 * 1"},
    {2, "megatron:tp=4", "2 ranks are not divisible"},
    {8, "megatron:tp=2,pp=3", "8 ranks are not divisible by tp * cp * pp = 2 * 1 * 3"},
    {8, "megatron:tp=1099511627776,pp=1099511627776", "not divisible"},
    {6, "vllm:tp=4", "6 ranks are not divisible by tp * pcp * pp * dp"},
    {4, "vllm:tp=2,dp=4", "4 ranks are not divisible"},
    {4, "sglang:tp=8", "4 ranks are not divisible by tp * pp"},
    {8, "megatron:tp=2,dp=2", "dp=2, but 8 ranks leave dp=4"},
    {8, "megatron:tp=2,dp=8", "dp=8, but 8 ranks leave dp=4"},
    {4, "sglang:tp=4,attn_dp=3", "tp=4 is not divisible by attn_dp * attn_cp = 3 * 1"},
    {4, "sglang:tp=4,attn_dp=2,attn_cp=4", "attn_dp * attn_cp = 2 * 4"},
    {4, "sglang:tp=4,ep=3", "ep * moe_dp = 3 * 1"},
    {4, "sglang:tp=4,moe_dp=2", "moe_dp=2 needs"},
    /* order */
    {4, "megatron:tp=2,pp=2,order=tp-pp-xx", "'xx' is none of tp, cp, ep, dp, pp"},
    {4, "megatron:tp=2,pp=2,order=tp-pp-tp", "names tp twice"},
    {4, "megatron:tp=2,pp=2,order=tp-dp", "does not name pp, whose size is 2"},
    {8, "megatron:tp=2,pp=2,order=tp-pp", "does not name dp, whose size is 2"},
    {4, "megatron:tp=2,pp=2,order=tp--pp", "'' is none of"},
    {4, "megatron:tp=2,pp=2,order=-tp-pp", "'' is none of"},
    {4, "megatron:tp=2,pp=2,order=tp-pp-", "'' is none of"},
    {8, "megatron:tp=2,cp=2,pp=2,order=tp-cp-ep-pp-dp", "order=tp-cp-ep-pp-dp"}, /* docs/rules.md 1.1 */
    /* shapes */
    {8, "megatron:tp=8", "12 attention heads are not divisible by tp=8"},
    {5, "vllm:tp=5", "tp=5 and the 4 KV heads must divide one another"},
    {3, "sglang:tp=3", "tp=3 and the 4 KV heads"},
    {2, "megatron:tp=2,padded_vocab_size=299", "299"},
    {2, "megatron:tp=2,padded_vocab_size=301", "301"},
    {1, "megatron:padded_vocab_size=299", "299"},
    /* stages */
    {3, "megatron:pp=3", "8 layers are not divisible by pp=3"},
    {16, "megatron:pp=16", "8 layers are not divisible by pp=16"},
    {4, "megatron:pp=4,first=1", "8 layers less first=1"},
    {4, "megatron:pp=4,first=9", "first=9"},
    {2, "megatron:pp=2,first=3,last=3", "8 layers less first=3 and last=3"},
    {1, "megatron:first=8,last=8", "pp=1"},
    {2, "megatron:pp=2,first=8", "leave none to the other stages"},
    {2, "megatron:pp=2,last=8", "leave none to the other stages"},
    {3, "megatron:pp=3,first=5,last=3", "leave none to the other stages"},
    {2, "megatron:pp=2,first=4,embedding_split=on", "first and last do not go with embedding_split"},
    {2, "megatron:pp=2,last=4,loss_split=on", "first and last do not go with"},
    {2, "megatron:pp=2,embedding_split=on", "9 layers (with embedding and loss) are not divisible by pp=2"},
    {2, "megatron:pp=2,vpp=3", "4 layers of stage 0 are not divisible by vpp=3"},
    {1, "megatron:vpp=2", "vpp=2 needs pp greater than 1"},
    {4, "megatron:pp=4,first=1,last=1,vpp=2", "1 layer of stage 0 is not divisible by vpp=2"},
    {2, "megatron:pp=2,vpp=1099511627776", "vpp=1099511627776"},
    /* layout strings */
    {2, "megatron:pp=2,first=4,layout=Etttt|ttttL", "layout= does not go with"},
    {2, "megatron:pp=2,loss_split=on,layout=Etttt|ttttL", "layout= does not go with"},
    {2, "megatron:pp=2,layout=tttt|ttttL", "one E"},
    {2, "megatron:pp=2,layout=EEtttt|ttttL", "one E"},
    {2, "megatron:pp=2,layout=tEttt|ttttL", "one E, at first place"},
    {2, "megatron:pp=2,layout=Etttt|tttt", "one L"},
    {2, "megatron:pp=2,layout=EttttL|ttttL", "one L"},
    {2, "megatron:pp=2,layout=Etttt|tttLt", "one L, at last place"},
    {2, "megatron:pp=2,layout=Ettt|ttttL", "7 decoder layers, the model 8"},
    {2, "megatron:pp=2,layout=Ettttt|ttttL", "9 decoder layers, the model 8"},
    {2, "megatron:pp=2,layout=Ettt|ttt|ttL", "layout= has 3 stages, not a multiple of pp=2"},
    {2, "megatron:pp=2,vpp=2,layout=Etttt|ttttL", "vpp=2, but layout= has 1 stage for"},
    {1, "megatron:layout=Etttt|ttttL", "layout= has 2 stages and pp is 1"},
    {2, "megatron:pp=2,layout=Etttt|ttttmL", "MTP"},
    {2, "megatron:pp=2,layout=Etttt|ttxttL", "layout= has 'x'"},
    {2, "megatron:pp=2,layout=Et ttt|ttttL", "layout= has ' '"},
    {2, "megatron:pp=2,layout=E(tt)*2|(tttt)L*", "'*' without a number"},
    {2, "megatron:pp=2,layout=Et*x|ttttL", "'*' without a number"},
    {2, "megatron:pp=2,layout=Et*-4|ttttL", "'*' without a number"},
    {2, "megatron:pp=2,layout=Et*99999999999999999999|ttttL", "*"},
    {2, "megatron:pp=2,layout=Et*1048575,t*1048575|ttttL", "expected"},
    {2, "megatron:pp=2,layout=\"Et*1048575,t*1048575|ttttL\"", "too long"},
    {2, "megatron:pp=2,layout=E((t)*2)*2|ttttL", "nested"},
    {2, "megatron:pp=2,layout=E(tttt|ttttL", "not closed"},
    {2, "megatron:pp=2,layout=Etttt)|ttttL", "layout= has ')'"},
    {2, "megatron:pp=2,layout=|", "one E"},
    /* partitions */
    {2, "vllm:pp=2,partition=\"3,4\"", "7 of 8 layers"},
    {2, "vllm:pp=2,partition=\"5,4\"", "partition"},
    {2, "vllm:pp=2,partition=8", "partition has 1 numbers, pp is 2"},
    {2, "vllm:pp=2,partition=\"4,4,0\"", "partition has 3 numbers, pp is 2"},
    {2, "vllm:pp=2,partition=4,4", "key=value at '4'"},
    {2, "vllm:pp=2,partition=\"4,-4\"", "'-4' is not a whole number"},
    {2, "vllm:pp=2,partition=\"4,x\"", "'x' is not a whole number"},
    {2, "vllm:pp=2,partition=\"4,\"", "'' is not a whole number"},
    {2, "vllm:pp=2,partition=\",\"", "'' is not a whole number"},
    {2, "vllm:pp=2,partition=\"00000000000000000000000008,8\"", "partition"}, /* not 0 and 8 */
    {2, "vllm:pp=2,partition=\"9223372036854775807,9223372036854775807\"", "partition"},
    {2, "sglang:pp=2,partition=\"3,4\"", "7 of 8 layers"},
    {9, "sglang:pp=9", "pp=9 is more than the 8 layers"},
    /* experts, in a dense family */
    {2, "megatron:tp=1,ep=2", "ep=2"},
    {2, "megatron:experts=grouped", "experts"},
    {2, "vllm:tp=2,ep=on", "ep=on, and family qwen2 has no experts"},
    {2, "vllm:placement=linear", "placement=linear"},
    {2, "vllm:redundant=2", "redundant=2"},
    {2, "vllm:map=@file", "map=@file"},
    {2, "sglang:redundant=1", "redundant=1"},
    {2, "sglang:map=@file", "map=@file"},
};

static void wrong_texts_are_refused(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  treadle_layout *missing;
  assert_fails(TREADLE_SYSTEM, "/nowhere/pieces.json",
               treadle_layout_create(model, "pieces:@/nowhere/pieces.json", 1, NULL, &missing));
  assert_null(missing);
  int wrong = 0;
  for (size_t i = 0; i < TEST_COUNT(refusals); i++) {
    treadle_layout *layout = NULL;
    treadle_status status =
        treadle_layout_create(model, refusals[i].text, refusals[i].ranks, NULL, &layout);
    if (status != TREADLE_REFUSED || !strstr(treadle_error_message(), refusals[i].part) || layout) {
      print_error("'%s' on %" PRId64 " ranks: wanted '%s', got %s: %s\n", refusals[i].text,
                  refusals[i].ranks, refusals[i].part, treadle_status_text(status),
                  status ? treadle_error_message() : "");
      wrong++;
    }
    treadle_layout_destroy(layout);
  }
  assert_int_equal(wrong, 0);
  treadle_model_close(model);
}

/* Many keys, long values: refused whatever the length, though a very long text leaves no room for the rule.
 */
static void long_texts(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  size_t capacity = 1 << 20;
  char *text = malloc(capacity);
  treadle_layout *layout;
  char *end = text + sprintf(text, "megatron:k0=1");
  for (int i = 1; i < 40; i++) end += sprintf(end, ",k%d=1", i);
  assert_refused("more than 32 keys", treadle_layout_create(model, text, 1, NULL, &layout));
  end = text + sprintf(text, "vllm:partition=\"1");
  for (int i = 1; i < 5000; i++) end += sprintf(end, ",1");
  sprintf(end, "\"");
  assert_refused("layout ", treadle_layout_create(model, text, 1, NULL, &layout));
  memset(text, 'x', capacity - 1);
  text[capacity - 1] = 0;
  assert_refused("layout ", treadle_layout_create(model, text, 1, NULL, &layout));
  memcpy(text, "megatron:layout=", 16);
  assert_refused("layout ", treadle_layout_create(model, text, 1, NULL, &layout));
  memcpy(text, "megatron:", 9);
  text[1000] = '=';
  assert_refused("layout ", treadle_layout_create(model, text, 1, NULL, &layout));
  memcpy(text, "megatron:order=tp-", 18);
  assert_refused("layout ", treadle_layout_create(model, text, 1, NULL, &layout));
  free(text);
  treadle_model_close(model);
}

/* ---- Each allocation fails ---- */

static treadle_status try_text(const treadle_model *model, const char *text, int64_t ranks) {
  treadle_layout *layout;
  treadle_status status = treadle_layout_create(model, text, ranks, NULL, &layout);
  assert_true((status == TREADLE_OK) == (layout != NULL));
  treadle_layout_destroy(layout);
  return status;
}

static const small_config experts = {
    .type = "deepseek_v3",
    .V = 70,
    .H = 8,
    .L = 2,
    .nh = 4,
    .I = 8,
    .more =
        "\"n_routed_experts\": 4, \"n_group\": 2, \"n_shared_experts\": 1, \"moe_intermediate_size\": 4, "
        "\"first_k_dense_replace\": 1, \"moe_layer_freq\": 1, \"q_lora_rank\": 2, \"kv_lora_rank\": 2, "
        "\"qk_nope_head_dim\": 2, \"qk_rope_head_dim\": 2, \"v_head_dim\": 2, "
        "\"num_nextn_predict_layers\": 1"};

/* Sizes are whole numbers from 1, in every type of layout: 0 and what is below is refused with key, number and rule. */
static void sizes(void **state) {
  (void)state;
  static const char *const keys[] = {
      "megatron:tp",
      "megatron:pp",
      "megatron:vpp",
      "megatron:cp",
      "megatron:dp",
      "megatron:ep",
      "megatron:etp",
      "megatron:pp=2,first",
      "megatron:pp=2,last",
      "distopt:pp=2,last",
      "distopt:bucket_size",
      "megatron:padded_vocab_size",
      "vllm:tp",
      "vllm:pp",
      "vllm:dp",
      "vllm:pcp",
      "vllm:dcp",
      "sglang:tp",
      "sglang:pp",
      "sglang:attn_dp",
      "sglang:attn_cp",
      "sglang:tp=2,ep",
      "sglang:tp=2,moe_dp",
      "sglang:moe_dense_tp",
      "fsdp:dp",
      "fsdp:tp",
      "fsdp:replicate",
      "fsdp2:dp",
      "fsdp2:replicate",
      "zero1:dp",
      "zero2:tp",
      "zero3:dp",
      "megatron:vocab_divisible_by",
  };
  static const char *const numbers[] = {"0", "-0", "-1", "-2", "-1099511627776", "-9223372036854775808"};
  treadle_model *model = small_model(&experts);
  treadle_layout *layout;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
      char text[64], part[160];
      const char *key = strrchr(keys[i], ',') ? strrchr(keys[i], ',') + 1 : strchr(keys[i], ':') + 1;
      snprintf(text, sizeof text, "%s=%s", keys[i], numbers[k]);
      snprintf(part, sizeof part, "layout '%s': %s=%s is not a whole number from 1 to 2^40", text, key,
               numbers[k]);
      assert_refused(part, treadle_layout_create(model, text, 2, NULL, &layout));
    }
  assert_refused("redundant=-1 is not a whole number from 0 to 2^20",
                 treadle_layout_create(model, "vllm:tp=2,ep=on,redundant=-1", 2, NULL, &layout));
  assert_refused("'-3' is not a whole number from 0",
                 treadle_layout_create(model, "vllm:pp=2,partition=\"5,-3\"", 2, NULL, &layout));
  assert_refused("'*' without a number from 0 to 2^20",
                 treadle_layout_create(model, "megatron:pp=2,layout=Et*-1|ttL", 2, NULL, &layout));
  treadle_model_close(model);
}

/* What a family demands is refused with the numbers of its names. */
static void requirements(void **state) {
  (void)state;
  treadle_model *model = small_model(&experts);
  treadle_layout *layout;
  assert_refused("tp must divide num_attention_heads (nh % tp == 0; nh is 4, tp is 3)",
                 treadle_layout_create(model, "vllm:tp=3", 3, NULL, &layout));
  assert_refused("map=@; a file is named with map=@FILE",
                 treadle_layout_create(model, "vllm:tp=2,ep=on,map=@", 2, NULL, &layout));
  treadle_model_close(model);
}

static void failing_allocations(void **state) {
  (void)state;
  static const small_config tiny = {
      .V = 70, .H = 8, .L = 4, .nh = 4, .ng = 2, .hd = 4, .I = 8, .tied = true};
  treadle_model *model = small_model(&tiny);
  TEST_EACH_ALLOCATION(try_text(model, "hf:root=1", 4));
  TEST_EACH_ALLOCATION(try_text(model, "megatron:tp=2,pp=2,vpp=2", 8));
  TEST_EACH_ALLOCATION(try_text(model, "megatron:tp=2,layout=\"E(t)*2,|t*2L\",pp=2", 4));
  TEST_EACH_ALLOCATION(try_text(model, "vllm:tp=4,pp=2,partition=\"1,3\"", 8));
  TEST_EACH_ALLOCATION(try_text(model, "sglang:tp=4,attn_dp=2,dtype=fp32", 8));
  treadle_model *deepseek = small_model(&experts);
  TEST_EACH_ALLOCATION(try_text(deepseek, "hf", 2));
  TEST_EACH_ALLOCATION(try_text(deepseek, "megatron:tp=2,ep=2,etp=1,experts=sequential", 2));
  TEST_EACH_ALLOCATION(try_text(deepseek, "vllm:tp=2,ep=on,redundant=2", 2));
  TEST_EACH_ALLOCATION(try_text(deepseek, "vllm:tp=2,ep=on,placement=round_robin", 2));
  TEST_EACH_ALLOCATION(try_text(deepseek, "vllm:dp=3,ep=on", 3));
  TEST_EACH_ALLOCATION(try_text(deepseek, "sglang:tp=2,ep=2,shared_fusion=on", 2));
  const char *folder = test_folder();
  char text[160];
  snprintf(text, sizeof text, "vllm:tp=2,ep=on,map=@%s", test_write(folder, "map.json", "[3,2,1,0]"));
  TEST_EACH_ALLOCATION(try_text(deepseek, text, 2));
  test_remove(folder);
  treadle_model_close(deepseek);
  treadle_layout *layout;
  assert_ok(treadle_layout_create(model, "vllm:tp=4", 4, NULL, &layout));
  treadle_pieces pieces = {0};
  for (int n = 1; n < 3; n++) { /* what is asked of a layout */
    treadle_run *runs;
    size_t count;
    treadle_alloc_fail_at(n);
    treadle_status status = treadle_layout_runs(layout, 0, 0, &runs, &count);
    treadle_alloc_fail_at(0);
    assert_true(status == TREADLE_OK || (status == TREADLE_NO_MEMORY && !runs && count == 0));
    free(runs);
  }
  treadle_alloc_fail_at(1);
  assert_fails(TREADLE_NO_MEMORY, "", treadle_layout_pieces(layout, 0, &pieces));
  treadle_alloc_fail_at(0);
  treadle_array_release(&pieces);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

/* Questions about ranks and tensors that a layout does not have. */
static void wrong_questions(void **state) {
  (void)state;
  treadle_model *model = small_model(&config);
  treadle_layout *layout;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  treadle_run *runs;
  size_t count;
  int64_t index;
  assert_ok(treadle_layout_create(model, "vllm:tp=2", 2, NULL, &layout));
  assert_refused("rank 2 is not one of 2", treadle_layout_storage(layout, 2, 0, &info));
  assert_refused("rank -1", treadle_layout_storage(layout, -1, 0, &info));
  assert_refused("no number -1", treadle_layout_storage(layout, 0, -1, &info));
  assert_refused("no number 999", treadle_layout_runs(layout, 0, 999, &runs, &count));
  assert_refused("rank 7", treadle_layout_runs(layout, 7, 0, &runs, &count));
  assert_refused("no dimension 'cp'", treadle_layout_coordinate(layout, 0, "cp", &index));
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_make_a_round_trip),
      cmocka_unit_test(digests_differ),
      cmocka_unit_test(defaults),
      cmocka_unit_test(wrong_texts_are_refused),
      cmocka_unit_test(long_texts),
      cmocka_unit_test(sizes),
      cmocka_unit_test(requirements),
      cmocka_unit_test(failing_allocations),
      cmocka_unit_test(wrong_questions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
