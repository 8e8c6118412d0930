/* A forward pass: rows of tokens in, rows of logits out. All ranks of a replica run it together: those of a group (replica.h) with the
 * same rows, all groups at once, each with its own rows or none.
 *
 * A row is a token at a position of a sequence. Rows of several sequences go through the layers together; what a row becomes depends on
 * its own sequence alone, to the bit. Keys and values of the rows are written into the cache, so that later rows of the sequence, in
 * this pass or another, find them there.
 *
 * The weights are read in the window where they lie. Activations and packed copies of weights lie in memory that the caller gives; bind
 * makes the copies. Bind and run take no memory. */
#ifndef TREADLE_PASS_PASS_H
#define TREADLE_PASS_PASS_H

#include "base/team.h"
#include "group/board.h"
#include "pass/replica.h"
#include "pass/transformer.h"

typedef struct treadle_pass treadle_pass;

typedef struct treadle_pass_options {
  const char *kernels; /* of treadle_gemm_choose */
  treadle_dtype dtype; /* in which it computes: fp32 or bf16 */
  int32_t threads;
  bool spin;              /* of treadle_team_create */
  bool fast;              /* a rank that has the whole model may add in an order of its own */
  int64_t most_rows;      /* of a step */
  int64_t most_logits;    /* of one call of treadle_pass_logits */
  int32_t block_tokens;   /* of the cache */
  int64_t most_positions; /* of a sequence */
  bool records;           /* the experts that tokens choose, in the blocks of the cache */
  bool layer_by_layer;    /* the window has one layer's weights at a time: bind makes no copies of them */
  int32_t context_ranks;  /* context parallel ranks, which divide the rows of a step; 0: none */
  int32_t context_index;  /* this one of them */
  int64_t most_all_rows;  /* of a step, on all of them together */
  bool backward;          /* steps go back, too: ranks bring each other gradients with their rows */
} treadle_pass_options;

/* Rows of one sequence that follow each other: `rows` rows of the step, the first at `position`. Keys and values of token t lie in block
 * table[t / block_tokens]. */
typedef struct treadle_pass_span {
  int64_t rows, position;
  const int32_t *table;
  /* This many positions before its first one lie in a block of its own, though rows of another stretch of this step, from tail_row on, have
   * them: their keys and values are written there, too. */
  int64_t tail_row, tail_count;
} treadle_pass_span;

/* Of a row, as bits. */
enum { TREADLE_PASS_COMPARED = 1, TREADLE_PASS_DIFFERS = 2 };

/* Experts that are known before rows are routed, and what becomes of the rows' own choices. A record is as treadle_pass_read_record gives it. */
typedef struct treadle_pass_given {
  const unsigned char *const *records; /* [rows] a record of each row; NULL: it has none */
  bool replays; /* rows with records go to these experts; else to those of their own choice */
  unsigned char *
      found; /* [rows] gets TREADLE_PASS_DIFFERS where the own choice of a row with a record is another one */
  unsigned char *chosen; /* [rows] records of the own choices, of this rank's layers; NULL: nobody asks */
} treadle_pass_given;

typedef struct treadle_pass_step {
  const int32_t *tokens; /* [rows] */
  int64_t rows;
  const treadle_pass_span
      *stretches; /* together all rows, in order; of context parallel ranks, those of all ranks */
  int32_t stretch_count;
  int64_t before;                    /* rows on the context parallel ranks before this one */
  const treadle_pass_given *experts; /* NULL: rows choose, and nobody asks */
} treadle_pass_step;

/* Refuses layouts that the engine does not compute in, by name; `divides_rows`: context parallel ones are taken. */
treadle_status treadle_pass_check_layout(const treadle_layout *layout, bool divides_rows);
/* Refuses a group that has not as many ranks as the layout; NULL: one rank. */
treadle_status treadle_pass_check_ranks(const treadle_layout *layout, const treadle_group *group);
/* How the making of an engine begins: all ranks make it, in one layout and with the options that this is a hash of. Collective. */
treadle_status treadle_pass_agree(treadle_group *group, const char *name, const treadle_layout *layout,
                                  uint64_t options, treadle_status status);

/* The layout, the transformer and the replica must outlive the pass. On failure *pass_p is NULL. */
treadle_status treadle_pass_create(const treadle_transformer *transformer, const treadle_layout *layout,
                                   const treadle_replica *replica, int64_t rank,
                                   const treadle_pass_options *options, treadle_pass **pass_p);
void treadle_pass_destroy(treadle_pass *pass);

/* ---- Several ranks ---- */

/* Counters of the board, which the generator has; those behind are the trainer's. */
enum {
  TREADLE_ENGINE_STEPS,    /* of its replicas (generate/collect.h) */
  TREADLE_ENGINE_MEETINGS, /* the same */
  TREADLE_ENGINE_GATES     /* two, which take turns (generate/gate.h) */
};

/* Elements that a rank brings at once. */
typedef struct treadle_pass_board {
  uint64_t within, across; /* to the ranks of its stage, to all; of its group */
  uint64_t between;        /* to the ranks of its stage in all groups; 0: there is one group */
} treadle_pass_board;

/* What this rank needs; all ranks use the largest of all. */
void treadle_pass_measure_board(const treadle_pass *pass, treadle_pass_board *board_p);
uint64_t treadle_pass_board_bytes(const treadle_pass_board *board);

/* Meets the other ranks, on a board of the layout's group that has treadle_pass_board_bytes(room) at the start of each part. Without it
 * the rank is alone. Collective; part is local, and comes before the end of the board. */
treadle_status treadle_pass_join(treadle_pass *pass, treadle_board *board, const treadle_pass_board *room);
void treadle_pass_part(treadle_pass *pass);
/* What this rank cannot do, the others learn at once. */
void treadle_pass_tell(treadle_pass *pass, treadle_status status);

/* Where all of it lies. */
typedef struct treadle_pass_windows {
  const void *weights; /* of the rank, in its layout */
  const int64_t *
      shift; /* [storage tensors of the layout] this many bytes further on each lies than the layout says; NULL: none does */
  void *cache; /* blocks */
  void *work;  /* treadle_pass_work_bytes + treadle_pass_packed_bytes, at a multiple of 64 */
} treadle_pass_windows;

/* From now on, until the next bind. Refused: memory of another device than the host. */
treadle_status treadle_pass_bind(treadle_pass *pass, const treadle_pass_windows *windows);

/* Where a pass records: bytes of a token's experts, little-endian uint16 [layers with experts, top], ascending by layer; 0: nothing is
 * recorded. */
int64_t treadle_pass_record_bytes(const treadle_pass *pass);
/* Those of the first `count` tokens of a sequence, which are computed, one behind the other. */
void treadle_pass_read_record(const treadle_pass *pass, const int32_t *table, int64_t count,
                              unsigned char *to);

/* Makes the copies of weights of all layers again, or of one layer, after the weights in the window have changed.
 * Before the first bind there are none. */
void treadle_pass_renew(treadle_pass *pass);
void treadle_pass_renew_layer(treadle_pass *pass, int32_t layer);

/* Bytes of a block of the cache on this rank, with what it records of the tokens; of activations; of copies of weights that are laid out anew. */
size_t treadle_pass_block_bytes(const treadle_pass *pass);
size_t treadle_pass_work_bytes(const treadle_pass *pass);
size_t treadle_pass_packed_bytes(const treadle_pass *pass);
const char *treadle_pass_window(const treadle_pass *pass); /* as bound */
/* The kernel that most of its products use, the same on all ranks; and all that products of this rank use: "amx, avx512". */
const char *treadle_pass_kernels(const treadle_pass *pass);
const char *treadle_pass_kernels_used(const treadle_pass *pass);

/* Its threads, which are free between two calls. */
treadle_team *treadle_pass_team(const treadle_pass *pass);

/* Before each run, with several groups: how many rows the groups of the replica have together. Where that is none, there is no run. */
treadle_status treadle_pass_count_rows(treadle_pass *pass, int64_t rows, int64_t *all_p);
/* Takes the rows of a step through all layers. A step without rows takes the other groups' through this rank's experts. */
treadle_status treadle_pass_run(treadle_pass *pass, const treadle_pass_step *step);
/* The logits of `count` rows of the last step, at most most_logits: which[i] is a row. *logits_p: [count, vocabulary], until the next
 * call. */
treadle_status treadle_pass_logits(treadle_pass *pass, const int32_t *which, int64_t count,
                                   const float **logits_p);

#endif
