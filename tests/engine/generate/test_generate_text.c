/* Text as it comes: each new token is told, in whole characters, and all that was told is the text of the answer; what may become a stop
 * text is held back. Ids without a token have no text. */
#include "cli/command.h"
#include "cli/engine_folder.h"

#include "base/text.h"
#include "base/utf8.h"
#include "test.h"
#include "token/text_files.h"
#include "treadle_builtin.h"

#include <jansson.h>

enum { SAMPLES = 6, REQUESTS = 2 };

typedef struct told {
  treadle_builder text[REQUESTS][SAMPLES];
  const char *stop; /* that may not be seen */
  int64_t tokens, pieces;
} told;

static treadle_status take_text(void *context, int64_t request, int64_t sample, const char *text,
                                size_t bytes) {
  told *t = context;
  char piece[256] = "";
  assert_true(request >= 0 && request < REQUESTS && sample >= 0 && sample < SAMPLES);
  assert_true(bytes < sizeof piece);
  memcpy(piece, text, bytes);
  assert_true(treadle_utf8_is_valid(piece));
  treadle_builder_add_bytes(&t->text[request][sample], text, bytes);
  t->tokens++;
  t->pieces += bytes > 0;
  return TREADLE_OK;
}

static treadle_status take_answer(void *context, const char *line, size_t bytes) {
  told *t = context;
  json_t *answer = json_loadb(line, bytes, 0, NULL);
  int64_t request = json_integer_value(json_object_get(answer, "id")),
          sample = json_integer_value(json_object_get(answer, "index"));
  const char *text = json_string_value(json_object_get(answer, "text")),
             *seen = t->text[request][sample].text;
  assert_string_equal(seen ? seen : "", text);
  if (t->stop && strstr(text, t->stop)) fail_msg("'%s' is in '%s'", t->stop, text);
  json_decref(answer);
  return TREADLE_OK;
}

typedef struct machine {
  treadle_model *model;
  treadle_layout *layout;
  treadle_generator *engine;
  treadle_tokenizer *tokenizer;
  char *window;
} machine;

static void open_machine(machine *m) {
  const char *folder = engine_folder("qwen2-tied");
  const treadle_generator_options options = {.struct_size = sizeof options, .threads = 1, .max_batch = 4};
  assert_ok(treadle_model_open(folder, NULL, &m->model));
  assert_ok(treadle_tokenizer_open(folder, &m->tokenizer));
  assert_ok(treadle_layout_create(m->model, "vllm", 1, NULL, &m->layout));
  assert_ok(treadle_generator_create(NULL, m->layout, &options, &m->engine));
  size_t bytes = treadle_layout_window_bytes(m->layout, 0);
  assert_int_equal(posix_memalign((void **)&m->window, 64, bytes), 0);
  assert_ok(treadle_layout_load(m->layout, 0, m->window));
  assert_ok(treadle_generator_bind(m->engine, m->window, bytes));
}

static void close_machine(machine *m) {
  treadle_generator_destroy(m->engine);
  treadle_layout_destroy(m->layout);
  treadle_tokenizer_close(m->tokenizer);
  treadle_model_close(m->model);
  free(m->window);
}

static treadle_generate_figures generate(const machine *m, const char *sampling, told *t) {
  static const char lines[] = "{\"prompt\": \"Hello\", \"n\": 6}\n{\"prompt\": \"a\", \"n\": 6}\n";
  const treadle_generate_options options = {.struct_size = sizeof options,
                                            .sampling = sampling,
                                            .tokenizer = m->tokenizer,
                                            .answer = take_answer,
                                            .text = take_text,
                                            .context = t};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  assert_ok(treadle_generator_generate_lines(m->engine, lines, sizeof lines - 1, &options, &figures));
  assert_int_equal(t->tokens, figures.new_tokens);
  for (int r = 0; r < REQUESTS; r++)
    for (int s = 0; s < SAMPLES; s++) treadle_builder_release(&t->text[r][s]);
  return figures;
}

static void test_text(void **state) {
  (void)state;
  machine m = {0};
  told plain = {0};
  open_machine(&m);
  generate(&m, "{\"max_tokens\": 50, \"ignore_eos\": true}", &plain);
  assert_true(plain.pieces > 100 && plain.pieces < plain.tokens); /* some tokens end no character */
  close_machine(&m);
}

/* Stop texts of one to three characters, of which all samples meet some. */
static void test_stops(void **state) {
  (void)state;
  static const char *const stops[] = {"#", "sq", "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd#\xef\xbf\xbd"};
  machine m = {0};
  int64_t whole = 2 * SAMPLES * 50, cut = 0;
  open_machine(&m);
  for (size_t i = 0; i < TEST_COUNT(stops); i++) {
    told t = {.stop = stops[i]};
    char sampling[200];
    snprintf(sampling, sizeof sampling, "{\"max_tokens\": 50, \"ignore_eos\": true, \"stop\": [\"%s\"]}",
             stops[i]);
    cut += whole - generate(&m, sampling, &t).new_tokens;
  }
  assert_true(cut > 100);
  close_machine(&m);
}

/* A vocabulary that is larger than the tokenizer's, as padded ones are. */
static void test_padding(void **state) {
  (void)state;
  static const char few[] =
      "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"H\": 0, \"e\": 1, \"l\": 2, \"o\": 3, "
      "\"a\": 4}, \"merges\": []}}";
  machine m = {0};
  told t = {0};
  open_machine(&m);
  treadle_tokenizer_close(m.tokenizer);
  assert_ok(text_open(few, sizeof few - 1, &m.tokenizer));
  generate(&m, "{\"max_tokens\": 50, \"ignore_eos\": true}", &t);
  assert_true(t.pieces < t.tokens / 4);
  close_machine(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_stops),
                                     cmocka_unit_test(test_padding)};
  return cmocka_run_group_tests(tests, NULL, command_teardown);
}
