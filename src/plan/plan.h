/* A plan: what one rank copies, in waves, forward (from -> to) and back (to -> from).
 *
 * Waves. Elements are grouped in classes (kind of tensor, cell and placement in `from`, cell and placement
 * in `to`), each class is cut in atoms (row blocks of at most a page), and an atom's wave follows from its
 * position in its class alone: all ranks agree, and all classes drain and fill at one pace. The way back
 * has the same atoms with the waves in reverse order (wave' = waves - 1 - wave): it is the film run
 * backwards, so that both directions have one peak, and every page finds its old place.
 *
 * Pages. A page of the from-window is free two waves after its last atom; a page of the to-window is needed
 * from its first atom on. Both follow from this rank's own pieces. So the sharing of physical pages
 * between the two windows is settled when the plan is made: to-page y lies on the physical page of from-page
 * z where last(z) <= first(y) - 2, each at most once, greedily. Peak = physical pages. Nothing is
 * mapped, unmapped or faulted during a switch; to reclaim a page is to let the other window write it. */
#ifndef TREADLE_PLAN_PLAN_H
#define TREADLE_PLAN_PLAN_H

#include "layout/layout.h"

enum { TREADLE_LAG = 2, TREADLE_MAX_WAVES = 4096 };

/* One strided copy, or a fill. Dimensions run from slow to fast; the fastest has both strides equal to the
 * element sizes wherever the tensors allow. */
typedef struct treadle_op {
  int32_t wave;   /* of the direction it belongs to: 0 runs first */
  int32_t source; /* physical rank whose window is read; -1: fill with zeros;
                        own rank and twin: a further copy, read from the destination window */
  bool twin;      /* reads this rank's own destination window, after the wave's other copies */
  uint8_t ndim;
  uint8_t from_dtype, to_dtype;
  int8_t add;       /* -1, 0 or 1: added to each value in fp32 between the two types */
  int32_t tensor;   /* canonical, for messages; -1: fill */
  int32_t storage;  /* of the destination window */
  int64_t from, to; /* bytes in the windows */
  int64_t size[TREADLE_MAX_AXES];
  int64_t from_stride[TREADLE_MAX_AXES], to_stride[TREADLE_MAX_AXES]; /* bytes */
  int64_t elems;
} treadle_op;

typedef TREADLE_ARRAY(treadle_op) treadle_op_array;

/* A row of fp8 blocks, or of parts of blocks, that is quantised or dequantised on its way (bands.h): its values lie in
 * scratch memory in between, row-major, rows x columns of value_dtype. Bands of one wave that are alike, but for lying one
 * step further each, are one run: the first of them, and how many there are. Runs of several waves may share their parts. */
typedef struct treadle_band {
  int32_t wave;
  int32_t tensor, storage; /* canonical, for messages; of the destination window */
  int32_t count;           /* of the run; scratch is used again for each */
  int32_t begin;           /* of the run, among the bands that share its parts */
  bool
      quantises; /* parts bring values to scratch, codes and scales are made of them and written; else codes
                              and scales are read, and parts take the values out of scratch */
  bool twin;     /* the codes that are read are those of this rank's own destination window */
  uint8_t value_dtype;
  int32_t rows, columns; /* rows of one block at the most; any columns */
  int32_t skip;          /* columns of the first block that lie in front */
  int32_t block_columns; /* of a whole block */
  int32_t code_row, code_rows, code_column,
      code_columns;              /* those of them whose codes the window has: all, but where blocks
                                                             that are quantised are cut */
  int64_t codes, code_stride;    /* bytes: the first code that its window has, and from row to row */
  int64_t scales, scale_stride;  /* bytes: the scale of the first block, and from block to block */
  int64_t code_step, scale_step; /* bytes: from one band of the run to the next */
  int64_t part_first, parts;
} treadle_band;

/* A copy between a window and scratch. Its source is the rank whose values or codes are read. */
typedef struct treadle_band_part {
  treadle_op op; /* of the first band that has it; the side of scratch counts bytes in scratch */
  int64_t step;  /* bytes: from one band of the run to the next, in the window */
  int64_t moved; /* bytes that count as moved, in each band */
} treadle_band_part;

/* One band of a run, alone; and a copy of it. */
static inline treadle_band treadle_band_at(const treadle_band *run, int32_t i) {
  treadle_band band = *run;
  band.count = 1;
  band.begin += i;
  band.codes += i * run->code_step;
  band.scales += i * run->scale_step;
  return band;
}

static inline treadle_op treadle_band_part_at(const treadle_band *run, const treadle_band_part *part,
                                              int32_t i) {
  treadle_op op = part->op;
  op.wave = run->wave;
  *(run->quantises ? &op.from : &op.to) += (run->begin + i) * part->step;
  return op;
}

typedef TREADLE_ARRAY(treadle_band) treadle_bands;
typedef TREADLE_ARRAY(treadle_band_part) treadle_band_parts;

typedef struct treadle_direction {
  treadle_op_array ops; /* by wave; in a wave: own, then others' by distance, then fills, then twins */
  int32_t *wave_first;  /* [waves + 1] index of the first op of each wave */
  int32_t *need; /* [waves] every rank must have finished this wave before this one writes; -1: none */
  int32_t first_reclaim; /* the first wave that writes on a reclaimed page; waves when none */
  treadle_bands bands;   /* runs of them, by wave; in a wave they are carried out before the ops */
  treadle_band_parts band_parts;
  int32_t *band_first; /* [waves + 1] index of the first band of each wave */
  int64_t scratch_bytes, scratch_codes, scratch_scales; /* of the largest band: values, codes and scales */
  int64_t moved_bytes, resident_bytes, fill_bytes, lower_bound_bytes;
  int64_t written_bytes; /* destination bytes of data and fills: what coverage must reach */
  uint64_t coverage;     /* sum of treadle_op_mark over ops, and of treadle_band_mark over bands */
} treadle_direction;

struct treadle_plan {
  const treadle_layout *from, *to;
  int64_t rank;
  int32_t waves;
  int64_t page_bytes;
  int64_t cap_bytes, cap_min_bytes;
  int64_t from_pages, to_pages, physical_pages; /* physical_pages is the peak */
  int32_t *from_page, *to_page;                 /* physical page of each page of the windows */
  treadle_direction forward, back;
  uint64_t digest;
  bool lossless;
  treadle_arena arena;
};

/* What an op adds to coverage: its destination box and nothing else. */
uint64_t treadle_op_mark(const treadle_op *op);

/* The same of a run of bands, with their parts. */
uint64_t treadle_band_mark(const treadle_band *band, const treadle_band_part *parts);
/* Bytes that the bands of a run write in the destination window, and those that count as moved. */
int64_t treadle_band_written(const treadle_band *band, const treadle_band_part *parts);
int64_t treadle_band_moved(const treadle_band *band, const treadle_band_part *parts);
/* Blocks that a band has, or has parts of. */
static inline int64_t treadle_band_blocks(const treadle_band *band) {
  return ((int64_t)band->skip + band->columns + band->block_columns - 1) / band->block_columns;
}

/* The number of waves for a cap: min(4096, max(1, ceil(8 * max(from, to) / cap))), from the largest windows
 * of both layouts in whole pages. */
int32_t treadle_plan_waves(const treadle_layout *from, const treadle_layout *to, int64_t page_bytes,
                           int64_t cap_bytes);

/* Makes the plan with a given number of waves; cap_bytes is only noted, cap_min_bytes stays 0. */
treadle_status treadle_plan_make(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                 int64_t page_bytes, int32_t waves, int64_t cap_bytes,
                                 treadle_plan **plan_p);

/* Refuses layouts of different models or rank counts, a rank that is none, a page size that is none. */
treadle_status treadle_plan_check(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                  int64_t page_bytes);
/* Does every value come back the same? */
bool treadle_plan_is_lossless(const treadle_layout *from, const treadle_layout *to);

/* The smallest cap of one rank: its peak at 4096 waves minus its larger window. */
treadle_status treadle_plan_cap_min(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                    int64_t page_bytes, int64_t *cap_min_p);

/* Bytes and peak of one rank without ops, for reports over many ranks: as treadle_plan_info, without the
 * digest. */
treadle_status treadle_plan_measure(const treadle_layout *from, const treadle_layout *to, int64_t rank,
                                    int64_t page_bytes, int32_t waves, treadle_plan_info *info_p);

/* Adds what a rank pulls forward to inbound, by source, without its plan. classes are those of the pair. */
struct treadle_classes;
treadle_status treadle_plan_add_inbound(const struct treadle_classes *classes, int64_t rank,
                                        size_t *inbound);

#endif
