/* What `treadle report` draws beside metrics.jsonl: memory.json, device bytes of rank 0 by class through the last step; switch.json, what each
 * rank pulls from each other one on the way to INFER. Both are written at the end of a run. */
#include "rl/loop.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "io/file.h"
#include "layout/layout.h"
#include "treadle_tools.h"

#include <string.h>

enum { MOMENTS_MOST = 4096, SHOWN_CLASSES = 7, RANKS_MOST = 16 };

static const struct {
  const char *name;
  int which[2];
} shown[SHOWN_CLASSES] = {{"params", {TREADLE_PARAMS, TREADLE_PARAMS}},
                          {"grads", {TREADLE_GRADS, TREADLE_GRADS}},
                          {"optimizer", {TREADLE_OPTIMIZER, TREADLE_OPTIMIZER}},
                          {"infer", {TREADLE_INFER_PARAMS, TREADLE_INFER_PARAMS}},
                          {"kv", {TREADLE_KV, TREADLE_KV}},
                          {"work", {TREADLE_WORK, TREADLE_TRAIN_WORK}},
                          {"reference", {TREADLE_REFERENCE, TREADLE_REFERENCE}}};

/* ---- Moments ------------------------------------------------------------------------------------------------- */

static void add_moment(treadle_rl_moments *moments, const size_t *bytes) {
  treadle_rl_moment m = {.seconds = treadle_clock_seconds() - moments->begin, .stage = moments->stage};
  if (!moments->stage || moments->all.count >= MOMENTS_MOST) return;
  memcpy(m.bytes, bytes, sizeof m.bytes);
  (void)treadle_array_push(&moments->all, m); /* a picture with a moment less */
}

void treadle_rl_note_moment(void *context, const size_t *bytes, int classes) {
  treadle_rl *rl = context;
  if (classes == TREADLE_CLASSES) add_moment(&rl->ledger.moments, bytes);
  if (rl->crew.observer.memory) rl->crew.observer.memory(rl->crew.observer.context, bytes, classes);
}

void treadle_rl_begin_moments(treadle_rl_moments *moments) {
  moments->all.count = 0;
  moments->begin = treadle_clock_seconds();
}

void treadle_rl_stage(treadle_rl *rl, const char *stage) {
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  if (stage) treadle_rl_doing(&rl->crew, stage);
  treadle_observe_stage(&rl->crew.observer, stage);
  if (treadle_actor_get_info(rl->actor, &info)) return;
  if (stage) rl->ledger.moments.stage = stage;
  add_moment(&rl->ledger.moments, info.bytes);
  rl->ledger.moments.stage = stage;
}

/* ---- Files ---------------------------------------------------------------------------------------------------- */

static treadle_status write_text(const treadle_train_settings *settings, const char *name,
                                 const treadle_builder *text) {
  char path[PATH_MAX];
  if (text->failed) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %s", name);
  snprintf(path, sizeof path, "%s/%s", settings->actor.save, name);
  return treadle_file_write(path, text->text, text->length);
}

static treadle_status write_memory(const treadle_train_settings *s, const treadle_rl_moments *moments,
                                   size_t predicted) {
  treadle_builder text = {0};
  treadle_builder_add(
      &text, "{\"rank\": 0, \"predicted_bytes\": %zu, \"budget_bytes\": %zu, \"classes\": [", predicted,
      (size_t)((double)s->generate.device_memory * s->generate.gpu_memory_utilization));
  for (int c = 0; c < SHOWN_CLASSES; c++)
    treadle_builder_add(&text, "%s\"%s\"", c ? ", " : "", shown[c].name);
  treadle_builder_add(&text, "],\n \"points\": [");
  for (size_t i = 0; i < moments->all.count; i++) {
    const treadle_rl_moment *m = &moments->all.items[i];
    treadle_builder_add(&text, "%s\n  {\"seconds\": %.6f, \"stage\": \"%s\", \"bytes\": [", i ? "," : "",
                        m->seconds, m->stage);
    for (int c = 0; c < SHOWN_CLASSES; c++) {
      size_t bytes = m->bytes[shown[c].which[0]];
      if (shown[c].which[1] != shown[c].which[0]) bytes += m->bytes[shown[c].which[1]];
      treadle_builder_add(&text, "%s%zu", c ? ", " : "", bytes);
    }
    treadle_builder_add(&text, "]}");
  }
  treadle_builder_add(&text, "\n]}\n");
  treadle_status status = write_text(s, "memory.json", &text);
  treadle_builder_release(&text);
  return status;
}

static treadle_status add_inbound(int ranks, const treadle_report *report, treadle_builder *text) {
  size_t bytes[RANKS_MOST];
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < ranks; rank++) {
    TRY(treadle_report_inbound(report, rank, bytes));
    treadle_builder_add(text, "%s\n  [", rank ? "," : "");
    for (int from = 0; from < ranks; from++)
      treadle_builder_add(text, "%s%zu", from ? ", " : "", bytes[from]);
    treadle_builder_add(text, "]");
  }
out:
  return status;
}

static treadle_status write_switch(const treadle_rl_models *models, const treadle_train_settings *settings,
                                   int ranks) {
  const treadle_report_options options = {.struct_size = sizeof options,
                                          .page_bytes = treadle_rl_page_bytes(models->model)};
  treadle_report_info info = TREADLE_INIT(treadle_report_info);
  treadle_report *report = NULL;
  treadle_builder text = {0};
  treadle_status status;
  TRY(treadle_report_create(models->train, models->infer, &options, &report));
  treadle_report_get_info(report, &info);
  treadle_builder_add(&text,
                      "{\"train\": \"%s\", \"infer\": \"%s\", \"ranks\": %d, \"moved_bytes\": %zu, "
                      "\"lower_bound_bytes\": %zu, "
                      "\"inbound\": [",
                      models->train->text, models->infer->text, ranks, info.moved_bytes,
                      info.lower_bound_bytes);
  if (info.has_inbound && ranks <= RANKS_MOST) TRY(add_inbound(ranks, report, &text));
  treadle_builder_add(&text, "]}\n");
  TRY(write_text(settings, "switch.json", &text));
out:
  treadle_report_destroy(report);
  treadle_builder_release(&text);
  return status;
}

treadle_status treadle_rl_report(treadle_rl *rl) {
  treadle_status status;
  TRY(write_memory(rl->task.settings, &rl->ledger.moments, rl->predicted));
  TRY(write_switch(&rl->models, rl->task.settings, rl->crew.policy_ranks));
out:
  return status;
}
