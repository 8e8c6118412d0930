/* The page: summary, charts, samples, configuration. */
#include "cli/report.h"

#include <math.h>
#include <string.h>

enum { SAMPLES_SHOWN = 40 };

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
    "content=\"width=device-width\"/>\n<style>\n"
    ":root{color-scheme:light "
    "dark;--line:#8885;--text:#222}@media(prefers-color-scheme:dark){:root{--text:#ddd}}\n"
    "body{font:15px/1.45 system-ui,sans-serif;max-width:1320px;margin:1em auto;padding:0 1em}\n"
    "main{margin-top:1em;display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));"
    "gap:1em}"
    "figure{margin:0;"
    "border:1px solid "
    "var(--line);border-radius:6px;padding:.6em}\n"
    "figcaption{font-weight:600}svg{width:100%;height:auto}svg "
    "text{font-size:10px;fill:var(--text)}svg .stage{fill:#222;stroke:#fffc;stroke-width:3px;paint-order:"
    "stroke}.grid{stroke:var(--line);"
    "stroke-width:.6}.bound{stroke:#c33;stroke-width:1.4;stroke-dasharray:5 "
    "3}.limit{stroke:#888;stroke-width:1.4;"
    "stroke-dasharray:2 3}\n"
    ".key{display:inline-block;margin-right:1em;font-size:12px}.key "
    "i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}"
    ".key .dashes{width:1.6em;height:0;vertical-align:middle;border-top:2px dashed "
    "#c33}.key .limited{border-top:2px dotted #888}\n"
    "table{border-collapse:collapse;font-size:13px}td,th{border:1px solid var(--line);padding:.15em "
    ".5em;text-align:left;vertical-align:top}\n"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0}.traffic td{text-align:right}\n"
    ".tracks{grid-column:1/-1;min-width:0}.tracks p{margin:.6em 0 .2em;font-size:13px}.tracks "
    ".more{margin:0 0 0 5em;font-size:12px}.role{font-weight:600;font-size:12px;margin-top:.4em}"
    ".track{display:flex;align-items:center;font-size:12px}.track span{flex:none;width:5em}.track "
    "div{position:relative;flex:1;height:16px;margin:1px 1.5em 1px "
    "0;background:#8882;border-radius:2px}.track "
    "i{position:absolute;top:0;bottom:0;min-width:1px;overflow:hidden;white-space:nowrap;"
    "text-overflow:ellipsis;font:11px/16px system-ui,sans-serif;text-indent:3px;color:#fff;"
    "text-shadow:0 0 2px #000,0 0 2px #000}.track b{position:absolute;top:-1px;bottom:-1px;"
    "border-left:1px dashed}.axis div{background:none}.track "
    "s{position:absolute;text-decoration:none;transform:translateX(-50%)}\n"
    ".wide{overflow-x:auto}.wide td,.wide th{white-space:nowrap}.wide td:nth-child(n+3){text-align:right}\n"
    "</style>\n";

static const treadle_chart charts[] = {
    {.title = "Reward",
     .unit = "",
     .lines = {{"critic/rewards/mean", "mean of the samples", "#3b6fb6"},
               {"val", "of prompts that are not trained on (mean@N)", "#d98032"}},
     .low = "critic/rewards/min",
     .high = "critic/rewards/max"},
    {.title = "Loss",
     .unit = "",
     .lines = {{"train/loss", "of a token that is trained on, mean", "#3b6fb6"},
               {"val/loss", "of rows that are not trained on", "#d98032"}}},
    {.title = "KL",
     .unit = "",
     .lines = {{"actor/kl_loss", "to the reference, in the loss", NULL},
               {"actor/reward_kl_penalty", "to the reference, in the reward", NULL},
               {"actor/ppo_kl", "to the policy that generated", NULL}}},
    {.title = "Critic",
     .unit = "",
     .lines = {{"critic/vf_loss", "loss of its values", NULL},
               {"critic/vf_explained_var", "share of the returns' variance that they explain", NULL}}},
    {.title = "Entropy", .unit = "", .lines = {{"actor/entropy", "of a token, mean", NULL}}},
    {.title = "Tokens of a response",
     .unit = "",
     .lines = {{"response_length/mean", "mean", "#6a9a5b"}},
     .low = "response_length/min",
     .high = "response_length/max"},
    {.title = "Seconds of a step",
     .unit = "s",
     .stacked = true,
     .lines = {{"timing_s/gen", "generate", "#d98032"},
               {"timing_s/old_log_prob", "old log-probabilities", "#9ab8dd"},
               {"timing_s/reward", "waiting for rewards", "#b05b6a"},
               {"timing_s/ref", "reference", "#5f9ea0"},
               {"timing_s/values", "values", "#c9a227"},
               {"timing_s/adv", "advantages", "#8f6bb0"},
               {"timing_s/update_critic", "update of the critic", "#7a8f3c"},
               {"timing_s/update_actor", "update", "#3b6fb6"}}},
    {.title = "Of these, in switches",
     .unit = "s",
     .lines = {{"timing/resharding_to_infer", "to infer", NULL},
               {"timing/resharding_to_train", "back", NULL}}},
    {.title = "Norm of the gradients",
     .unit = "",
     .lines = {{"actor/grad_norm", "before clipping", NULL}, {"train/grad_norm", "before clipping", NULL}}},
};

static void put_row(treadle_builder *page, const char *what, const char *value) {
  treadle_builder_add(page, "<tr><th>%s</th><td>%s</td></tr>\n", what, value);
}

static void put_summary(treadle_builder *page, const treadle_run_summary *s) {
  char text[160];
  treadle_builder_add(page, "<table>\n");
  snprintf(text, sizeof text, "%lld", (long long)s->steps);
  put_row(page, "steps", text);
  snprintf(text, sizeof text, "%.4f to %.4f (means of %lld step%s)", s->reward_first, s->reward_last,
           (long long)s->reward_steps, s->reward_steps == 1 ? "" : "s");
  put_row(page, "reward", isnan(s->reward_first) ? "none" : text);
  snprintf(text, sizeof text, "%lld of %lld differ between generating and training",
           (long long)s->differing, (long long)s->compared);
  put_row(page, "log-probabilities", s->compared ? text : "were not compared");
  snprintf(text, sizeof text, "%s at most, %s foreseen", treadle_page_size(s->peak_bytes),
           s->predicted_bytes > 0 ? treadle_page_size(s->predicted_bytes) : "nothing");
  put_row(page, "device memory of the fullest rank", text);
  snprintf(text, sizeof text, "%.3g s, %.0f tokens/s a rank (medians)", s->step_seconds,
           s->tokens_per_second);
  put_row(page, "a step", isnan(s->step_seconds) ? "none" : text);
  treadle_builder_add(page, "</table>\n");
}

static void put_cell(treadle_builder *page, const json_t *sample, const char *key) {
  const json_t *value = json_object_get(sample, key);
  treadle_builder_add(page, "<td><pre>");
  if (json_is_string(value)) treadle_page_text(page, json_string_value(value));
  if (json_is_number(value)) treadle_builder_add(page, "%.4g", json_number_value(value));
  treadle_builder_add(page, "</pre></td>");
}

static void put_samples(treadle_builder *page, const treadle_run_files *run) {
  static const char *const keys[] = {"step", "prompt", "completion", "answer", "score", "length"};
  if (!run->sample_count) return;
  treadle_builder_add(page, "<h2>Completions</h2><p>The newest, then the first.</p>\n<table><tr>");
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) treadle_builder_add(page, "<th>%s</th>", keys[k]);
  treadle_builder_add(page, "</tr>\n");
  for (size_t i = 0; i < run->sample_count && i < 2 * SAMPLES_SHOWN; i++) {
    size_t which = i < SAMPLES_SHOWN ? run->sample_count - 1 - i : i - SAMPLES_SHOWN;
    if (i >= run->sample_count) break;
    treadle_builder_add(page, "<tr>");
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) put_cell(page, run->samples[which], keys[k]);
    treadle_builder_add(page, "</tr>\n");
  }
  treadle_builder_add(page, "</table>\n");
}

void treadle_page_write(treadle_builder *page, const treadle_run_files *run,
                        const treadle_run_summary *summary) {
  treadle_builder_add_bytes(page, head, sizeof head - 1);
  treadle_builder_add(page, "<title>");
  treadle_page_text(page, run->run);
  treadle_builder_add(page, "</title></head>\n<body>\n<h1>");
  treadle_page_text(page, run->run);
  treadle_builder_add(page, "</h1>\n");
  put_summary(page, summary);
  treadle_builder_add(page, "<main>\n");
  for (size_t i = 0; run->count && i < sizeof charts / sizeof *charts; i++)
    treadle_chart_draw(page, run, &charts[i]);
  if (run->memory) treadle_chart_memory(page, run->memory);
  if (run->traffic) treadle_chart_traffic(page, run->traffic);
  treadle_chart_tracks(page, &run->trace);
  treadle_builder_add(page, "</main>\n");
  if (!run->count) treadle_builder_add(page, "<p>metrics.jsonl has no step yet.</p>\n");
  put_samples(page, run);
  if (run->config) {
    treadle_builder_add(page, "<details><summary>config.yaml</summary><pre>");
    treadle_page_text(page, run->config);
    treadle_builder_add(page, "</pre></details>\n");
  }
  treadle_builder_add(page, "</body></html>\n");
}
