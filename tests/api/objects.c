/* One of each object. */
#include "api/objects.h"

#include "test.h"

#include <ctype.h>
#include <sys/mman.h>

static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 32,"
                             " \"num_hidden_layers\": 1, \"num_attention_heads\": 4,"
                             " \"num_key_value_heads\": 2, \"vocab_size\": 24,"
                             " \"torch_dtype\": \"bfloat16\", \"tie_word_embeddings\": false}";

static const char tokens[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\u0120\": 3, \"\u00c3\": "
    "4, \"\u00a9\": 5},"
    " \"merges\": [\"a b\"]}, \"added_tokens\": [{\"id\": 6, \"content\": \"<s>\", \"special\": true}],"
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": {\"type\": "
    "\"ByteLevel\"}}";

/* Each tensor whole, as a storage tensor of its own. */
static void make_pieces(objects *o) {
  int32_t count = treadle_model_tensor_count(o->model);
  assert_in_range(count, 1, OBJECTS_PIECES);
  for (int32_t i = 0; i < count; i++) {
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    assert_ok(treadle_model_tensor(o->model, i, &info));
    treadle_explicit_piece *p = &o->pieces[o->piece_count++];
    *p = (treadle_explicit_piece){.storage = info.name, .storage_ndim = info.ndim, .tensor = info.name};
    int64_t stride = 1;
    for (int d = info.ndim - 1; d >= 0; d--) {
      p->storage_shape[d] = p->size[d] = info.shape[d];
      p->stride[d] = stride;
      stride *= info.shape[d];
    }
  }
}

static void make_engine(objects *o) {
  const treadle_generator_options options = {.struct_size = sizeof(treadle_generator_options),
                                             .threads = 1,
                                             .max_batch = 2,
                                             .prefill_chunk = 8,
                                             .kv_bytes = 1 << 16,
                                             .max_len = 64};
  snprintf(o->chat_file, sizeof o->chat_file, "%s/chat.jinja", o->folder);
  FILE *file = fopen(o->chat_file, "w");
  assert_non_null(file);
  fputs("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", file);
  fclose(file);
  assert_ok(treadle_chat_open(o->chat_file, &o->chat));
  o->weights_bytes = treadle_layout_window_bytes(o->infer, 0);
  assert_int_equal(posix_memalign((void **)&o->weights, 64, o->weights_bytes), 0);
  assert_ok(treadle_layout_load(o->infer, 0, o->weights));
  assert_ok(treadle_generator_create(NULL, o->infer, &options, &o->engine));
  assert_ok(treadle_generator_bind(o->engine, o->weights, o->weights_bytes));
}

void objects_init(objects *o) {
  *o = (objects){.bytes = 16 * OBJECTS_PAGE};
  snprintf(o->folder, sizeof o->folder, "%s", test_folder());
  snprintf(o->config, sizeof o->config, "%s/config.json", o->folder);
  FILE *file = fopen(o->config, "w");
  assert_non_null(file);
  fputs(config, file);
  fclose(file);
  const treadle_model_options of_model = {.struct_size = sizeof(treadle_model_options),
                                          .weights = TREADLE_WEIGHTS_RANDOM};
  assert_ok(treadle_model_open(o->folder, &of_model, &o->model));
  assert_ok(treadle_model_open(o->config, NULL, &o->other));
  const treadle_model_options of_critic = {.struct_size = sizeof(treadle_model_options),
                                           .head = TREADLE_HEAD_SCORE};
  assert_ok(treadle_model_open(o->config, &of_critic, &o->critic));
  assert_ok(treadle_layout_create(o->critic, "fsdp2:dp=1", 1, NULL, &o->scores));
  assert_ok(treadle_layout_create(o->model, "fsdp2:dp=1", 1, NULL, &o->train));
  assert_ok(treadle_layout_create(o->model, "vllm:tp=1", 1, NULL, &o->infer));
  assert_ok(treadle_layout_create(o->model, "megatron:tp=2,pp=1", 4, NULL, &o->wide));
  assert_ok(treadle_layout_create(o->other, "vllm:tp=1", 1, NULL, &o->foreign));
  assert_ok(treadle_plan_create(o->train, o->infer, 0, NULL, &o->plan));
  assert_ok(treadle_report_create(o->train, o->infer, NULL, &o->report));
  assert_ok(treadle_families_open(NULL, &o->families));
  assert_ok(treadle_family_check_open(o->config, NULL, &o->check));
  assert_ok(treadle_group_self(&o->group));
  assert_ok(treadle_group_self(&o->second));
  const treadle_switch_options options = {.struct_size = sizeof(treadle_switch_options),
                                          .page_bytes = OBJECTS_PAGE,
                                          .grads_bytes = 100,
                                          .optimizer_bytes = 5000,
                                          .offload_train_optimizer = TREADLE_ON,
                                          .keep = TREADLE_KEEP_HOST,
                                          .host = true};
  assert_ok(treadle_switch_create(o->group, o->train, o->infer, &options, &o->sw));
  assert_ok(treadle_layout_load(o->train, 0, treadle_switch_train_window(o->sw)));
  assert_ok(
      treadle_switch_handle(o->sw, TREADLE_INFER_PARAMS, o->handle, sizeof o->handle, &o->handle_bytes));
  assert_ok(treadle_attach(o->handle, o->handle_bytes, 10, &o->attached));
  make_engine(o);
  snprintf(o->tokens, sizeof o->tokens, "%s/tokenizer.json", o->folder);
  file = fopen(o->tokens, "w");
  assert_non_null(file);
  fputs(tokens, file);
  fclose(file);
  assert_ok(treadle_tokenizer_open(o->folder, &o->tokenizer));
  assert_ok(treadle_text_stream_create(o->tokenizer, true, &o->stream));
  make_pieces(o);
  o->memory =
      mmap(NULL, o->bytes + 2 * OBJECTS_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(o->memory != MAP_FAILED);
  assert_int_equal(mprotect(o->memory + o->bytes, OBJECTS_PAGE, PROT_READ), 0);
  /* Not unmapped: a thread, or a sanitizer, would map something of its own there. */
  assert_int_equal(mprotect(o->memory + o->bytes + OBJECTS_PAGE, OBJECTS_PAGE, PROT_NONE), 0);
}

void objects_release(objects *o) {
  treadle_generator_destroy(o->engine);
  free(o->weights);
  treadle_chat_close(o->chat);
  treadle_switch_destroy(o->sw);
  treadle_detach(o->attached);
  treadle_text_stream_destroy(o->stream);
  treadle_tokenizer_close(o->tokenizer);
  treadle_group_close(o->group);
  treadle_group_close(o->second);
  treadle_families_close(o->families);
  treadle_family_check_close(o->check);
  treadle_plan_destroy(o->plan);
  treadle_report_destroy(o->report);
  treadle_layout_destroy(o->train);
  treadle_layout_destroy(o->infer);
  treadle_layout_destroy(o->wide);
  treadle_layout_destroy(o->foreign);
  treadle_layout_destroy(o->scores);
  treadle_model_close(o->model);
  treadle_model_close(o->other);
  treadle_model_close(o->critic);
  munmap(o->memory, o->bytes + 2 * OBJECTS_PAGE);
  test_remove(o->folder);
}

/* Puts blanks over comments. */
static void strip_comments(char *text) {
  for (char *at = strstr(text, "/*"); at; at = strstr(at, "/*")) {
    char *end = strstr(at, "*/");
    assert_non_null(end);
    memset(at, ' ', (size_t)(end + 2 - at));
  }
}

static void each_function_of(const char *header, void (*visit)(void *context, const char *name),
                             void *context) {
  char path[300];
  snprintf(path, sizeof path, "%s/include/%s", TREADLE_SOURCE_DIR, header);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  static char text[1 << 18];
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  assert_in_range(length, 1, sizeof text - 2);
  text[length] = 0;
  strip_comments(text);
  for (char *at = strstr(text, "treadle_"); at; at = strstr(at, "treadle_")) {
    char *end = at;
    while (isalnum((unsigned char)*end) || *end == '_') end++;
    bool declared = *end == '(' && end[1] != '*';
    char next = *end;
    *end = 0;
    if (declared) visit(context, at);
    *end = next;
    at = end;
  }
}

void objects_each_function(void (*visit)(void *context, const char *name), void *context) {
  static const char *const headers[] = {"treadle.h",        "treadle_batch.h",   "treadle_attach.h",
                                        "treadle_device.h", "treadle_tools.h",   "treadle_testing.h",
                                        "treadle_engine.h", "treadle_builtin.h", "treadle_loop.h"};
  for (size_t i = 0; i < TEST_COUNT(headers); i++) each_function_of(headers[i], visit, context);
}
