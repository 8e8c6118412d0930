/* A layout: for each rank, its pieces.
 *
 * Two questions, both answered without a table of all ranks:
 *   what has rank r?        treadle_layout_pieces
 *   who has this box?       treadle_layout_cells, and treadle_cell_* for the ranks that hold a cell
 *
 * Every kind of layout (grid.c: Megatron, vLLM, SGLang, Hugging Face; given.c: explicit pieces) fills the
 * table treadle_layout_ops. A new kind is one file and one row in kinds.c.
 *
 * A piece is a box of one tensor and where its elements lie in the rank's window. A fill is a piece without
 * a tensor. A cell is a box of one tensor that all of its holders have alike; the cells of a tensor are
 * disjoint and cover it, and are the same whoever asks. A tensor may lie on a rank beside the cells too
 * (a tied head that is cut in another way): such pieces are found on that rank only.
 *
 * Ranks in this interface are physical ranks: the rank map is applied inside. */
#ifndef TREADLE_LAYOUT_LAYOUT_H
#define TREADLE_LAYOUT_LAYOUT_H

#include "layout/box.h"
#include "layout/mesh.h"

typedef struct treadle_piece {
  int32_t tensor;  /* canonical; -1: a fill */
  int32_t storage; /* which storage tensor of the rank's window */
  treadle_dtype dtype;
  treadle_box box;                  /* a fill: axis 0 is its count of elements */
  int64_t offset;                   /* bytes from the begin of the window to the element at box.start */
  int64_t stride[TREADLE_MAX_AXES]; /* bytes; a fill: axis 0 */
} treadle_piece;

typedef TREADLE_ARRAY(treadle_piece) treadle_pieces;

/* A holder's place of a cell, and the ranks that hold it, are computed from these few numbers. */
typedef struct treadle_cell {
  treadle_box box;
  int32_t tensor;
  treadle_dtype dtype;
  int64_t holders;      /* how many ranks hold it */
  int32_t holder_first; /* the rest belongs to the kind of layout */
  int32_t holder_count;
  int64_t shard, shard_repeat;
  int64_t offset;                   /* bytes inside the storage tensor */
  int64_t stride[TREADLE_MAX_AXES]; /* bytes */
} treadle_cell;

typedef TREADLE_ARRAY(treadle_cell) treadle_cells;

typedef struct treadle_storage { /* one storage tensor of a window */
  int32_t rule;                  /* of the kind of layout */
  int32_t layer;                 /* global, -1 outside */
  int32_t local_layer;           /* the number in its name */
  int32_t chunk;
  int nparts;
  int32_t parts[TREADLE_MAX_PARTS]; /* canonical tensors */
  int ndim;
  int64_t shape[TREADLE_MAX_DIMS];
  treadle_dtype dtype;
  int64_t offset; /* bytes in the window */
  int64_t bytes;
} treadle_storage;

typedef struct treadle_layout_ops {
  treadle_status (*pieces)(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces);
  treadle_status (*pieces_of)(const treadle_layout *layout, int64_t rank, int32_t tensor,
                              treadle_pieces *pieces);
  treadle_status (*cells)(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                          treadle_cells *cells);
  int64_t (*cell_rank)(const treadle_layout *layout, const treadle_cell *cell, int64_t holder);
  int64_t (*cell_find)(const treadle_layout *layout, const treadle_cell *cell, int64_t rank);
  int64_t (*cell_locate)(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                         const int64_t **stride_p);
  uint64_t (*placement)(const treadle_layout *layout, int32_t tensor);
  const treadle_mesh *(*mesh)(const treadle_layout *layout); /* NULL: none */
  const treadle_storage *(*storages)(const treadle_layout *layout, int64_t rank, int32_t *count_p);
  void (*storage_name)(const treadle_layout *layout, int64_t rank, const treadle_storage *storage,
                       char *text, size_t capacity);
  int64_t (*window_bytes)(const treadle_layout *layout, int64_t rank);
  int64_t (*window_bytes_max)(const treadle_layout *layout); /* over all coordinates, no loop over ranks */
  uint64_t (*coordinate)(const treadle_layout *layout, int64_t rank); /* ranks with equal pieces: equal */
  void (*destroy)(treadle_layout *layout);
} treadle_layout_ops;

struct treadle_layout {
  const treadle_layout_ops *ops;
  const struct treadle_model *model;
  char *text; /* normal form */
  int64_t ranks;
  treadle_rank_order order; /* the rank map */
  char map_text[32];
  treadle_dtype dtype;         /* of all weights; NONE: each tensor's own */
  const treadle_dtype *dtypes; /* explicit pieces: by tensor; else NULL */
  bool is_train;               /* hf, megatron, pieces: what is left of the ranks is data parallel */
  int64_t tp;                  /* size of the dimension that rank maps speak of */
  uint64_t digest;             /* of text, ranks and explicit pieces; without the rank map */
  void *kind;                  /* of the kind of layout */
};

/* Appends the pieces of a rank's window, by storage tensor, parts in order, fills included. */
treadle_status treadle_layout_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces);
/* Appends the pieces of one tensor on a rank. */
treadle_status treadle_layout_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                        treadle_pieces *pieces);
/* Appends the cells of a tensor that meet `box`, ascending; cell.box is the whole cell. */
treadle_status treadle_layout_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                    treadle_cells *cells);

int64_t treadle_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder);
/* Which holder a rank is, -1 when it is none. */
int64_t treadle_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank);
/* Bytes from the begin of that holder's window to the element at cell->box.start; *stride_p: its strides in
 * bytes by axis, which live as long as the cell. */
int64_t treadle_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                            const int64_t **stride_p);

const treadle_storage *treadle_layout_storages(const treadle_layout *layout, int64_t rank,
                                               int32_t *count_p);
int64_t treadle_layout_window_max(const treadle_layout *layout);
/* A number that is equal for tensors of a kind that lie on the same stages and chunks (ranks, pieces): then
 * their cells are the same too. */
uint64_t treadle_layout_placement(const treadle_layout *layout, int32_t tensor);
/* A number that is equal for ranks whose windows hold the same pieces. */
uint64_t treadle_layout_place(const treadle_layout *layout, int64_t rank);

/* The index of a rank in a mesh dimension ("tp", "pp", "attn_tp", ...); refused when there is none. */
treadle_status treadle_layout_coordinate(const treadle_layout *layout, int64_t rank, const char *dimension,
                                         int64_t *index_p);

/* Destination bytes of a rank that it does not already hold: each canonical element once, times the narrower
 * dtype of both sides. What a plan may not go below. */
treadle_status treadle_layout_inbound(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                      int64_t *bytes_p);

/* Lays a storage tensor, whose bytes are set, at the end of a window, and moves the end behind it. */
void treadle_storage_place(treadle_storage *storage, int64_t *end);

/* The dtype in which a tensor lies in this layout. */
treadle_dtype treadle_layout_dtype(const treadle_layout *layout, const treadle_tensor *tensor);

#endif
