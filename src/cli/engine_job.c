#include "cli/engine_job.h"

#include "base/alloc.h"
#include "treadle_tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 2 << 20 };

treadle_status treadle_engine_job_open(treadle_engine_job *job, const treadle_arguments *a,
                                       const char *layout) {
  treadle_engine_options options = {.struct_size = sizeof options,
                                    .fast = a->exact == 1,
                                    .kernels = a->kernels,
                                    .threads = (int32_t)a->threads,
                                    .max_batch = (int32_t)a->max_batch,
                                    .prefill_chunk = (int32_t)a->prefill_chunk,
                                    .block_tokens = (int32_t)a->block_tokens,
                                    .prefix_cache = a->prefix_cache == 1 ? TREADLE_OFF : TREADLE_DEFAULT,
                                    .kv_bytes = a->kv_bytes,
                                    .max_len = a->max_len};
  treadle_status status;
  TRY(treadle_open_model(a, a->model, false, &job->model));
  TRY(treadle_layout_create(job->model, a->layout ? a->layout : layout, job->session.size, NULL,
                            &job->layout));
  TRY(treadle_engine_create(job->session.group, job->layout, &options, &job->engine));
  job->window_bytes = treadle_layout_window_bytes(job->layout, job->session.rank);
  if (posix_memalign(&job->window, PAGE, job->window_bytes + 64) != 0)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu bytes of weights", job->window_bytes);
  TRY(treadle_layout_load(job->layout, job->session.rank, job->window));
  TRY(treadle_engine_bind(job->engine, job->window, job->window_bytes));
out:
  return status;
}

treadle_status treadle_engine_job_read(treadle_engine_job *job, const char *path) {
  FILE *file = fopen(path, "re");
  size_t room = 0;
  treadle_status status = TREADLE_OK;
  if (!file) return treadle_fail(TREADLE_REFUSED, "%s: %s", path, strerror(errno));
  for (;;) {
    if (job->line_bytes == room) {
      room = room ? 2 * room : 1 << 16;
      char *more = treadle_realloc(job->lines, room);
      if (!more) {
        status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %zu bytes", path, room);
        goto out;
      }
      job->lines = more;
    }
    size_t got = fread(job->lines + job->line_bytes, 1, room - job->line_bytes, file);
    if (!got) break;
    job->line_bytes += got;
  }
  if (ferror(file)) status = treadle_fail(TREADLE_REFUSED, "%s: cannot be read: %s", path, strerror(errno));
out:
  fclose(file);
  return status;
}

treadle_status treadle_engine_job_write(treadle_engine_job *job, const treadle_arguments *a) {
  bool first = job->session.rank == 0;
  job->prints = first && !a->out && !a->json;
  job->collects = first && a->out != NULL;
  return job->collects ? treadle_output_ask(a->out) : TREADLE_OK;
}

treadle_status treadle_engine_job_answer(void *context, const char *line, size_t bytes) {
  treadle_engine_job *job = context;
  if (job->prints && fwrite(line, 1, bytes, stdout) != bytes)
    return treadle_fail(TREADLE_SYSTEM, "an answer cannot be written: %s", strerror(errno));
  if (job->collects) treadle_builder_add(&job->answers, "%s", line);
  return job->answers.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for the answers") : TREADLE_OK;
}

treadle_status treadle_engine_job_finish(treadle_engine_job *job, const treadle_arguments *a) {
  const char *text = job->answers.text ? job->answers.text : "";
  return job->collects ? treadle_output_write(a->out, text, strlen(text)) : TREADLE_OK;
}

void treadle_engine_job_close(treadle_engine_job *job) {
  treadle_builder_release(&job->answers);
  treadle_engine_destroy(job->engine);
  treadle_layout_destroy(job->layout);
  treadle_model_close(job->model);
  free(job->window);
  treadle_free(job->lines);
}
