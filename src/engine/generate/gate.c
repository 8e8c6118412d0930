#include "generate/gate.h"

#include "group/group.h"
#include "pass/pass.h"

#include <time.h>

static const long look_every = 20 * 1000 * 1000; /* nanoseconds */

void treadle_gate_init(treadle_gate *gate) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&gate->lock, NULL);
  pthread_cond_init(&gate->changed, &attributes);
  pthread_condattr_destroy(&attributes);
}

void treadle_gate_release(treadle_gate *gate) {
  pthread_cond_destroy(&gate->changed);
  pthread_mutex_destroy(&gate->lock);
}

/* ---- Who takes the weights away ---- */

/* Under the lock. */
static bool is_stepper(const treadle_gate *gate) {
  return gate->is_held && pthread_equal(gate->stepper, pthread_self());
}

treadle_status treadle_gate_close(treadle_gate *gate, bool for_good) {
  treadle_status status = TREADLE_OK;
  pthread_mutex_lock(&gate->lock);
  if (gate->is_stepping && is_stepper(gate)) {
    status =
        treadle_fail(TREADLE_STATE, "the engine's weights are in use: this is a callback within a step");
  } else {
    gate->closing++;
    while (gate->is_held && !is_stepper(gate)) pthread_cond_wait(&gate->changed, &gate->lock);
    if (gate->is_open && gate->call.restart) gate->call.restart(gate->call.context);
    gate->closings += gate->is_open;
    gate->is_open = false;
    gate->is_gone = gate->is_gone || for_good;
    gate->closing--;
  }
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->lock);
  return status;
}

void treadle_gate_open(treadle_gate *gate) {
  pthread_mutex_lock(&gate->lock);
  gate->is_open = true;
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->lock);
}

bool treadle_gate_is_open(treadle_gate *gate) {
  pthread_mutex_lock(&gate->lock);
  bool is_open = gate->is_open;
  pthread_mutex_unlock(&gate->lock);
  return is_open;
}

/* ---- Who computes ---- */

void treadle_gate_begin(treadle_gate *gate, const treadle_gate_call *call) {
  pthread_mutex_lock(&gate->lock);
  gate->call = *call;
  gate->is_gone = false;
  pthread_mutex_unlock(&gate->lock);
}

void treadle_gate_end(treadle_gate *gate) {
  pthread_mutex_lock(&gate->lock);
  gate->call = (treadle_gate_call){0};
  gate->is_stepping = gate->is_held = false;
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->lock);
}

void treadle_gate_leave(treadle_gate *gate) {
  pthread_mutex_lock(&gate->lock);
  gate->is_stepping = false;
  gate->is_held = gate->board != NULL;
  pthread_cond_broadcast(&gate->changed);
  pthread_mutex_unlock(&gate->lock);
}

/* Under the lock, which is not held meanwhile: waits for a change, or a while. */
static treadle_status wait_a_while(treadle_gate *gate) {
  struct timespec until;
  treadle_status status = TREADLE_OK;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += look_every;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  if (pthread_cond_timedwait(&gate->changed, &gate->lock, &until) == 0) return TREADLE_OK;
  pthread_mutex_unlock(&gate->lock);
  for (int i = 0; gate->board && i < gate->count && status == TREADLE_OK; i++)
    status = treadle_group_look(treadle_board_group(gate->board), gate->ranks[i], "wait for weights");
  if (status == TREADLE_OK && gate->call.idle) status = gate->call.idle(gate->call.context);
  pthread_mutex_lock(&gate->lock);
  return status;
}

/* Under the lock. */
static treadle_status check_gone(const treadle_gate *gate) {
  return gate->is_gone
             ? treadle_fail(TREADLE_STATE, "the switch that the engine's weights are of was destroyed")
             : TREADLE_OK;
}

/* This rank alone: until the gate is open. */
static treadle_status enter_alone(treadle_gate *gate) {
  treadle_status status;
  pthread_mutex_lock(&gate->lock);
  status = check_gone(gate);
  while (status == TREADLE_OK && (!gate->is_open || gate->closing)) {
    status = wait_a_while(gate);
    if (status == TREADLE_OK) status = check_gone(gate);
  }
  gate->is_held = gate->is_stepping = status == TREADLE_OK;
  gate->stepper = pthread_self();
  pthread_mutex_unlock(&gate->lock);
  return status;
}

/* ---- Several ranks ---------------------------------------------------------------------------------- */

static int counter_of(uint64_t turn) { return TREADLE_ENGINE_GATES + (int)(turn % 2); }

/* What a rank says in a turn. */
typedef struct word {
  bool goes;
  uint64_t closings; /* how often its gate was closed by then */
} word;

/* A rank that goes holds its gate open until all have said what they do. */
static treadle_status choose(treadle_gate *gate, word *mine_p) {
  treadle_status status;
  pthread_mutex_lock(&gate->lock);
  status = check_gone(gate);
  *mine_p = (word){.goes = gate->is_open && !gate->closing, .closings = gate->closings};
  gate->is_held = gate->is_stepping = status == TREADLE_OK && gate->is_open;
  gate->stepper = pthread_self();
  pthread_mutex_unlock(&gate->lock);
  return status;
}

/* *go_p: all ranks go. A rank is at most one turn ahead of another, so two counters will do. */
static treadle_status agree(treadle_gate *gate, const word *mine, bool *go_p) {
  treadle_status status = TREADLE_OK;
  uint64_t turn = ++gate->turns;
  *go_p = true;
  treadle_board_signal(gate->board, counter_of(turn), 2 * turn + !mine->goes);
  for (int i = 0; i < gate->count; i++) {
    TRY(treadle_board_wait(gate->board, gate->ranks[i], counter_of(turn), 2 * turn, "begin of a step"));
    if (treadle_board_value(gate->board, gate->ranks[i], counter_of(turn)) != 2 * turn) *go_p = false;
  }
out:
  return status;
}

/* Has another rank begun the next turn? */
static bool others_go_on(const treadle_gate *gate) {
  uint64_t turn = gate->turns + 1;
  for (int i = 0; i < gate->count; i++)
    if (treadle_board_value(gate->board, gate->ranks[i], counter_of(turn)) >= 2 * turn) return true;
  return false;
}

/* Under the lock: was the gate closed, and is it open again? A rank that went, and stopped for others, will be closed, too. */
static bool is_ready(const treadle_gate *gate, const word *mine) {
  bool was_closed = gate->closings != mine->closings || (!mine->goes && !gate->closing);
  return gate->is_open && was_closed;
}

/* A rank does not go. No turn is begun before there is hope for it; but who has begun one gets an answer at once. */
static treadle_status stop(treadle_gate *gate, const word *mine) {
  treadle_status status;
  pthread_mutex_lock(&gate->lock);
  gate->is_stepping = gate->is_held = false;
  pthread_cond_broadcast(&gate->changed);
  status = check_gone(gate);
  while (status == TREADLE_OK && !is_ready(gate, mine) && !others_go_on(gate)) {
    status = wait_a_while(gate);
    if (status == TREADLE_OK) status = check_gone(gate);
  }
  pthread_mutex_unlock(&gate->lock);
  return status;
}

treadle_status treadle_gate_enter(treadle_gate *gate) {
  treadle_status status;
  word mine;
  bool go;
  if (!gate->board) return enter_alone(gate);
  for (;;) {
    TRY(choose(gate, &mine));
    TRY(agree(gate, &mine, &go));
    if (go) break;
    TRY(stop(gate, &mine));
  }
out:
  return status;
}
