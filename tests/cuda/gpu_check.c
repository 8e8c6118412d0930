#include "cuda/gpu.h"

#include "treadle_tools.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  treadle_status (*run)(gpu *g);
} stages[] = {{"driver", gpu_driver}, {"boxes", gpu_boxes}, {"rates", gpu_rates}, {"pages", gpu_pages}};

static void put_words(gpu *g, const char *format, va_list values) {
  vsnprintf(g->words, sizeof g->words, format, values);
}

void gpu_say(gpu *g, const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (!g->failed) put_words(g, format, values);
  va_end(values);
}

void gpu_fault(gpu *g, const char *format, ...) {
  va_list values;
  va_start(values, format);
  if (!g->failed) put_words(g, format, values);
  va_end(values);
  g->failed = true;
}

static bool look(gpu *g) {
  treadle_device_info info = TREADLE_INIT(treadle_device_info);
  if (treadle_machine_device(g->number, &info) != TREADLE_OK) return false;
  g->is_stand_in = strncmp(info.name, "stand-in", strlen("stand-in")) == 0;
  g->left_bytes = info.left_bytes;
  g->page_bytes = info.page_bytes;
  if (g->boxes == 0) g->boxes = g->is_stand_in ? 1000 : 10000;
  treadle_json_out_text(&g->out, "device", info.name);
  return true;
}

static int usage(void) {
  fprintf(stderr, "usage: gpu_check driver|boxes|rates|pages [--device I] [--boxes N] [--seed S]\n");
  return 2;
}

int main(int count, char **texts) {
  gpu g = {.seed = 1, .out = {.file = stdout, .line = true}};
  treadle_status (*run)(gpu *) = NULL;
  for (size_t i = 0; count > 1 && i < sizeof stages / sizeof *stages; i++)
    if (strcmp(texts[1], stages[i].name) == 0) run = stages[i].run;
  if (!run || count % 2 != 0) return usage();
  for (int i = 2; i < count; i += 2) {
    const long long value = strtoll(texts[i + 1], NULL, 10);
    if (strcmp(texts[i], "--device") == 0)
      g.number = (int)value;
    else if (strcmp(texts[i], "--boxes") == 0)
      g.boxes = value;
    else if (strcmp(texts[i], "--seed") == 0)
      g.seed = (uint64_t)value;
    else
      return usage();
  }
  if (treadle_machine_device_count() == 0) {
    fprintf(stderr, "gpu_check: %s\n", treadle_error_message());
    return 2;
  }
  treadle_json_out_open(&g.out, NULL, '{');
  treadle_json_out_text(&g.out, "stage", texts[1]);
  if (!look(&g) || run(&g) != TREADLE_OK) gpu_fault(&g, "%s", treadle_error_message());
  treadle_json_out_bool(&g.out, "pass", !g.failed);
  treadle_json_out_text(&g.out, "words", g.words);
  treadle_json_out_close(&g.out, '}');
  return g.failed;
}
