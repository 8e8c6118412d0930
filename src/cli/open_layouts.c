/* The two layouts of --from and --to, or --train and --infer, and their rank map. */
#include "cli/cli.h"

const char *treadle_pair_rank_map(const treadle_layout *from, const treadle_layout *to) {
  bool of_from = treadle_layout_is_train(to) && !treadle_layout_is_train(from);
  return treadle_layout_rank_map(of_from ? from : to);
}

treadle_status treadle_open_layouts(const treadle_model *model, const treadle_pair_texts *texts,
                                    int64_t ranks, treadle_layout **from_p, treadle_layout **to_p) {
  treadle_status status;
  treadle_layout_options options = {
      .struct_size = sizeof options, .rank_map = texts->rank_map, .node_of = texts->node_of};
  bool mapped = options.rank_map != TREADLE_CONTIGUOUS;
  TRY(treadle_layout_create(model, texts->from, ranks, NULL, from_p));
  options.train = *from_p;
  bool settled =
      !mapped || treadle_layout_is_train(*from_p); /* else the second layout says which one is mapped */
  TRY(treadle_layout_create(model, texts->to, ranks, mapped && settled ? &options : NULL, to_p));
  if (settled) goto out;
  bool of_from = treadle_layout_is_train(*to_p);
  treadle_layout **mapped_p = of_from ? from_p : to_p;
  if (of_from) options.train = *to_p;
  treadle_layout_destroy(*mapped_p);
  TRY(treadle_layout_create(model, of_from ? texts->from : texts->to, ranks, &options, mapped_p));
out:
  return status;
}
