/* Generating and scoring with the built-in engine: text comes as it is made; then the same tokens are scored, and have the same
 * log-probabilities to the bit.
 *
 *   example_generate DIR "Once upon a time" */
#include <treadle_builtin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What an engine computes with. */
typedef struct machine {
  treadle_model *model;
  treadle_layout *layout;
  treadle_generator *engine;
  treadle_tokenizer *tokenizer;
  void *window; /* the weights */
} machine;

static treadle_status open_machine(machine *m, const char *folder) {
  treadle_status status = treadle_model_open(folder, NULL, &m->model);
  if (!status) status = treadle_tokenizer_open(folder, &m->tokenizer);
  if (!status) status = treadle_layout_create(m->model, "vllm:tp=1", 1, NULL, &m->layout);
  if (!status) status = treadle_generator_create(NULL, m->layout, NULL, &m->engine);
  if (status) return status;
  size_t bytes = treadle_layout_window_bytes(m->layout, 0);
  m->window = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!m->window) return TREADLE_NO_MEMORY;
  status = treadle_layout_load(m->layout, 0, m->window);
  return status ? status : treadle_generator_bind(m->engine, m->window, bytes);
}

static void close_machine(machine *m) {
  treadle_generator_destroy(m->engine);
  treadle_layout_destroy(m->layout);
  treadle_tokenizer_close(m->tokenizer);
  treadle_model_close(m->model);
  free(m->window);
}

static treadle_status print_text(void *context, int64_t request, int64_t sample, const char *text,
                                 size_t bytes) {
  (void)context, (void)request, (void)sample;
  fwrite(text, 1, bytes, stdout);
  fflush(stdout);
  return TREADLE_OK;
}

/* The one answer: a line of JSON. */
static treadle_status keep_line(void *context, const char *line, size_t bytes) {
  char **kept = context;
  *kept = malloc(bytes + 1);
  if (*kept) memcpy(*kept, line, bytes + 1);
  return *kept ? TREADLE_OK : TREADLE_NO_MEMORY;
}

/* A request as JSON has it; the prompt may not have quotes, backslashes or control characters here. */
static treadle_status generate(const machine *m, const char *prompt, char **answer_p) {
  char request[1024];
  treadle_generate_options options = {.struct_size = sizeof options,
                                      .tokenizer = m->tokenizer,
                                      .text = print_text,
                                      .answer = keep_line,
                                      .context = answer_p};
  treadle_generate_figures figures = TREADLE_INIT(treadle_generate_figures);
  snprintf(request, sizeof request, "{\"prompt\": \"%s\", \"max_tokens\": 40, \"temperature\": 0.7}\n",
           prompt);
  treadle_status status =
      treadle_generator_generate_lines(m->engine, request, strlen(request), &options, &figures);
  if (!status)
    printf("\n%lld new tokens, %.0f a second\n", (long long)figures.new_tokens,
           (double)figures.new_tokens / figures.seconds);
  return status;
}

/* The answer is a line that can be scored. */
static treadle_status score(const machine *m, const char *answer) {
  treadle_score_lines_options options = {.struct_size = sizeof options, .check = true};
  treadle_score_figures figures = TREADLE_INIT(treadle_score_figures);
  treadle_status status =
      treadle_generator_score_lines(m->engine, answer, strlen(answer), &options, &figures);
  if (!status)
    printf("%lld log-probabilities scored, %lld differ\n", (long long)figures.checked,
           (long long)figures.different);
  return status;
}

int main(int count, char **texts) {
  machine m = {0};
  char *answer = NULL;
  if (count != 3) {
    fprintf(stderr, "usage: %s DIR PROMPT\n", texts[0]);
    return 2;
  }
  treadle_status status = open_machine(&m, texts[1]);
  if (!status) status = generate(&m, texts[2], &answer);
  if (!status) status = score(&m, answer);
  if (status) fprintf(stderr, "%s\n", treadle_error_message());
  free(answer);
  close_machine(&m);
  return status ? 1 : 0;
}
