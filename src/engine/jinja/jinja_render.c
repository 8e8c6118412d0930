/* Rendering: variables in, text out. */
#include "jinja/jinja_run.h"
#include "jinja/jinja_text.h"
#include "jinja/jinja_time.h"

#include "base/alloc.h"

#include <string.h>

static treadle_jinja_options with_defaults(const treadle_jinja_options *options) {
  treadle_jinja_options all = options ? *options : (treadle_jinja_options){0};
  if (!all.steps) all.steps = 50 * 1000 * 1000;
  if (!all.memory) all.memory = INT64_C(256) << 20;
  if (!all.output) all.output = INT64_C(64) << 20;
  return all;
}

static treadle_status run(treadle_jinja_machine *m, json_t *variables, treadle_jinja_writer *page) {
  treadle_jinja_flow flow;
  PASS(treadle_jinja_of_json(m, variables, &m->context));
  PASS(treadle_jinja_scope_make(m, NULL, &m->root));
  m->out = m->page = page;
  return treadle_jinja_exec(m, m->root, m->template->body, &flow);
}

static treadle_status keep(const treadle_jinja_writer *page, char **text_p, size_t *length_p) {
  *text_p = treadle_alloc(page->length + 1);
  if (!*text_p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the text of a template");
  if (page->length) memcpy(*text_p, page->bytes, page->length);
  *length_p = page->length;
  return TREADLE_OK;
}

treadle_status treadle_jinja_render(const treadle_jinja_template *template, json_t *variables,
                                    const treadle_jinja_options *options, char **text_p, size_t *length_p,
                                    treadle_jinja_spans *spans_p) {
  treadle_jinja_options all = with_defaults(options);
  treadle_jinja_machine m = {
      .template = template, .options = &all, .steps_left = all.steps, .memory_left = all.memory};
  treadle_jinja_writer page = {0};
  *text_p = NULL;
  treadle_status status = run(&m, variables, &page);
  if (status == TREADLE_REFUSED && m.line)
    status = treadle_fail_in(status, "%s: line %d: ", template->what, m.line);
  else if (status == TREADLE_REFUSED)
    status = treadle_fail_in(status, "%s: ", template->what);
  TRY(status);
  TRY(keep(&page, text_p, length_p));
  if (spans_p) {
    *spans_p = m.spans;
    m.spans = (treadle_jinja_spans){0};
  }
out:
  treadle_array_release(&m.spans);
  treadle_arena_release(&m.arena);
  return status;
}
