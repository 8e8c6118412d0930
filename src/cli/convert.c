/* treadle convert: a checkpoint from one layout to another, file by file. Alone, or under mpirun, where each process
 * writes a part of the files. */
#include "cli/cli.h"
#include "cli/json_out.h"
#include "cli/session.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/utf8.h"
#include "treadle_tools.h"

#include <inttypes.h>
#include <string.h>

static const double LONGEST_WAIT = 1e6; /* seconds: files may take processes unequally long */

static double begin_seconds;

static bool show_progress(void *context, const char *doing, int64_t done, int64_t total) {
  (void)context, (void)doing;
  double seconds = treadle_clock_seconds() - begin_seconds;
  double rate = seconds > 0 ? (double)done / seconds : 0;
  treadle_progress("%s of %s, %.2f GB/s, about %.0f s left", treadle_text_of_size((size_t)done),
                   treadle_text_of_size((size_t)total), rate / 1e9,
                   rate > 0 ? (double)(total - done) / rate : 0.0);
  return true;
}

static void warn(void *context, const char *line) {
  (void)context;
  fprintf(stderr, "treadle convert: warning: %s\n", line);
}

/* What all processes together did; the memory is that of the largest. */
typedef struct totals {
  treadle_convert_figures figures;
  int64_t peak_rss_bytes;
} totals;

static treadle_status sum_figures(treadle_session *session, const treadle_convert_figures *mine,
                                  totals *sum) {
  treadle_status status;
  totals own = {*mine, (int64_t)treadle_clock_peak_rss_bytes()};
  totals *all = treadle_alloc_array((size_t)session->size, sizeof *all);
  if (!all)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the figures of %d processes", session->size);
  TRY(treadle_group_gather(session->group, &own, sizeof own, all));
  *sum = all[0];
  for (int r = 1; r < session->size; r++) {
    sum->figures.bytes_read += all[r].figures.bytes_read;
    sum->figures.bytes_written += all[r].figures.bytes_written;
    sum->figures.tensors += all[r].figures.tensors;
    sum->figures.files += all[r].figures.files;
    sum->figures.resumed += all[r].figures.resumed;
    if (all[r].peak_rss_bytes > sum->peak_rss_bytes) sum->peak_rss_bytes = all[r].peak_rss_bytes;
  }
out:
  treadle_free(all);
  return status;
}

static void print_json(const totals *sum, double seconds) {
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_real(&out, "seconds", seconds);
  treadle_json_out_int(&out, "bytes_read", sum->figures.bytes_read);
  treadle_json_out_int(&out, "bytes_written", sum->figures.bytes_written);
  treadle_json_out_int(&out, "peak_rss_bytes", sum->peak_rss_bytes);
  treadle_json_out_int(&out, "tensors", sum->figures.tensors);
  treadle_json_out_int(&out, "resumed", sum->figures.resumed);
  treadle_json_out_close(&out, '}');
}

static void print_text(const treadle_arguments *arguments, const totals *sum, double seconds) {
  const treadle_convert_figures *f = &sum->figures;
  printf("%s: %s in %s, %s written in %.1f s (%.2f GB/s), %s of memory\n",
         treadle_text_shown(arguments->words[1]), treadle_text_of_count(f->tensors, "tensor"),
         treadle_text_of_count(f->files + f->resumed, "file"),
         treadle_text_of_size((size_t)f->bytes_written), seconds,
         seconds > 0 ? (double)f->bytes_written / seconds / 1e9 : 0.0,
         treadle_text_of_size((size_t)sum->peak_rss_bytes));
  if (f->resumed)
    printf("taken up where it had stopped, with %s there\n", treadle_text_of_count(f->resumed, "file"));
  if (f->skipped) printf("skipped: %" PRId64 " entries of _extra_state and the like\n", f->skipped);
  if (f->opaque)
    printf("left alone: %" PRId64 " values beside the weights (arguments, optimizer, random states)\n",
           f->opaque);
}

/* Were the inputs compared by the run that this one takes up? Rank 0 knows. */
static treadle_status ask_resumed(treadle_session *session, const treadle_convert *convert,
                                  bool *resumed_p) {
  treadle_status status;
  int64_t mine = treadle_convert_resumes(convert);
  int64_t *all = treadle_alloc_array((size_t)session->size, sizeof *all);
  if (!all) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d processes", session->size);
  TRY(treadle_group_gather(session->group, &mine, sizeof mine, all));
  *resumed_p = all[0];
out:
  treadle_free(all);
  return status;
}

/* The steps, after each of which all processes agree on how it went. Rank 0 alone does those of the folder. */
static treadle_status run_steps(treadle_session *session, const treadle_convert_options *options,
                                treadle_convert **convert_p) {
  treadle_status status = treadle_convert_open(options, convert_p);
  bool first = session->rank == 0, resumed = false;
  TRY(treadle_session_agree(session, treadle_as_refusal(status)));
  treadle_convert *convert = *convert_p;
  if (first) treadle_say_open(treadle_convert_model(convert));
  TRY(ask_resumed(session, convert, &resumed));
  if (!resumed) TRY(treadle_session_agree(session, treadle_convert_compare(convert)));
  TRY(treadle_session_agree(session, first ? treadle_convert_begin(convert) : TREADLE_OK));
  TRY(treadle_session_agree(session, treadle_convert_write(convert)));
  TRY(treadle_session_agree(session, first ? treadle_convert_finish(convert) : TREADLE_OK));
out:
  return status;
}

int treadle_command_convert(const treadle_arguments *arguments) {
  treadle_session session;
  treadle_status status;
  treadle_convert *convert = NULL;
  totals sum = {0};
  treadle_convert_figures mine = TREADLE_INIT(treadle_convert_figures);
  begin_seconds = treadle_clock_seconds();
  TRY(treadle_session_start(&session, "convert", LONGEST_WAIT));
  const treadle_convert_options options = {.struct_size = sizeof options,
                                           .in = arguments->words[0],
                                           .out = arguments->words[1],
                                           .from = arguments->layouts.from,
                                           .to = arguments->layouts.to,
                                           .model = arguments->model.path,
                                           .families = arguments->model.families,
                                           .trust = arguments->convert.trust,
                                           .lora = arguments->convert.lora,
                                           .rank = session.rank,
                                           .ranks = session.size,
                                           .watch = session.rank == 0 ? show_progress : NULL,
                                           .warn = warn};
  TRY(run_steps(&session, &options, &convert));
  treadle_convert_get_figures(convert, &mine);
  TRY(sum_figures(&session, &mine, &sum));
  treadle_progress_end();
  double seconds = treadle_clock_seconds() - begin_seconds;
  if (session.rank == 0 && arguments->json)
    print_json(&sum, seconds);
  else if (session.rank == 0)
    print_text(arguments, &sum, seconds);
out:
  treadle_progress_end();
  if (status && !session.said) treadle_session_abandon(&session, status);
  treadle_convert_close(convert);
  treadle_session_end(&session);
  return treadle_finish_output("convert", treadle_exit_status(status));
}
