/* The frame of the golden checks: reading files, the table of patterns, opening layouts, reporting. */
#include "golden_support/golden_parts.h"
#include "golden_support/golden_recording.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Each type of file and who checks its cases. `list` is where the cases stand. */
static const struct {
  const char *name, *list;
  golden_verdict (*check)(golden_case *c);
} patterns[] = {
    {"megatron_hf_map", "cases", golden_check_megatron_map},
    {"megatron_hf_map_bridge", "cases", golden_check_megatron_map},
    {"megatron_params", "cases", golden_check_megatron_params},
    {"megatron_params_te", "cases", golden_check_megatron_params},
    {"megatron_layers", "cases", golden_check_megatron_layers},
    {"megatron_ranks", "cases", golden_check_megatron_ranks},
    {"megatron_vocab", "cases", golden_check_megatron_vocab},
    {"megatron_vocab", "unpadded_ok", golden_check_megatron_unpadded},
    {"vllm_params", "cases", golden_check_engine_params},
    {"vllm_params_more", "cases", golden_check_engine_params},
    {"vllm_params_edges", "cases", golden_check_engine_params},
    {"vllm_params_new", "cases", golden_check_engine_main},
    {"vllm_params_mtp", "cases", golden_check_engine_draft},
    {"vllm_pp", "cases", golden_check_engine_stages},
    {"vllm_ranks", "cases", golden_check_vllm_ranks},
    {"vllm_vocab", "cases", golden_check_engine_vocab},
    {"vllm_experts", "cases", golden_check_engine_experts},
    {"vllm_fp8_scales", "cases", golden_check_engine_scales},
    {"vllm_fp8_scales_edges", "cases", golden_check_engine_scales},
    {"sglang_params", "cases", golden_check_engine_params},
    {"sglang_params_more", "cases", golden_check_engine_params},
    {"sglang_params_new", "cases", golden_check_engine_main},
    {"sglang_params_mtp", "cases", golden_check_engine_draft},
    {"sglang_params_wide", "cases", golden_check_engine_params},
    {"sglang_pp", "cases", golden_check_engine_stages},
    {"sglang_ranks", "cases", golden_check_sglang_ranks},
    {"sglang_vocab", "cases", golden_check_engine_vocab},
    {"sglang_experts", "cases", golden_check_engine_experts},
    {"sglang_fp8_scales", "cases", golden_check_engine_scales},
    {"sglang_fp8_scales_wide", "cases", golden_check_engine_scales},
    {"dist_optimizer_ranges", "cases", golden_check_dist_optimizer},
    {"dist_optimizer_ranges_te", "cases", golden_check_dist_optimizer},
    {"dtensor", "cases", golden_check_dtensor},
    {"fsdp1", "cases", golden_check_fsdp1},
    {"fsdp2", "cases", golden_check_fsdp2},
};

/* ---- Files ----------------------------------------------------------------------------------- */

json_t *golden_load(const char *path) {
  size_t count = 0, capacity = 1 << 20;
  char *bytes = malloc(capacity);
  gzFile file = gzopen(path, "rb"); /* reads plain files as they are */
  int got = -1;
  while (file && bytes && (got = gzread(file, bytes + count, (unsigned)(capacity - count))) > 0) {
    count += (size_t)got;
    if (count < capacity) continue;
    capacity *= 2;
    char *more = realloc(bytes, capacity);
    if (!more) free(bytes);
    bytes = more;
  }
  if (file) gzclose(file);
  json_error_t error = {.text = "cannot be read"};
  json_t *root = got == 0 && bytes ? json_loadb(bytes, count, JSON_ALLOW_NUL, &error) : NULL;
  if (!root) fprintf(stderr, "%s: %s\n", path, error.text);
  free(bytes);
  return root;
}

/* "tests/golden/vllm_params.json.gz" -> "vllm_params" */
static void kind_of_path(const char *path, char *pattern, size_t room) {
  const char *slash = strrchr(path, '/');
  snprintf(pattern, room, "%.*s", (int)room - 1, slash ? slash + 1 : path);
  char *dot = strchr(pattern, '.');
  if (dot) *dot = 0;
}

void golden_count(golden_recording *r, golden_counts one) {
  r->counts->cases++;
  r->counts->equal += one.equal;
  r->counts->refused += one.refused;
  r->counts->skipped += one.skipped;
  r->counts->different += one.different;
}

void golden_say(golden_recording *r, const char *format, ...) {
  fprintf(r->out, "%s: ", r->file);
  va_list values;
  va_start(values, format);
  vfprintf(r->out, format, values);
  va_end(values);
  fputc('\n', r->out);
}

void golden_skip(golden_recording *r, int count, const char *format, ...) {
  fprintf(r->out, "%s: skipped: ", r->file);
  va_list values;
  va_start(values, format);
  vfprintf(r->out, format, values);
  va_end(values);
  fputc('\n', r->out);
  r->counts->cases += count;
  r->counts->skipped += count;
}

void golden_refuse(golden_recording *r, const char *format, ...) {
  r->refused = true;
  fprintf(r->out, "%s/%s cannot be read: ", r->folder, r->file);
  va_list values;
  va_start(values, format);
  vfprintf(r->out, format, values);
  va_end(values);
  fputc('\n', r->out);
}

static void folder_of_path(const char *path, char *folder, size_t room) {
  const char *slash = strrchr(path, '/');
  snprintf(folder, room, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
}

/* Files of other things than layouts. */
static bool check_recording(const char *path, const char *pattern, const json_t *root, FILE *differences,
                            golden_counts *counts, bool *known_p) {
  char folder[1024];
  folder_of_path(path, folder, sizeof folder);
  golden_recording r = {
      .file = pattern, .folder = folder, .root = root, .out = differences, .counts = counts};
  *known_p = golden_check_kind(&r);
  if (*known_p && !r.refused && counts->cases == 0) golden_refuse(&r, "it has no cases");
  return !r.refused;
}

static bool is_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

bool golden_check_file(const char *path, const golden_subject *subject, FILE *differences,
                       golden_counts *counts_p) {
  char pattern[64], inside[1100];
  *counts_p = (golden_counts){0};
  if (is_folder(path)) {
    snprintf(inside, sizeof inside, "%s/expected.json", path);
    path = inside;
  }
  kind_of_path(path, pattern, sizeof pattern);
  const char *part = golden_kind_of_part(path);
  if (part) {
    golden_recording r = {.file = pattern, .out = differences, .counts = counts_p};
    golden_skip(&r, 1, "%s", part);
    return true;
  }
  json_t *root = golden_load(path);
  if (!root) return false;
  bool known, good = check_recording(path, pattern, root, differences, counts_p, &known);
  if (!good) {
    json_decref(root);
    return false;
  }
  for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
    if (strcmp(patterns[k].name, pattern) != 0) continue;
    known = true;
    const json_t *list = json_object_get(root, patterns[k].list);
    for (size_t i = 0; i < json_array_size(list); i++) {
      golden_case c = {.subject = subject, .file = pattern, .root = root, .out = differences};
      c.item = json_array_get(list, i);
      c.number = (int)i;
      golden_verdict verdict = patterns[k].check(&c);
      golden_close(&c);
      json_decref(c.config);
      if (*c.map) unlink(c.map);
      counts_p->cases++;
      counts_p->equal += verdict == GOLDEN_EQUAL;
      counts_p->refused += verdict == GOLDEN_REFUSED;
      counts_p->skipped += verdict == GOLDEN_SKIPPED;
      counts_p->different += verdict == GOLDEN_DIFFERENT;
    }
  }
  json_decref(root);
  if (!known) fprintf(stderr, "%s: nobody knows golden files '%s'\n", path, pattern);
  return known;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

golden_verdict golden_differ(const golden_case *c, const char *format, ...) {
  fprintf(c->out, "%s case %d, %s, %lld ranks, %s: ", c->file, c->number, c->text, (long long)c->ranks,
          c->subject->name);
  va_list values;
  va_start(values, format);
  vfprintf(c->out, format, values);
  va_end(values);
  fputc('\n', c->out);
  return GOLDEN_DIFFERENT;
}

void golden_close(golden_case *c) {
  if (c->layout) c->subject->close(c->layout);
  c->layout = NULL;
}

/* A refusal is of the layout: a model that nobody can open at all would be refused for the wrong reason. */
static golden_verdict refused_alike(golden_case *c) {
  void *all = c->subject->open(c->config, "hf", 1);
  if (!all) return golden_differ(c, "the model itself is refused: %s", c->subject->reason());
  c->subject->close(all);
  return GOLDEN_REFUSED;
}

golden_verdict golden_open(golden_case *c, bool refused) {
  const json_t *error = json_is_object(c->item) ? json_object_get(c->item, "error") : NULL;
  const char *message = json_string_value(json_object_get(error, "message"));
  c->layout = c->subject->open(c->config, c->text, c->ranks);
  if (!error && !refused)
    return c->layout ? GOLDEN_EQUAL : golden_differ(c, "refused: %s", c->subject->reason());
  return c->layout ? golden_differ(c, "accepted; golden: %s", message ? message : "refused")
                   : refused_alike(c);
}

void golden_option(golden_case *c, const char *format, ...) {
  size_t length = strlen(c->text);
  c->text[length] = strchr(c->text, ':') ? ',' : ':';
  va_list values;
  va_start(values, format);
  vsnprintf(c->text + length + 1, sizeof c->text - length - 1, format, values);
  va_end(values);
}

void golden_option_map(golden_case *c, const json_t *maps) {
  snprintf(c->map, sizeof c->map, "/tmp/treadle-golden-XXXXXX");
  int file = mkstemp(c->map);
  if (file < 0 || json_dumpfd(maps, file, JSON_ENCODE_ANY) != 0) abort();
  close(file);
  golden_option(c, "map=@%s", c->map);
}

int64_t golden_int(const json_t *object, const char *key, int64_t otherwise) {
  const json_t *value = json_object_get(object, key);
  return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

int64_t golden_at(const json_t *array, size_t index) {
  return json_integer_value(json_array_get(array, index));
}
