/* What a rank does when it is called. */
#include "control/crew.h"

#include "base/alloc.h"
#include "base/argument.h"

#include <string.h>

treadle_endpoint_letter *treadle_crew_next(treadle_crew *crew) {
  treadle_endpoint_letter *letter = crew->first;
  if (!letter) return NULL;
  crew->first = letter->next;
  if (!crew->first) crew->last = &crew->first;
  if (letter->head.frame.type == TREADLE_ENDPOINT_CALL) crew->running = letter->head.number;
  return letter;
}

/* ---- Workers of this rank ---- */

static treadle_crew_member *find_member(const treadle_crew *crew, int64_t number) {
  for (size_t i = 0; i < crew->members.count; i++)
    if (crew->members.items[i]->number == number) return crew->members.items[i];
  return NULL;
}

const treadle_worker_class *treadle_crew_class(const treadle_crew *crew, const char *name) {
  for (size_t i = 0; i < crew->class_count; i++)
    if (strcmp(crew->classes[i].name, name) == 0) return &crew->classes[i];
  return NULL;
}

const treadle_class_method *treadle_class_find(const treadle_worker_class *class, const char *name) {
  for (size_t i = 0; i < class->method_count; i++)
    if (strcmp(class->methods[i].name, name) == 0) return &class->methods[i];
  return NULL;
}

static void drop(treadle_crew_member *member) {
  treadle_group_close(member->group);
  treadle_meshes_destroy(member->meshes);
  treadle_free(member);
}

static void end_member(treadle_crew_member *member) {
  if (member->class->destroy) member->class->destroy(member->worker);
  drop(member);
}

void treadle_crew_drop_members(treadle_crew *crew) {
  while (crew->members.count) end_member(crew->members.items[--crew->members.count]);
  treadle_array_release(&crew->members);
}

/* The group of its workers, as the controller says. */
static treadle_status meet(treadle_crew *crew, treadle_message *m, treadle_group **group_p) {
  treadle_part part = {.timeout_seconds = crew->group->timeout_seconds, .rank = -1};
  const void *ranks, *bytes;
  int32_t *nodes = NULL;
  int64_t size;
  size_t length;
  treadle_status status;
  TRY(treadle_message_int(m, "number of workers", &size));
  if (size < 1 || size > crew->group->size)
    TRY(treadle_fail(TREADLE_PEER, "%lld workers on %d ranks", (long long)size, crew->group->size));
  part.size = (int)size;
  TRY(treadle_message_array(m, "ranks", sizeof(int32_t), (size_t)size, &ranks));
  TRY(treadle_message_array(m, "name", sizeof part.name, 1, &bytes));
  memcpy(part.name, bytes, sizeof part.name - 1);
  TRY(treadle_message_bytes(m, "address", &bytes, &length));
  if (length && length <= sizeof part.address) memcpy(part.address, bytes, length - 1);
  nodes = treadle_alloc_array((size_t)size, sizeof *nodes);
  if (!nodes) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %lld workers", (long long)size));
  for (int i = 0; i < part.size; i++) {
    const int32_t rank = ((const int32_t *)ranks)[i];
    nodes[i] = treadle_group_node(crew->group, rank);
    if (rank == crew->group->rank) part.rank = i;
  }
  if (part.rank < 0)
    TRY(treadle_fail(TREADLE_PEER, "rank %d is none of the ranks of these workers", crew->group->rank));
  part.nodes = nodes;
  TRY(treadle_part_meet(crew->group, &part, group_p));
out:
  treadle_free(nodes);
  return status;
}

static treadle_status find_class(const treadle_crew *crew, const char *name,
                                 const treadle_worker_class **class_p) {
  *class_p = treadle_crew_class(crew, name);
  if (!*class_p) REFUSE("rank %d has no class '%s'", crew->group->rank, name);
  return TREADLE_OK;
}

static treadle_status create(treadle_crew *crew, treadle_message *m, const treadle_call_head *head,
                             treadle_crew_member *member) {
  treadle_batch *options = NULL;
  treadle_status status;
  TRY(find_class(crew, head->name, &member->class));
  TRY(meet(crew, m, &member->group));
  TRY(treadle_call_read_batch(m, &options));
  TRY(treadle_meshes_create(treadle_group_size(member->group), &member->meshes));
  member->number = head->workers;
  member->place = (treadle_worker_place){.struct_size = sizeof member->place,
                                         .group = member->group,
                                         .rank = treadle_group_rank(member->group),
                                         .size = treadle_group_size(member->group),
                                         .context = member->class->context,
                                         .meshes = member->meshes};
  if (member->class->create) status = member->class->create(&member->place, options, &member->worker);
  if (status && !treadle_status_is_failure(status))
    status = treadle_fail(TREADLE_STATE, "it gives %d, which is not a status", (int)status);
out:
  treadle_batch_destroy(options);
  return status;
}

static treadle_status make_member(treadle_crew *crew, treadle_message *m, const treadle_call_head *head,
                                  treadle_batch **made_p) {
  treadle_crew_member *member = treadle_alloc(sizeof *member);
  treadle_status status;
  if (!member) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a worker");
  status = create(crew, m, head, member);
  if (status) {
    drop(member);
    return status;
  }
  status = treadle_array_push(&crew->members, member);
  if (status) {
    end_member(member);
    return treadle_fail(status, "no memory for a worker");
  }
  return treadle_call_say_meshes(member->meshes, member->place.rank, made_p);
}

static treadle_status drop_member(treadle_crew *crew, int64_t number) {
  for (size_t i = 0; i < crew->members.count; i++)
    if (crew->members.items[i]->number == number) {
      end_member(crew->members.items[i]);
      crew->members.items[i] = crew->members.items[--crew->members.count];
      break;
    }
  return TREADLE_OK;
}

/* ---- Methods ---- */

/* What a call has made here. */
typedef struct worker_output {
  treadle_batch *batch;
  int64_t padding; /* that the controller does not know of: its last rows */
  bool rows_stay;
} worker_output;

/* Nothing says which of its rows are padding, if they are not as many as it was given. */
static treadle_status check_padding(const treadle_batch *in, const worker_output *made_p, bool collected) {
  const int64_t given = treadle_batch_rows(in),
                rows = made_p->batch ? treadle_batch_rows(made_p->batch) : 0;
  if (made_p->padding && collected && rows != given)
    REFUSE("it makes %lld rows of %lld, %lld of which are padding", (long long)rows, (long long)given,
           (long long)made_p->padding);
  return TREADLE_OK;
}

static treadle_status run_method(treadle_crew *crew, treadle_message *m, const treadle_call_head *head,
                                 worker_output *made_p) {
  const treadle_crew_member *member = find_member(crew, head->workers);
  treadle_batch *in = NULL;
  bool collected = true;
  treadle_status status;
  if (!member) REFUSE("rank %d has no worker of group %lld", crew->group->rank, (long long)head->workers);
  const treadle_class_method *method = treadle_class_find(member->class, head->name);
  if (!method) REFUSE("class '%s' has no method '%s'", member->class->name, head->name);
  made_p->rows_stay = method->rows_stay;
  if (head->kind == TREADLE_CALL_LATE)
    TRY(treadle_crew_late_input(crew, m, method, &in, &made_p->padding, &collected));
  else
    TRY(treadle_crew_input(crew, m, &in));
  status = method->function(member->worker, in, &made_p->batch);
  if (status && !treadle_status_is_failure(status))
    status = treadle_fail(TREADLE_STATE, "it gives %d, which is not a status", (int)status);
  if (!status) status = check_padding(in, made_p, collected);
out:
  treadle_batch_destroy(in);
  return status;
}

static treadle_status say_address(const treadle_crew *crew, treadle_batch **made_p) {
  char address[TREADLE_PART_ADDRESS], json[TREADLE_PART_ADDRESS + 2];
  treadle_status status;
  TRY(treadle_part_address(crew->group, address));
  snprintf(json, sizeof json, "\"%s\"", address);
  TRY(treadle_batch_create(0, made_p));
  TRY(treadle_batch_set_meta(*made_p, "address", json));
out:
  return status;
}

static treadle_status run(treadle_crew *crew, treadle_message *m, worker_output *made_p) {
  treadle_call_head head;
  treadle_status status;
  TRY(treadle_call_read_head(m, &head));
  switch (head.kind) {
  case TREADLE_CALL_ADDRESS: TRY(say_address(crew, &made_p->batch)); break;
  case TREADLE_CALL_CREATE: TRY(make_member(crew, m, &head, &made_p->batch)); break;
  case TREADLE_CALL_METHOD:
  case TREADLE_CALL_LATE: TRY(run_method(crew, m, &head, made_p)); break;
  case TREADLE_CALL_DESTROY: TRY(drop_member(crew, head.workers)); break;
  }
  if (!made_p->batch) TRY(treadle_batch_create(0, &made_p->batch));
out:
  return status;
}

void treadle_crew_run(treadle_crew *crew, treadle_endpoint_letter *call) {
  treadle_message m = treadle_crew_read(call), answer = {0};
  treadle_endpoint_head head = {.frame.type = TREADLE_ENDPOINT_ANSWER, .number = call->head.number};
  worker_output made = {0};
  treadle_status status = run(crew, &m, &made);
  if (!status) treadle_call_put_answer(&answer, made.batch, made.rows_stay);
  if (!status) status = treadle_outputs_put(crew, call->head.number, made.batch, made.padding);
  if (status)
    treadle_batch_destroy(made.batch);
  else if ((status = treadle_crew_send(crew, call->head.rank, head, &answer)))
    treadle_outputs_release(crew, call->head.number); /* the call has failed */
  head.status = (int32_t)status;
  if (status) treadle_outputs_fail(crew, call->head.number, status);
  if (status)
    (void)treadle_endpoint_send_text(crew->endpoint, call->head.rank, head, treadle_error_message());
  treadle_outputs_unpark(crew, call->head.number);
  treadle_message_release(&answer);
}

/* ---- Serving ---- */

static treadle_status wait_for_call(treadle_crew *crew, treadle_endpoint_letter **letter_p) {
  treadle_status status = TREADLE_OK;
  pthread_mutex_lock(&crew->lock);
  while (!status && !(*letter_p = treadle_crew_next(crew))) {
    status = treadle_crew_lost(crew, 0);
    if (!status) status = treadle_crew_nap(crew, "calls of the controller");
  }
  pthread_mutex_unlock(&crew->lock);
  return status;
}

static treadle_status end_of(const treadle_endpoint_letter *letter) {
  const treadle_status status = (treadle_status)letter->head.status;
  if (status) (void)treadle_fail(status, "%.*s", (int)letter->length, letter->bytes);
  return status;
}

treadle_status treadle_crew_serve(treadle_crew *crew) {
  treadle_endpoint_letter *letter;
  treadle_status status;
  TREADLE_NEED(crew);
  if (crew->group->rank == 0)
    return treadle_fail(TREADLE_STATE, "treadle_crew_serve: rank 0 is the controller, which nobody calls");
  for (bool ends = false; !ends;) {
    TRY(wait_for_call(crew, &letter));
    ends = letter->head.frame.type == TREADLE_ENDPOINT_END;
    if (ends)
      status = end_of(letter);
    else
      treadle_crew_run(crew, letter);
    treadle_endpoint_drop(letter);
  }
out:
  return status;
}
