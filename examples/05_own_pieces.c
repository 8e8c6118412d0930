/* A layout that no text describes: whole tensors dealt out to the ranks in turn, as pieces.
 *
 *   example_own_pieces config.json vllm:tp=2 4 */
#include <treadle.h>

#include <stdio.h>
#include <stdlib.h>

/* Tensor `number`, whole and row-major, is all of the storage tensor of the same name on one rank. */
static treadle_explicit_piece whole_tensor(const treadle_tensor_info *tensor, int64_t rank) {
  treadle_explicit_piece piece = {
      .rank = rank, .storage = tensor->name, .storage_ndim = tensor->ndim, .tensor = tensor->name};
  int64_t stride = 1;
  for (int dim = tensor->ndim - 1; dim >= 0; dim--) {
    piece.storage_shape[dim] = piece.size[dim] = tensor->shape[dim];
    piece.stride[dim] = stride;
    stride *= tensor->shape[dim];
  }
  return piece;
}

int main(int count, char **texts) {
  if (count != 4) {
    fprintf(stderr, "usage: %s DIR|config.json TO RANKS\n", texts[0]);
    return 2;
  }
  int64_t ranks = atoll(texts[3]);
  treadle_model *model = NULL;
  treadle_layout *dealt = NULL, *to = NULL;
  treadle_explicit_piece *pieces = NULL;
  size_t piece_count = 0;
  treadle_status status = treadle_model_open(texts[1], NULL, &model);

  if (!status) pieces = calloc((size_t)treadle_model_tensor_count(model), sizeof *pieces);
  for (int32_t i = 0; pieces && i < treadle_model_tensor_count(model); i++) {
    treadle_tensor_info tensor = TREADLE_INIT(treadle_tensor_info);
    if (treadle_model_tensor(model, i, &tensor) || tensor.same_as)
      continue; /* a tied name is not a tensor */
    pieces[piece_count] = whole_tensor(&tensor, (int64_t)piece_count % ranks);
    piece_count++;
  }
  if (!status) status = treadle_layout_from_pieces(model, ranks, pieces, piece_count, &dealt);
  if (!status) status = treadle_layout_create(model, texts[2], ranks, NULL, &to);
  for (int64_t rank = 0; rank < ranks && !status; rank++) {
    treadle_plan *plan;
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    status = treadle_plan_create(dealt, to, rank, NULL, &plan);
    if (status) break;
    treadle_plan_get_info(plan, &info);
    printf("rank %lld: %zu bytes of its own, needs %zu, moves %zu\n", (long long)rank,
           treadle_layout_window_bytes(dealt, rank), treadle_layout_window_bytes(to, rank),
           info.moved_bytes);
    treadle_plan_destroy(plan);
  }
  if (status) fprintf(stderr, "%s\n", treadle_error_message());
  free(pieces);
  treadle_layout_destroy(to);
  treadle_layout_destroy(dealt);
  treadle_model_close(model);
  return status ? 1 : 0;
}
