/* A layout: for each rank, its pieces.
 *
 * Two questions, both answered without a table of all ranks:
 *   what has rank r?        treadle_layout_pieces
 *   who has this box?       treadle_layout_cells, and treadle_cell_* for the ranks that hold a cell
 *
 * Every type of layout (grid/grid.c: Megatron, vLLM, SGLang, Hugging Face; flat/flat_grid.c: FSDP, ZeRO, the distributed
 * optimizer; explicit.c: explicit pieces) fills the table treadle_layout_ops. A new type is one file and one row in layout.c.
 *
 * A piece is a box of one tensor and where its elements lie in the rank's window. A fill is a piece without
 * a tensor. A cell is a box of one tensor that all of its holders store in the same way; the cells of a tensor are
 * disjoint and cover it, and every rank computes the same ones. A rank may also have pieces that are in no cell
 * (a tied head that is cut in another way): these are found on that rank only.
 *
 * Ranks in this interface are ranks of the group. A layout may be held by some of them only, its owners (owners.h, on= in the
 * text); the others have no pieces, an empty window and no storage tensors, and hold no cell. The functions of this header turn a rank
 * into its number among the owners and back; the functions of the table treadle_layout_ops know owners alone, and call their numbers
 * ranks. There the rank map is applied, which turns an owner into a place of the mesh. */
#ifndef TREADLE_LAYOUT_LAYOUT_H
#define TREADLE_LAYOUT_LAYOUT_H

#include "base/nodes.h"
#include "layout/box.h"
#include "layout/mesh.h"
#include "layout/owners.h"

enum { TREADLE_STORAGE_ALIGNMENT = 64 /* bytes, of each storage tensor in a window */ };

typedef struct treadle_piece {
  int32_t tensor;  /* canonical; below 0: a fill, TREADLE_FILL_ZEROS or another one */
  int32_t storage; /* which storage tensor of the rank's window */
  treadle_dtype dtype;
  int8_t add;                       /* what is stored is the canonical value plus this */
  treadle_box box;                  /* a fill: any box of elements, which begins at 0 */
  int64_t offset;                   /* bytes from the start of the window to the element at box.start */
  int64_t stride[TREADLE_MAX_AXES]; /* bytes */
} treadle_piece;

typedef TREADLE_ARRAY(treadle_piece) treadle_pieces;

/* A holder's place of a cell, and the ranks that hold it, are computed from these few numbers. */
typedef struct treadle_cell {
  treadle_box box;
  int32_t tensor;
  treadle_dtype dtype;
  int8_t add;
  int64_t holders;      /* how many ranks hold it */
  int32_t holder_first; /* the rest belongs to the type of layout */
  int32_t holder_count;
  int64_t shard, shard_repeat;
  int64_t slot, slots; /* experts: the rank of ep, or where the slots of the expert are listed */
  const treadle_dim
      *range_over; /* flat layouts: the dimension that cuts the unit, NULL: none; and its index */
  int64_t range;
  int64_t before, weight,
      total;      /* where it comes among all of its pattern on its rank, in elements; total 0: not said */
  int64_t offset; /* bytes inside the storage tensor */
  int64_t stride[TREADLE_MAX_AXES]; /* bytes */
} treadle_cell;

typedef TREADLE_ARRAY(treadle_cell) treadle_cells;

/* One storage tensor of a window; or, where an engine has one for each of its experts, all of them: they lie at one
 * distance. Users see each: the experts of a run of such storages are listed expert by expert. */
typedef struct treadle_storage {
  int32_t rule;        /* of the type of layout */
  int32_t layer;       /* global, -1 outside */
  int32_t local_layer; /* the number in its name */
  int32_t chunk;
  int nparts;
  int32_t parts[TREADLE_MAX_PARTS]; /* canonical tensors */
  int ndim;
  int64_t shape[TREADLE_MAX_DIMS];
  treadle_dtype dtype;
  bool derived;
  int64_t offset;       /* bytes in the window */
  int64_t bytes;        /* of one, where there is one for each expert */
  int64_t slots;        /* experts on this rank, without `also`; 0 where it is not of experts */
  int64_t slot_stride;  /* bytes from one expert to the next */
  bool by_expert;       /* one for each expert */
  int64_t public_first; /* number of the first one that users see, of its run */
  int32_t run_at, run;  /* which one of the run it is, and how many there are; run 1: alone */
  uint64_t flat_place;  /* flat layouts: equal where two lie alike in units that are cut alike */
} treadle_storage;

/* How a tensor lies in the windows of a layout that has many tensors in few forms. */
typedef struct treadle_form {
  int32_t
      like; /* the first tensor that lies in each rank's window as this one does, but for where it begins */
  int32_t storage; /* its first storage tensor */
  int64_t at;      /* where that begins, in bytes */
  int64_t
      experts; /* this many experts with a storage tensor each, cut alike and at one distance; 1: not so */
  int64_t distance; /* bytes */
} treadle_form;

/* Ranks are numbers of owners here: 0 .. owners.count - 1. */
typedef struct treadle_layout_ops {
  /* Two cells of a tensor have all their holders in common, or none. So whoever has nothing of some cells finds their ranks
   * alike. */
  bool holders_apart;
  treadle_status (*pieces)(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces);
  /* of one storage tensor of the window; NULL: they are looked for among all pieces */
  treadle_status (*pieces_in)(const treadle_layout *layout, int64_t rank, int32_t storage,
                              treadle_pieces *pieces);
  treadle_status (*pieces_of)(const treadle_layout *layout, int64_t rank, int32_t tensor,
                              treadle_pieces *pieces);
  /* By tensor, NULL where nothing is said; and for layouts that say it, the pieces of one tensor and the fills of its storage
   * tensors, by address. Those of experts that lie alike are one piece. */
  const treadle_form *(*forms)(const treadle_layout *layout);
  treadle_status (*bundles_of)(const treadle_layout *layout, int64_t rank, int32_t tensor,
                               treadle_pieces *pieces);
  treadle_status (*cells)(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                          treadle_cells *cells);
  int64_t (*cell_rank)(const treadle_layout *layout, const treadle_cell *cell, int64_t holder);
  int64_t (*cell_find)(const treadle_layout *layout, const treadle_cell *cell, int64_t rank);
  int64_t (*cell_locate)(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                         const int64_t **stride_p);
  bool (*cell_is_plain)(const treadle_layout *layout,
                        const treadle_cell *cell); /* NULL: none is known to be */
  uint64_t (*placement)(const treadle_layout *layout, int32_t tensor);
  uint64_t (*cells_like)(const treadle_layout *layout,
                         int32_t tensor);                    /* NULL: follows from the placement */
  const treadle_mesh *(*mesh)(const treadle_layout *layout); /* NULL: none */
  const treadle_storage *(*storages)(const treadle_layout *layout, int64_t rank, int32_t *count_p);
  int32_t (*public_count)(const treadle_layout *layout, int64_t rank); /* as users count them */
  void (*storage_name)(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                       int64_t expert, char *text, size_t capacity);
  /* Sets what of a storage tensor's shape differs by rank; NULL: nothing does. */
  void (*local_shape)(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                      int64_t *shape);
  int64_t (*window_bytes)(const treadle_layout *layout, int64_t rank);
  int64_t (*window_bytes_max)(const treadle_layout *layout); /* over all coordinates, no loop over ranks */
  uint64_t (*coordinate)(const treadle_layout *layout, int64_t rank); /* ranks with equal pieces: equal */
  /* Ranks with equal pieces, but for those of experts: equal. NULL: as `coordinate`. */
  uint64_t (*dense_coordinate)(const treadle_layout *layout, int64_t rank);
  void (*destroy)(treadle_layout *layout);
} treadle_layout_ops;

/* Maps the ranks of a layout that nobody has made a plan of. nodes: of the ranks, for TREADLE_BEST; NULL: all are on one. */
treadle_status treadle_layout_map_ranks(treadle_layout *infer, const treadle_layout *train,
                                        treadle_rank_map map, const treadle_nodes *nodes);

struct treadle_layout {
  const treadle_layout_ops *ops;
  const struct treadle_model *model;
  char *text;               /* normal form */
  int64_t ranks;            /* of the group */
  treadle_owners owners;    /* those that hold it: the mesh is made of these */
  treadle_rank_order order; /* the rank map, of owners */
  char map_text[32];
  treadle_dtype dtype;         /* of all weights; NONE: each tensor's own */
  bool fp8;                    /* holds quantised tensors in fp8, with their block scales */
  const char *blocks_fault;    /* why they can be neither made of values nor taken apart; NULL: they can */
  const treadle_dtype *dtypes; /* by tensor, once the layout is made; else NULL */
  const bool *
      values; /* of a layout with fp8, by tensor: its blocks are held as values alone; NULL: no tensor's are */
  const int8_t *adds; /* by tensor: what is stored is the value plus this; NULL: nothing */
  bool is_train;      /* hf, megatron, pieces: what is left of the ranks is data parallel */
  int64_t tp;         /* size of the dimension that rank maps speak of */
  uint64_t digest;    /* of text, ranks and explicit pieces; without the rank map */
  void *state;        /* of the type of layout */
};

/* Appends the pieces of a rank's window, by storage tensor, parts in order, fills included. */
treadle_status treadle_layout_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces);
/* Appends the pieces of one storage tensor of a rank's window, parts in order, fills included. */
treadle_status treadle_layout_pieces_in(const treadle_layout *layout, int64_t rank, int32_t storage,
                                        treadle_pieces *pieces);
/* The pieces of each tensor one after another: next[i] is that after piece i, -1: it is the last; first[tensor] the first
 * one, -1: none. In their order; fills are of no tensor. */
typedef struct treadle_piece_lists {
  int32_t *first, *next;
} treadle_piece_lists;
treadle_status treadle_piece_lists_make(const treadle_pieces *pieces, int32_t tensors,
                                        treadle_piece_lists *lists);
void treadle_piece_lists_release(treadle_piece_lists *lists);

/* Appends the pieces of one tensor on a rank. */
treadle_status treadle_layout_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                        treadle_pieces *pieces);
/* treadle_layout_bundles_of, with the fills of the tensor's storage tensors; only where there are forms. */
treadle_status treadle_layout_bundles_with_fills(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                                 treadle_pieces *pieces);
/* The forms of all tensors; NULL: the layout says nothing of them. */
const treadle_form *treadle_layout_forms(const treadle_layout *layout);
/* treadle_layout_pieces_of for figures: experts that lie and are cut alike are one piece where there are forms, whose cells
 * are those of its first expert over and over. Fills are left out. */
treadle_status treadle_layout_bundles_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                         treadle_pieces *pieces);
/* Appends the cells of a tensor that meet `box`, ascending; cell.box is the whole cell. */
treadle_status treadle_layout_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                    treadle_cells *cells);

/* The op that writes a fill; in wave 0. */
treadle_op treadle_fill_op(const treadle_piece *fill);

/* Refused when a rank of the group does not hold the layout; `why` says what needs all of them: "the engine runs on all ranks". */
treadle_status treadle_layout_check_whole_group(const treadle_layout *layout, const char *why);
/* Refused when there are too many ranks for a table of all of them. */
treadle_status treadle_layout_check_table(const treadle_layout *layout);

/* For types of layouts: a tensor lies in more than TREADLE_MAX_CELLS parts. */
treadle_status treadle_refuse_cells(const treadle_layout *layout, int32_t tensor);

int64_t treadle_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder);
/* Which holder a rank is, -1 when it is none. */
int64_t treadle_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank);
/* Bytes from the start of that holder's window to the element at cell->box.start; *stride_p: its strides in
 * bytes by axis, which live as long as the cell. */
int64_t treadle_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                            const int64_t **stride_p);

/* Is each rank that has any element of the cell a holder of it, and has it in one place? Else that may be so. */
bool treadle_cell_is_plain(const treadle_layout *layout, const treadle_cell *cell);

const treadle_storage *treadle_layout_storages(const treadle_layout *layout, int64_t rank,
                                               int32_t *count_p);
int64_t treadle_layout_window_max(const treadle_layout *layout);
/* A number that is equal for tensors of a pattern that lie on the same stages and chunks (ranks, pieces). */
uint64_t treadle_layout_placement(const treadle_layout *layout, int32_t tensor);
/* A number that is equal for tensors of a pattern and shape whose cells are the same. That of the placement, but in
 * layouts that are cut by address. */
uint64_t treadle_layout_cells_like(const treadle_layout *layout, int32_t tensor);
/* A number that is equal for ranks whose windows hold the same pieces: all that are no owners have one. */
uint64_t treadle_layout_place(const treadle_layout *layout, int64_t rank);
/* A number that is equal for ranks whose windows hold the same pieces, whatever experts they have, where the layout knows. */
uint64_t treadle_layout_dense_place(const treadle_layout *layout, int64_t rank);

/* The name of a storage tensor of a rank, of treadle_layout_storages or treadle_layout_public. */
void treadle_layout_storage_name(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                                 int64_t expert, char *text, size_t capacity);

/* The index of a rank in a mesh dimension ("tp", "pp", "attn_tp", ...); refused when there is none, and
 * for a rank that is not an owner. */
treadle_status treadle_layout_coordinate(const treadle_layout *layout, int64_t rank, const char *dimension,
                                         int64_t *index_p);

/* Destination bytes of a rank that it does not already hold: each canonical element once, times the narrower
 * dtype of both sides. What a plan may not go below. all: the parts that are looked at count there, too (layout/cuts.h); NULL:
 * there alone. */
treadle_status treadle_layout_inbound(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                      _Atomic int64_t *all, int64_t *bytes_p);

/* The same of some pieces of its window, counted so (layout/sums.h; NULL: each once). */
struct treadle_counting;
treadle_status treadle_layout_inbound_of(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                         const treadle_pieces *wanted,
                                         const struct treadle_counting *counting, _Atomic int64_t *all,
                                         int64_t *bytes_p);

/* The storage tensor that users know by a number, and which expert of it (0 where it is not one of many). NULL: none. */
const treadle_storage *treadle_layout_public(const treadle_layout *layout, int64_t rank, int32_t number,
                                             int32_t *storage_p, int64_t *expert_p);

/* Sets the bytes of a storage tensor, whose shape and dtype are set; refused when they are more than a window has. `name`
 * names it in the message. */
treadle_status treadle_storage_measure(const treadle_layout *layout, const char *name,
                                       treadle_storage *storage);
/* Lays `count` storage tensors, one behind the other, each of which takes storage->bytes rounded up, at the end of a window, and
 * moves the end behind them. Refused when the window is longer than TREADLE_MAX_WINDOW_BYTES then. */
treadle_status treadle_storage_place(const treadle_layout *layout, const char *name,
                                     treadle_storage *storage, int64_t count, int64_t *end);

static inline int8_t treadle_layout_add(const treadle_layout *layout, int32_t tensor) {
  return layout->adds ? layout->adds[tensor] : 0;
}

/* The dtype in which a tensor lies in this layout. */
treadle_dtype treadle_layout_dtype(const treadle_layout *layout, const treadle_tensor *tensor);

/* Of a tensor that fp8 files hold in blocks, or of its scales: does this layout hold codes and scales? Else values. */
static inline bool treadle_layout_holds_codes(const treadle_layout *layout, int32_t tensor) {
  const treadle_tensor *t = &layout->model->tensors[tensor];
  int32_t weight = t->scale_of >= 0 ? t->scale_of : tensor;
  return layout->fp8 && layout->model->tensors[weight].scale >= 0 &&
         !(layout->values && layout->values[weight]);
}

#endif
