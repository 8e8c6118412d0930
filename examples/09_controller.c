/* A controller of one's own: one program says what happens, and workers on other ranks do it. Samplers draw points, judges
 * say which lie in a circle, and the controller has an estimate of pi. Points go from samplers to judges; the controller
 * sends seeds and sees verdicts, and no point. Alone, it has all workers itself.
 *
 *   mpirun -n 6 example_controller
 *   example_controller */
#include <treadle_control.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void must(treadle_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", treadle_error_message());
  _exit(1); /* without MPI_Finalize: the others see that this rank is gone */
}

enum { POINTS = 100001, STEPS = 3 };

/* ---- Samplers: a row of (seed) becomes a point ---- */

/* A column of the rows of a batch, with memory for it. */
static treadle_status add_column(treadle_batch *batch, const char *name, int64_t width,
                                 treadle_column *column_p) {
  const treadle_column c = {
      .struct_size = sizeof c, .name = name, .type = TREADLE_COLUMN_INT64, .width = width};
  const treadle_status status = treadle_batch_add(batch, &c);
  *column_p = TREADLE_INIT(treadle_column);
  return status ? status : treadle_batch_column(batch, name, column_p);
}

static treadle_status draw(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  const int64_t rows = treadle_batch_rows(in);
  treadle_column seed = TREADLE_INIT(treadle_column), point;
  treadle_status status = treadle_batch_column(in, "seed", &seed);
  (void)worker;
  if (!status) status = treadle_batch_create(rows, out_p);
  if (!status) status = add_column(*out_p, "point", 2, &point);
  for (int64_t i = 0; !status && i < 2 * rows; i++) { /* splitmix64, of which 20 bits are kept */
    uint64_t z = (uint64_t)((const int64_t *)seed.data)[i / 2] * 2 + (uint64_t)(i % 2) + 1;
    z *= 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    ((int64_t *)point.data)[i] = (int64_t)(z >> 44);
  }
  return status; /* what was made on the way is the crew's, also then */
}

/* ---- Judges: with a radius that they were created with ---- */

typedef struct judge {
  int64_t radius;
} judge;

static treadle_status create_judge(const treadle_worker_place *place, const treadle_batch *options,
                                   void **worker_p) {
  const char *json = treadle_batch_meta(options, "radius");
  judge *j = malloc(sizeof *j);
  if (!j) return treadle_error_set(TREADLE_NO_MEMORY, "no memory for a judge");
  j->radius = json ? atoll(json) : 0;
  *worker_p = j;
  if (j->radius > 0) return TREADLE_OK;
  free(j);
  (void)place; /* it also has the group of all judges, for sums among them */
  return treadle_error_set(TREADLE_REFUSED, "a judge needs a radius");
}

static treadle_status judge_points(void *worker, const treadle_batch *in, treadle_batch **out_p) {
  const judge *j = worker;
  const int64_t rows = treadle_batch_rows(in);
  treadle_column point = TREADLE_INIT(treadle_column), inside;
  treadle_status status = treadle_batch_column(in, "point", &point);
  if (!status) status = treadle_batch_create(1, out_p); /* one row for all: how many, of how many */
  if (!status) status = add_column(*out_p, "inside", 2, &inside);
  for (int64_t i = 0; !status && i < rows; i++) {
    const int64_t *p = (const int64_t *)point.data + 2 * i;
    ((int64_t *)inside.data)[0] += p[0] * p[0] + p[1] * p[1] < j->radius * j->radius;
  }
  if (!status) ((int64_t *)inside.data)[1] = rows;
  return status;
}

/* ---- A dispatch mode of one's own: rows that do not divide, without padding ---- */

static treadle_status divide(void *context, int32_t workers, const treadle_dispatch_argument *arguments,
                             size_t count, treadle_row_range *by_worker) {
  (void)context;
  const int64_t rows = count ? arguments[count - 1].length : 0;
  for (int32_t w = 0; w < workers; w++)
    by_worker[w] = (treadle_row_range){rows * w / workers, rows * (w + 1) / workers};
  return TREADLE_OK;
}

static treadle_status join(void *context, const treadle_batch *const *results, int32_t workers,
                           treadle_batch **collected, int32_t *count_p) {
  (void)context;
  const treadle_status status = treadle_batch_concat(results, (size_t)workers, &collected[0]);
  *count_p = !status;
  return status;
}

static const treadle_dispatch_functions uneven = {
    .struct_size = sizeof uneven, .name = "uneven", .dispatch = divide, .collect = join};

/* ---- What all ranks know ---- */

static const treadle_class_method sampler_methods[] = {
    {.name = "draw", .function = draw, .dispatch = TREADLE_DISPATCH_CUSTOM, .functions = &uneven}};
static const treadle_class_method judge_methods[] = {
    {.name = "judge", .function = judge_points, .dispatch = TREADLE_DISPATCH_CUSTOM, .functions = &uneven}};
static const treadle_worker_class classes[] = {
    {.struct_size = sizeof *classes, .name = "sampler", .methods = sampler_methods, .method_count = 1},
    {.struct_size = sizeof *classes,
     .name = "judge",
     .methods = judge_methods,
     .method_count = 1,
     .create = create_judge,
     .destroy = free}};

/* ---- The controller ---- */

static treadle_workers *create(treadle_crew *crew, int32_t first, int32_t count, const char *class_name,
                               const treadle_batch *options) {
  int32_t *ranks = malloc((size_t)count * sizeof *ranks);
  treadle_workers *workers;
  if (!ranks) must(treadle_error_set(TREADLE_NO_MEMORY, "no memory for ranks"));
  for (int32_t i = 0; i < count; i++) ranks[i] = first + i;
  must(treadle_workers_create(crew, ranks, (size_t)count, class_name, options, &workers));
  free(ranks);
  return workers;
}

/* The second call waits until it is known how many points there are. They go from the samplers' ranks to the judges'. */
static treadle_future *start_step(treadle_workers *samplers, treadle_workers *judges, int64_t step) {
  treadle_batch *seeds;
  treadle_column seed;
  treadle_future *points, *verdicts;
  must(treadle_batch_create(POINTS, &seeds));
  must(add_column(seeds, "seed", 1, &seed));
  for (int64_t i = 0; i < POINTS; i++) ((int64_t *)seed.data)[i] = step * POINTS + i;
  const treadle_call_input of_seeds = {.struct_size = sizeof of_seeds, .batch = seeds};
  must(treadle_workers_call(samplers, "draw", &of_seeds, &points));
  const treadle_call_input of_points = {
      .struct_size = sizeof of_points, .futures = &points, .future_count = 1};
  must(treadle_workers_call(judges, "judge", &of_points, &verdicts));
  treadle_future_destroy(points); /* its rows stay until the judges have them */
  treadle_batch_destroy(seeds);
  return verdicts;
}

static void control(treadle_crew *crew, int32_t size) {
  const int32_t first = size > 1, count = size > 1 ? size - 1 : 1, half = (count + 1) / 2;
  int64_t inside = 0, all = 0;
  treadle_batch *options;
  treadle_crew_books books;
  must(treadle_batch_create(0, &options));
  must(treadle_batch_set_meta(options, "radius", "1048576"));
  treadle_workers *samplers = create(crew, first, half, "sampler", NULL);
  treadle_workers *judges = create(crew, first + count / 2, half, "judge", options);
  for (int64_t step = 0; step < STEPS; step++) {
    treadle_future *verdicts = start_step(samplers, judges, step);
    treadle_batch *taken;
    treadle_column c = TREADLE_INIT(treadle_column);
    must(treadle_future_take(verdicts, NULL, 0, &taken));
    must(treadle_batch_column(taken, "inside", &c));
    for (int64_t w = 0; w < treadle_batch_rows(taken); w++) {
      inside += ((const int64_t *)c.data)[2 * w];
      all += ((const int64_t *)c.data)[2 * w + 1];
    }
    treadle_batch_destroy(taken);
    treadle_future_destroy(verdicts);
    printf("step %d: pi is about %.4f (%lld of %lld)\n", (int)step + 1, 4.0 * (double)inside / (double)all,
           (long long)inside, (long long)all);
  }
  treadle_crew_get_books(crew, &books);
  printf("%lld calls; %lld bytes of rows went through the controller\n", (long long)books.calls,
         (long long)books.row_bytes);
  treadle_workers_destroy(judges);
  treadle_workers_destroy(samplers);
  treadle_batch_destroy(options);
  treadle_crew_end(crew, TREADLE_OK);
}

int main(int count, char **texts) {
  treadle_group *group;
  treadle_crew *crew;
  MPI_Init(&count, &texts);
  must(treadle_group_mpi(NULL, 60, &group));
  must(treadle_crew_open(group, classes, sizeof classes / sizeof *classes, NULL, &crew));
  if (treadle_group_rank(group) == 0)
    control(crew, treadle_group_size(group));
  else
    must(treadle_crew_serve(crew)); /* until the controller ends the crew */
  treadle_crew_close(crew);
  treadle_group_close(group);
  MPI_Finalize();
  return 0;
}
