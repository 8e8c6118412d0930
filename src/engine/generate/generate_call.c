/* What a call that generates has before its first step and after its last. */
#include "generate/generate_call.h"

#include "base/alloc.h"
#include "base/argument.h"

#include <stdio.h>

void treadle_generate_call_name(const treadle_generate_call *call, const treadle_request *request,
                                char name_p[TREADLE_LINE_NAME]) {
  snprintf(name_p, TREADLE_LINE_NAME, "%.400s: %s %lld", call->options.what, call->unit,
           (long long)request->line);
}

treadle_status treadle_generate_call_check_options(const treadle_generate_options *o) {
  if (o->never_count && !o->never) REFUSE("never_count is %zu, and never is NULL", o->never_count);
  if (o->most_kept < 0) REFUSE("most_kept is %lld: 1 at least, or 0", (long long)o->most_kept);
  return TREADLE_OK;
}

/* A request alone must fit into the cache, or it could never end. */
treadle_status treadle_generate_call_check_room(const treadle_generate_call *call,
                                                const treadle_request *r) {
  const treadle_generator *e = call->engine;
  int64_t most = e->most_tokens, left = most - r->input.token_count;
  char name[TREADLE_LINE_NAME];
  if (r->sampling.max_tokens < left) most = r->input.token_count + r->sampling.max_tokens;
  int32_t blocks = treadle_schedule_blocks(&e->cache, most);
  if (blocks <= e->cache.count) return TREADLE_OK;
  treadle_generate_call_name(call, r, name);
  return treadle_fail(
      TREADLE_REFUSED, "%s: %lld tokens are %d blocks of the KV cache, which has %d: it takes %zu bytes",
      name, (long long)most, blocks, e->cache.count, (size_t)blocks * treadle_pass_block_bytes(e->pass));
}

static void make_jobs(treadle_generate_call *call) {
  size_t at = 0;
  for (size_t i = 0; i < call->requests.items.count; i++)
    for (int64_t k = 0; k < call->requests.items.items[i].sampling.n; k++, at++) {
      call->jobs[at].request = &call->requests.items.items[i];
      call->jobs[at].sequence.number = (int64_t)at;
      call->jobs[at].sample.spec.index = k;
    }
}

treadle_status treadle_generate_call_prepare(treadle_generate_call *call) {
  treadle_generator *e = call->engine;
  size_t batch = (size_t)e->max_batch;
  treadle_status status;
  for (size_t i = 0; i < call->requests.items.count; i++)
    call->job_count += (size_t)call->requests.items.items[i].sampling.n;
  call->figures.requests = (int64_t)call->requests.items.count;
  call->figures.samples = (int64_t)call->job_count;
  call->jobs = treadle_alloc_array(call->job_count + 1, sizeof *call->jobs);
  call->which = treadle_alloc_array(batch, sizeof *call->which);
  call->wanting = treadle_alloc_array(batch, sizeof *call->wanting);
  if (!call->jobs || !call->which || !call->wanting)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu samples", call->job_count);
  make_jobs(call);
  TRY(treadle_token_rows_init(&call->rows, e->pass, e->transformer->vocabulary, e->max_batch));
  if (call->options.drawn || call->options.never_count) TRY(treadle_token_rows_draw(&call->rows));
  TRY(treadle_schedule_init(&call->schedule, &e->cache, e->max_batch, e->prefill_chunk));
out:
  return status;
}

void treadle_generate_call_release(treadle_generate_call *call, treadle_status status) {
  while (call->schedule.running_count)
    treadle_schedule_end(&call->schedule, call->schedule.running[call->schedule.running_count - 1]);
  if (status)
    treadle_generator_forget(call->engine); /* what the cache has of a step that failed is nobody's */
  for (size_t i = 0; call->jobs && i < call->job_count; i++) {
    treadle_sequence_release(&call->jobs[i].sequence);
    treadle_sample_text_release(&call->jobs[i].text);
    if (call->jobs[i].begun) treadle_sample_release(&call->jobs[i].sample);
  }
  treadle_schedule_release(&call->schedule);
  treadle_token_rows_release(&call->rows);
  treadle_requests_release(&call->requests);
  treadle_arena_release(&call->arena);
  treadle_free(call->jobs);
  treadle_free(call->which);
  treadle_free(call->wanting);
}
