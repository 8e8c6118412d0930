/* The book of a step: a flag for each column and row that is ready, and for each consumer and row that it has taken. */
#include "base/alloc.h"
#include "base/argument.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/utf8.h"
#include "treadle_control.h"

#include <stdlib.h>
#include <string.h>

/* Names, each with a flag for each row. */
typedef struct flags {
  char **names;
  bool *set; /* [count][rows] */
  size_t count;
} flags;

struct treadle_dock {
  int64_t rows, group;
  flags ready, taken;
  bool *chosen; /* [rows] of the ask at hand */
};

enum { NAMES = 1024, RANKS_MOST = 1 << 16 }; /* NAMES: the most columns, and consumers */

/* ---- Names ---------------------------------------------------------------------------------------------------- */

static void release(flags *f) {
  for (size_t i = 0; f->names && i < f->count; i++) free(f->names[i]);
  treadle_free(f->names);
  treadle_free(f->set);
  *f = (flags){0};
}

static treadle_status check_names(const char *what, const char *const *names, size_t count) {
  if (count < 1 || count > NAMES) REFUSE("a dock has %zu %ss: 1 to %d", count, what, NAMES);
  if (!names) return treadle_refuse_null("treadle_dock_create", what);
  for (size_t i = 0; i < count; i++) {
    if (!names[i] || !*names[i]) REFUSE("%s %zu of a dock has no name", what, i);
    for (size_t j = 0; j < i; j++)
      if (!strcmp(names[i], names[j]))
        REFUSE("a dock has %s '%s' twice", what, treadle_text_shown(names[i]));
  }
  return TREADLE_OK;
}

static treadle_status name(flags *f, const char *what, const char *const *names, size_t count,
                           int64_t rows) {
  treadle_status status;
  TRY(check_names(what, names, count));
  f->set = treadle_alloc_array(count * (size_t)rows, sizeof *f->set);
  f->names = treadle_alloc_array(count, sizeof *f->names);
  if (!f->set || !f->names)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a dock of %lld rows", (long long)rows));
  for (; f->count < count; f->count++)
    if (!(f->names[f->count] = strdup(names[f->count])))
      TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the names of a dock"));
out:
  return status;
}

/* Its flags [rows]. NULL: it is not there. */
static bool *flags_of(const treadle_dock *dock, const flags *f, const char *wanted) {
  for (size_t i = 0; wanted && i < f->count; i++)
    if (!strcmp(f->names[i], wanted)) return f->set + i * (size_t)dock->rows;
  return NULL;
}

/* The same, refused where it is not there. */
static treadle_status find(const treadle_dock *dock, const flags *f, const char *what, const char *wanted,
                           bool **at_p) {
  treadle_builder all = {0};
  *at_p = flags_of(dock, f, wanted);
  if (*at_p) return TREADLE_OK;
  for (size_t i = 0; i < f->count; i++) treadle_builder_add(&all, "%s'%s'", i ? ", " : "", f->names[i]);
  const treadle_status status =
      treadle_fail(TREADLE_REFUSED, "the dock has no %s '%s'; it has %s", what,
                   wanted ? treadle_text_shown(wanted) : "", all.failed ? "others" : all.text);
  treadle_builder_release(&all);
  return status;
}

/* ---- The book --------------------------------------------------------------------------------------------------- */

treadle_status treadle_dock_create(const treadle_dock_spec *spec, treadle_dock **dock_p) {
  treadle_dock_spec s;
  treadle_dock *dock = NULL;
  treadle_status status;
  TREADLE_NEED(dock_p);
  *dock_p = NULL;
  TREADLE_NEED(spec);
  TRY(TREADLE_TAKE(spec, &s));
  if (!s.group) s.group = 1;
  if (s.rows < 1 || s.rows > TREADLE_MAX_ROWS)
    REFUSE("a dock of %lld rows: 1 to %lld", (long long)s.rows, (long long)TREADLE_MAX_ROWS);
  if (s.group < 1 || s.rows % s.group)
    REFUSE("groups of %lld rows do not divide the %lld rows of a dock", (long long)s.group,
           (long long)s.rows);
  dock = treadle_alloc(sizeof *dock);
  if (!dock || !(dock->chosen = treadle_alloc_array((size_t)s.rows, sizeof *dock->chosen)))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a dock of %lld rows", (long long)s.rows));
  dock->rows = s.rows;
  dock->group = s.group;
  TRY(name(&dock->ready, "column", s.columns, s.column_count, s.rows));
  TRY(name(&dock->taken, "consumer", s.consumers, s.consumer_count, s.rows));
  treadle_dock_clear(dock);
  *dock_p = dock;
  dock = NULL;
out:
  treadle_dock_destroy(dock);
  return status;
}

void treadle_dock_destroy(treadle_dock *dock) {
  if (!dock) return;
  release(&dock->ready);
  release(&dock->taken);
  treadle_free(dock->chosen);
  treadle_free(dock);
}

static void clear(flags *f, int64_t rows) { memset(f->set, 0, f->count * (size_t)rows * sizeof *f->set); }

void treadle_dock_clear(treadle_dock *dock) {
  TREADLE_NEED_ONLY(dock);
  clear(&dock->ready, dock->rows);
  clear(&dock->taken, dock->rows);
}

treadle_status treadle_dock_put(treadle_dock *dock, const char *const *columns, size_t column_count,
                                const int64_t *rows, size_t row_count) {
  bool *at;
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(dock);
  TREADLE_NEED(columns);
  if (row_count) TREADLE_NEED(rows);
  if (column_count > NAMES) REFUSE("%zu columns; at most %d", column_count, NAMES);
  if (row_count > TREADLE_MAX_ROWS)
    REFUSE("%zu rows; at most %lld", row_count, (long long)TREADLE_MAX_ROWS);
  for (size_t c = 0; c < column_count; c++) TRY(find(dock, &dock->ready, "column", columns[c], &at));
  for (size_t i = 0; i < row_count; i++)
    if (rows[i] < 0 || rows[i] >= dock->rows)
      REFUSE("row %lld is not of the dock, which has rows 0 to %lld", (long long)rows[i],
             (long long)dock->rows - 1);
  for (size_t c = 0; c < column_count; c++) {
    TRY(find(dock, &dock->ready, "column", columns[c], &at));
    for (size_t i = 0; i < row_count; i++) at[rows[i]] = true;
  }
out:
  return status;
}

/* ---- Taking ------------------------------------------------------------------------------------------------------- */

static treadle_status check_ask(const treadle_dock *dock, const treadle_dock_request *a) {
  if (a->count < 0 || a->dp_size < 0)
    REFUSE("%lld rows, as a multiple of %lld: numbers from 0", (long long)a->count, (long long)a->dp_size);
  if (a->dp_size > RANKS_MOST) REFUSE("dp_size is %lld; at most %d", (long long)a->dp_size, RANKS_MOST);
  if (a->column_count < 1 || a->column_count > NAMES)
    REFUSE("rows with %zu columns: 1 to %d", a->column_count, NAMES);
  if (a->count && dock->rows % a->count)
    REFUSE("%lld rows at a time do not divide the %lld rows of the dock", (long long)a->count,
           (long long)dock->rows);
  if (a->groups && a->count % dock->group)
    REFUSE("%lld rows at a time are not of whole groups, which have %lld rows", (long long)a->count,
           (long long)dock->group);
  if (a->dp_size && !a->pads && a->count % a->dp_size)
    REFUSE("%lld rows at a time do not divide by dp_size %lld, and are not padded", (long long)a->count,
           (long long)a->dp_size);
  return TREADLE_OK;
}

/* Rows that the consumer may take: dock->chosen. */
static treadle_status choose(treadle_dock *dock, const treadle_dock_request *a, const bool *taken) {
  bool *ready, *chosen = dock->chosen;
  treadle_status status = TREADLE_OK;
  for (int64_t r = 0; r < dock->rows; r++) chosen[r] = !taken[r];
  for (size_t c = 0; c < a->column_count; c++) {
    TRY(find(dock, &dock->ready, "column", a->columns[c], &ready));
    for (int64_t r = 0; r < dock->rows; r++) chosen[r] = chosen[r] && ready[r];
  }
  for (int64_t first = 0; a->groups && first < dock->rows; first += dock->group) {
    bool whole = true;
    for (int64_t i = 0; i < dock->group; i++) whole = whole && chosen[first + i];
    for (int64_t i = 0; i < dock->group; i++) chosen[first + i] = whole;
  }
  for (int64_t r = 0, waits = 0; a->in_order && r < dock->rows; r++) {
    waits = waits || (!chosen[r] && !taken[r]);
    chosen[r] = chosen[r] && !waits;
  }
out:
  return status;
}

/* How many of `there` rows are taken. */
static int64_t number_of(const treadle_dock *dock, const treadle_dock_request *a, int64_t there) {
  int64_t number = a->count ? a->count : there;
  if (there < number) return a->pads ? there : 0;
  while (!a->pads && ((a->dp_size && number % a->dp_size) || (a->groups && number % dock->group))) number--;
  return number;
}

treadle_status treadle_dock_take(treadle_dock *dock, const treadle_dock_request *ask, int64_t *rows,
                                 size_t *count_p) {
  treadle_dock_request a;
  bool *taken;
  int64_t there = 0;
  size_t count = 0;
  treadle_status status;
  TREADLE_NEED(count_p);
  *count_p = 0;
  TREADLE_NEED(dock);
  TREADLE_NEED(ask);
  TREADLE_NEED(rows);
  TRY(TREADLE_TAKE(ask, &a));
  if (!a.columns) return treadle_refuse_null(__func__, "columns");
  TRY(check_ask(dock, &a));
  TRY(find(dock, &dock->taken, "consumer", a.consumer, &taken));
  TRY(choose(dock, &a, taken));
  for (int64_t r = 0; r < dock->rows; r++) there += dock->chosen[r];
  there = number_of(dock, &a, there);
  for (int64_t r = 0; r < dock->rows && (int64_t)count < there; r++) {
    if (!dock->chosen[r]) continue;
    taken[r] = true;
    rows[count++] = r;
  }
  while (a.pads && a.dp_size && count % (size_t)a.dp_size) rows[count++] = TREADLE_DOCK_PADDING;
  *count_p = count;
out:
  return status;
}

static int64_t count_set(const treadle_dock *dock, const flags *f, const char *wanted) {
  const bool *at = flags_of(dock, f, wanted);
  int64_t count = 0;
  for (int64_t r = 0; at && r < dock->rows; r++) count += at[r];
  return count;
}

bool treadle_dock_all_consumed(const treadle_dock *dock, const char *consumer) {
  TREADLE_NEED_OR(dock, false);
  TREADLE_NEED_OR(consumer, false);
  return count_set(dock, &dock->taken, consumer) == dock->rows;
}

int64_t treadle_dock_ready(const treadle_dock *dock, const char *column) {
  TREADLE_NEED_OR(dock, 0);
  TREADLE_NEED_OR(column, 0);
  return count_set(dock, &dock->ready, column);
}
