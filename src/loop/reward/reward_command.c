/* The reward `command`: processes that read samples as lines of JSON and write scores, in any order.
 *
 *   in    {"id": "..", "data_source": "..", "prompt": "..", "completion": "..", "answer": "..", "ids": [..]}
 *   out   {"id": "..", "score": 0.5, "pred": ".."}         pred may be left out
 *         {"id": "..", "scores": [0.0, 0.5], ..}           in place of score: one for each of its ids
 *
 * Samples of a batch are divided among the processes (reward_process.h); all of them are written to and read from as they are ready, so that
 * nobody waits for a full pipe. A batch ends when each sample has its score. A process that fails, answers nothing for too long, or writes what it
 * should not, fails the batch: all processes are ended then, and started again by the next one. */
#include "reward/reward.h"
#include "reward/reward_process.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/json.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* FILES_BESIDE: what a run has open besides the sockets, at most. */
enum { LINE_MOST = 1 << 20, PIECE = 1 << 16, TURN_MS = 50, FILES_BESIDE = 64 };

typedef struct command {
  treadle_reward_processes all;
  double timeout;
  struct pollfd *fds; /* [all.count] of a turn */
} command;

/* ---- A batch ------------------------------------------------------------------------------------------------ */

typedef struct asking {
  command *c;
  const treadle_reward_batch *batch;
  bool *answered; /* [count] */
  size_t left;
} asking;

static void add_field(treadle_builder *line, const char *key, const char *text, size_t bytes) {
  treadle_builder_add(line, ", \"%s\": ", key);
  treadle_json_add_text(line, text ? text : "", text ? bytes : 0);
}

static void add_ids(treadle_builder *line, const int32_t *ids, int64_t count) {
  treadle_builder_add(line, ", \"ids\": [");
  for (int64_t i = 0; i < count; i++) treadle_builder_add(line, "%s%d", i ? ", " : "", ids[i]);
  treadle_builder_add(line, "]");
}

static void add_sample(treadle_builder *lines, const treadle_reward_batch *batch, size_t number) {
  const treadle_reward_sample *s = &batch->samples[number];
  const treadle_reward_tokens *tokens = batch->tokens;
  treadle_builder_add(lines, "{\"id\": ");
  treadle_json_add_text(lines, s->id, strlen(s->id));
  add_field(lines, "data_source", s->data_source, s->data_source ? strlen(s->data_source) : 0);
  add_field(lines, "prompt", s->prompt, s->prompt ? strlen(s->prompt) : 0);
  add_field(lines, "completion", s->completion, s->completion_bytes);
  add_field(lines, "answer", s->answer, s->answer ? strlen(s->answer) : 0);
  if (tokens) add_ids(lines, tokens->ids + tokens->first[number], s->tokens);
  treadle_builder_add(lines, "}\n");
}

/* Samples i, i + count, ... go to process i. */
static treadle_status give_out(asking *a, int number) {
  treadle_reward_process *p = &a->c->all.items[number];
  treadle_builder lines = {0};
  p->waiting = 0;
  p->next = (size_t)number;
  for (size_t i = (size_t)number; i < a->batch->count; i += (size_t)a->c->all.count, p->waiting++)
    add_sample(&lines, a->batch, i);
  treadle_free(p->in);
  p->in = lines.text;
  p->in_bytes = lines.length;
  p->written = 0;
  p->answered = treadle_clock_seconds();
  return lines.failed ? treadle_fail(TREADLE_NO_MEMORY, "command: no memory for its samples") : TREADLE_OK;
}

static treadle_status refuse_line(const asking *a, const char *line, size_t bytes, const char *why) {
  char shown[160];
  snprintf(shown, sizeof shown, "%.*s", bytes < 120 ? (int)bytes : 120, line);
  return treadle_fail(TREADLE_REFUSED, "command '%s': wrote '%s': %s", treadle_text_shown(a->c->all.text),
                      treadle_text_shown(shown), why);
}

/* The sample of this process with this id, or count. Most answer in the order in which they were asked: then it is the first one looked at. */
static size_t find(const asking *a, treadle_reward_process *p, const char *id) {
  const size_t count = a->batch->count, first = (size_t)(p - a->c->all.items),
               step = (size_t)a->c->all.count;
  size_t i = p->next;
  for (size_t k = first; k < count; k += step) {
    if (i >= count) i = first;
    if (strcmp(a->batch->samples[i].id, id) == 0) {
      p->next = i + step;
      return i;
    }
    i += step;
  }
  return count;
}

/* What is wrong with a score; NULL: nothing. */
static const char *take_number(const json_t *score, double *number_p) {
  if (!treadle_json_to_real(score, number_p) || !isfinite(*number_p))
    return "its score is not a finite number";
  return fabs(*number_p) > (double)FLT_MAX ? "its score is beyond the range of fp32, 3.4e38" : NULL;
}

/* The same of a score for each token; *number_p: their sum, in this order. */
static const char *take_numbers(const treadle_reward_batch *batch, size_t sample, const json_t *scores,
                                double *number_p) {
  const treadle_reward_tokens *tokens = batch->tokens;
  const size_t count = (size_t)batch->samples[sample].tokens;
  const char *why = NULL;
  double sum = 0;
  if (!tokens) return "its scores are by token, and the tokens are not known here";
  if (!json_is_array(scores) || json_array_size(scores) != count)
    return "its scores are not a list with one for each of its ids";
  for (size_t i = 0; i < count && !why; i++) {
    double *to = &tokens->rewards[tokens->first[sample] + i];
    why = take_number(json_array_get(scores, i), to);
    sum += *to;
  }
  if (!why && fabs(sum) > (double)FLT_MAX) why = "its scores add up beyond the range of fp32, 3.4e38";
  tokens->given[sample] = true;
  *number_p = sum;
  return why;
}

static treadle_status take_line(asking *a, treadle_reward_process *p, const char *line, size_t bytes) {
  const treadle_json_source source = {.what = "command", .text = line, .count = bytes, .zeros = true};
  json_t *root = NULL;
  treadle_status status = treadle_json_read(&source, &root);
  if (status == TREADLE_NO_MEMORY) return status;
  double number = 0;
  const json_t *name = json_object_get(root, "id"), *score = json_object_get(root, "score"),
               *scores = json_object_get(root, "scores"), *pred = json_object_get(root, "pred");
  const char *id = json_string_value(name), *why = NULL;
  bool whole = id && strlen(id) == json_string_length(name); /* ids have no 0 byte */
  size_t i = whole ? find(a, p, id) : a->batch->count;
  status = TREADLE_OK;
  if (!treadle_json_is_object(root))
    why = "it is not a JSON object";
  else if (!id)
    why = "it has no text id";
  else if (i == a->batch->count)
    why = "it was given no sample with this id";
  else if (a->answered[i])
    why = "this sample has its score already";
  else if (score && scores)
    why = "it has both a score and scores";
  else if (pred && !json_is_string(pred) && !json_is_null(pred))
    why = "its pred is not a text";
  else
    why = scores ? take_numbers(a->batch, i, scores, &number) : take_number(score, &number);
  if (why) {
    status = refuse_line(a, line, bytes, why);
    goto out;
  }
  a->answered[i] = true;
  a->left--;
  p->waiting--;
  p->answered = treadle_clock_seconds();
  a->batch->scores[i] = number;
  if (json_is_string(pred))
    TRY(treadle_reward_keep(json_string_value(pred), json_string_length(pred),
                            a->batch->preds ? &a->batch->preds[i] : NULL));
out:
  json_decref(root);
  return status;
}

/* Whole lines of what it has written so far. */
static treadle_status take_lines(asking *a, treadle_reward_process *p) {
  size_t at = 0;
  const char *close;
  treadle_status status = TREADLE_OK;
  while (p->out.length > at && (close = memchr(p->out.text + at, '\n', p->out.length - at))) {
    const char *line = p->out.text + at;
    size_t bytes = (size_t)(close - line);
    at += bytes + 1;
    if (bytes) TRY(take_line(a, p, line, bytes));
  }
  if (p->out.length - at > LINE_MOST)
    TRY(treadle_fail(TREADLE_REFUSED, "command '%s': wrote a line of more than %d bytes",
                     treadle_text_shown(a->c->all.text), LINE_MOST));
  memmove(p->out.text, p->out.text + at, p->out.length - at);
  p->out.length -= at;
out:
  return status;
}

static treadle_status read_some(asking *a, treadle_reward_process *p) {
  char piece[PIECE];
  ssize_t got = recv(p->fd, piece, sizeof piece, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return TREADLE_OK;
  p->closed = got <= 0; /* or it has ended without reading all: ECONNRESET */
  if (p->closed) return TREADLE_OK;
  treadle_builder_add_bytes(&p->out, piece, (size_t)got);
  if (p->out.failed) return treadle_fail(TREADLE_NO_MEMORY, "command: no memory for its answers");
  return take_lines(a, p);
}

/* Who reads no more may still have answered, or answer: what is owed is seen when its output ends. */
static void write_some(treadle_reward_process *p) {
  ssize_t put = send(p->fd, p->in + p->written, p->in_bytes - p->written, MSG_NOSIGNAL);
  if (put > 0)
    p->written += (size_t)put;
  else if (put < 0 && errno != EAGAIN && errno != EINTR)
    p->written = p->in_bytes;
}

static treadle_status check_time(const asking *a, const treadle_reward_process *p) {
  if (!p->waiting || treadle_clock_seconds() - p->answered < a->c->timeout) return TREADLE_OK;
  return treadle_fail(TREADLE_TIMEOUT, "command '%s': answered nothing for %g s, with %s to answer",
                      treadle_text_shown(a->c->all.text), a->c->timeout,
                      treadle_text_of_count((int64_t)p->waiting, "sample"));
}

static treadle_status turn(asking *a) {
  struct pollfd *fds = a->c->fds;
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < a->c->all.count; i++) {
    const treadle_reward_process *p = &a->c->all.items[i];
    fds[i] = (struct pollfd){.fd = p->closed ? -1 : p->fd, .events = POLLIN};
    if (p->written < p->in_bytes) fds[i].events |= POLLOUT;
  }
  if (poll(fds, (nfds_t)a->c->all.count, TURN_MS) < 0 && errno != EINTR)
    return treadle_fail(TREADLE_SYSTEM, "command: poll: %s", strerror(errno));
  for (int i = 0; i < a->c->all.count; i++) {
    treadle_reward_process *p = &a->c->all.items[i];
    if (fds[i].revents & POLLOUT) write_some(p);
    if (fds[i].revents & (POLLIN | POLLHUP | POLLERR)) TRY(read_some(a, p));
    if (p->closed && p->waiting) TRY(treadle_reward_process_say_end(&a->c->all, p));
    TRY(check_time(a, p));
  }
  if (a->batch->stops && atomic_load(a->batch->stops))
    status = treadle_fail(TREADLE_CANCELLED, "command: nobody waits for it");
out:
  return status;
}

static treadle_status check_ids(const treadle_reward_batch *b) {
  for (size_t i = 0; i < b->count; i++)
    if (!b->samples[i].id) REFUSE("sample %zu: command needs its id", i);
  return TREADLE_OK;
}

static treadle_status score(void *state, const treadle_reward_batch *batch) {
  command *c = state;
  asking a = {.c = c, .batch = batch, .left = batch->count};
  treadle_status status;
  TRY(check_ids(batch));
  a.answered = treadle_alloc_array(batch->count + 1, sizeof *a.answered);
  if (!a.answered) TRY(treadle_fail(TREADLE_NO_MEMORY, "command: no memory for %zu samples", batch->count));
  memset(a.answered, 0, (batch->count + 1) * sizeof *a.answered);
  if (!c->all.keeper.pid) TRY(treadle_reward_processes_start(&c->all));
  for (int i = 0; i < c->all.count; i++) TRY(give_out(&a, i));
  while (a.left) TRY(turn(&a));
out:
  treadle_free(a.answered);
  if (status) treadle_reward_processes_end(&c->all, true);
  return status;
}

/* ---- Its life ------------------------------------------------------------------------------------------------ */

static void release(void *state) {
  command *c = state;
  if (c->all.count) treadle_reward_processes_end(&c->all, false);
  treadle_free(c->all.items);
  treadle_free(c->all.text);
  treadle_free(c->fds);
  treadle_free(c);
}

static treadle_status check_files(int count) {
  struct rlimit most;
  if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == RLIM_INFINITY ||
      most.rlim_cur >= (rlim_t)count + FILES_BESIDE)
    return TREADLE_OK;
  REFUSE("reward 'command': %d processes need %d open files, and the limit is %llu (ulimit -n)", count,
         count + FILES_BESIDE, (unsigned long long)most.rlim_cur);
}

static treadle_status make(const treadle_reward_options *options, command **c_p) {
  const size_t count = options->parallel ? (size_t)options->parallel : 1,
               length = strlen(options->command) + 1;
  command *c = *c_p = treadle_alloc(sizeof *c);
  if (c) c->all.text = treadle_alloc_array(length, 1);
  if (c) c->all.items = treadle_alloc_array(count, sizeof *c->all.items);
  if (c) c->fds = treadle_alloc_array(count, sizeof *c->fds);
  if (!c || !c->all.text || !c->all.items || !c->fds)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for a reward");
  memcpy(c->all.text, options->command, length);
  c->timeout = options->timeout_seconds > 0 ? options->timeout_seconds : 60;
  c->all.count = (int)count;
  c->all.keeper.fd = -1;
  for (int i = 0; i < c->all.count; i++) c->all.items[i].fd = -1;
  return TREADLE_OK;
}

static treadle_status create(const treadle_reward_options *options, const char *argument, void **state_p) {
  command *c = NULL;
  treadle_status status;
  (void)argument;
  if (!options->command || !*options->command) REFUSE("reward 'command': there is no command to run");
  TRY(check_files(options->parallel));
  TRY(make(options, &c));
  TRY(treadle_reward_processes_start(&c->all));
  *state_p = c;
  c = NULL;
out:
  if (c) release(c);
  return status;
}

const treadle_reward_rule treadle_reward_command = {
    .name = "command",
    .help = "the score that a program writes for the sample (docs/rewards.md)",
    .judges_texts = true,
    .create = create,
    .release = release,
    .score = score};
