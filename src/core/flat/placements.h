/* Layouts of tensors that device meshes hold by placements: torch's DTensors, FSDP2 and HSDP on meshes of any order.
 *
 * A placed tensor is a storage tensor by name and whole shape, a mesh, and how the mesh's dimensions cut it (placement_cut.h).
 * Its parts are boxes of canonical tensors in it: one for a name of the files, several for modules of stacked experts. Each axis of a
 * part counts along one dimension of the storage tensor, `weight` elements of it a step.
 *
 * Who has a box follows from the runs of each dimension that the box meets. They name coordinates of the mesh, and so do not depend on
 * how many ranks there are. Cells of a canonical tensor are those of the first placed tensor that has it, and of the others that are
 * cut like it and share no rank with it; what another one has, a second copy, is found on its own ranks only.
 *
 * placements.c has pieces and cells, placements_holders.c all other answers. placements_build.c builds, with names looked up by
 * placements_names.c and checked by placements_check.c; placements_file.c reads placements:@file. */
#ifndef TREADLE_FLAT_PLACEMENTS_H
#define TREADLE_FLAT_PLACEMENTS_H

#include "base/search.h"
#include "flat/placement_mesh.h"
#include "layout/layout.h"

typedef struct treadle_placed_part {
  int32_t placed, tensor;
  int32_t like;  /* the next one of those that have the same cells, -1: none */
  bool is_first; /* of these; its cells are those of the tensor */
  int32_t likes; /* of the first one: how many there are */
  treadle_box box;
  int8_t dim[TREADLE_MAX_AXES]; /* of the storage tensor, by axis */
  int64_t weight[TREADLE_MAX_AXES];
  int64_t base[TREADLE_MAX_DIMS]; /* where box.start lies in the storage tensor */
} treadle_placed_part;

typedef struct treadle_placed {
  const char *name;   /* of the storage tensor */
  const char *tensor; /* as it was given */
  int32_t cut;
  int32_t first_part, part_count;
  int ndim;
  int64_t shape[TREADLE_MAX_DIMS]; /* whole */
  int64_t room[TREADLE_MAX_DIMS];  /* of the largest shard */
  treadle_dtype dtype;
  int64_t offset; /* in the windows of all groups that have it; -1: not the same in all */
} treadle_placed;

/* What the ranks of a group have: storage tensor i is that of placed[i], ascending. */
typedef struct treadle_placed_window {
  int32_t count;
  int64_t *placed;
  treadle_storage *storages;
  int64_t bytes;
} treadle_placed_window;

typedef struct treadle_placements {
  treadle_arena arena;
  int32_t mesh_count;
  treadle_placement_mesh *meshes; /* the last one is that of all ranks */
  treadle_placement_groups groups;
  int32_t cut_count;
  treadle_placement_cut *cuts;
  int32_t placed_count;
  treadle_placed *placed;
  treadle_placed_part *parts;
  int32_t *part_first,
      *parts_of; /* by canonical tensor: [part_first[t], part_first[t + 1]) of parts_of, by box */
  treadle_placed_window *windows; /* by group */
  int64_t window_bytes_max;
  uint64_t *placement; /* by canonical tensor */
  treadle_dtype *dtypes;
} treadle_placements;

extern const treadle_layout_ops treadle_placements_ops;

/* Fills a layout whose model, text and ranks are set. */
treadle_status treadle_placements_build(treadle_layout *layout, const treadle_placed_mesh *meshes,
                                        size_t mesh_count, const treadle_placed_tensor *tensors,
                                        size_t tensor_count);

/* The same from a file; `path` names it in messages. Names live as long as `root`, lists of ranks in the arena: for the call. */
struct json_t;
treadle_status treadle_placements_read(treadle_layout *layout, const char *path, struct json_t *root,
                                       treadle_arena *arena);

/* ---- Between these files ---- */

static inline const treadle_placements *treadle_placements_of(const treadle_layout *layout) {
  return (const treadle_placements *)layout->state;
}

static inline const treadle_placement_cut *treadle_placed_cut(const treadle_placements *p,
                                                              const treadle_placed *placed) {
  return &p->cuts[placed->cut];
}

static inline const treadle_placement_mesh *treadle_placed_mesh_of(const treadle_placements *p,
                                                                   const treadle_placed *placed) {
  return &p->meshes[treadle_placed_cut(p, placed)->mesh];
}

/* Of a layout rank. */
static inline const treadle_placed_window *treadle_placed_window_of(const treadle_placements *p,
                                                                    int64_t at) {
  return &p->windows[treadle_placement_group_of(&p->groups, at)];
}

/* The storage tensor of a placed one in a window that has it. */
static inline int32_t treadle_placed_storage(const treadle_placed_window *window, int32_t placed) {
  return (int32_t)treadle_last_at_most(window->placed, sizeof *window->placed, window->count, placed);
}

/* Functions of the table: treadle_layout_ops. */
treadle_status treadle_placed_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces);
treadle_status treadle_placed_pieces_in(const treadle_layout *layout, int64_t rank, int32_t storage,
                                        treadle_pieces *pieces);
treadle_status treadle_placed_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                        treadle_pieces *pieces);
treadle_status treadle_placed_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                    treadle_cells *cells);

#endif
