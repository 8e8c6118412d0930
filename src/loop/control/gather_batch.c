/* Rows of all ranks, on all of them: a piece of a loop of one's own. */
#include "control/gather.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "batch/batch.h"
#include "group/group.h"
#include "treadle_loop.h"

/* Two ranks' rows have the same columns. */
static treadle_status compare(const treadle_batch *a, int rank_a, const treadle_batch *b, int rank_b) {
  for (size_t i = 0; i < a->columns.count; i++) {
    const treadle_batch_entry *one = &a->columns.items[i], *other = treadle_batch_find(b, one->name);
    if (!other)
      REFUSE("treadle_batch_gather: rank %d has a column '%s', and rank %d has none", rank_a, one->name,
             rank_b);
    if (one->type != other->type || one->width != other->width)
      REFUSE("treadle_batch_gather: column '%s' is %s of width %lld on rank %d, and %s of width %lld on "
             "rank %d (0: "
             "ragged)",
             one->name, treadle_column_about_of(one->type)->name, (long long)one->width, rank_a,
             treadle_column_about_of(other->type)->name, (long long)other->width, rank_b);
  }
  return TREADLE_OK;
}

static treadle_status join(const treadle_gather *g, treadle_batch **parts, int ranks,
                           treadle_batch **all_p) {
  size_t count = 0;
  int first = 0;
  treadle_status status = TREADLE_OK;
  for (int rank = 0; rank < ranks; rank++) {
    treadle_message message = treadle_gather_of(g, rank);
    int64_t has;
    TRY(treadle_message_int(&message, "rows", &has));
    if (!has) continue;
    TRY(treadle_message_batch(&message, &parts[count]));
    if (!count) first = rank;
    TRY(compare(parts[0], first, parts[count], rank));
    TRY(compare(parts[count], rank, parts[0], first));
    count++;
  }
  if (!count) REFUSE("treadle_batch_gather: none of %d ranks has rows", ranks);
  TRY(treadle_batch_concat((const treadle_batch *const *)parts, count, all_p));
out:
  return status;
}

static void put(treadle_message *message, const treadle_batch *mine) {
  const treadle_message_rows rows = {.batch = mine};
  treadle_message_put_int(message, mine != NULL);
  if (mine) treadle_message_put_rows(message, &rows);
}

/* Of one rank, too: rows of its own, and no others' memory. Messages have no meta. */
static treadle_status copy(const treadle_batch *mine, treadle_batch **all_p) {
  treadle_batch *copied = NULL;
  treadle_status status;
  if (!mine) REFUSE("treadle_batch_gather: the only rank has no rows (NULL)");
  TRY(treadle_batch_concat(&mine, 1, &copied));
  for (const char *key; (key = treadle_batch_meta_key(copied, 0));)
    TRY(treadle_batch_set_meta(copied, key, NULL));
  *all_p = copied;
  copied = NULL;
out:
  treadle_batch_destroy(copied);
  return status;
}

treadle_status treadle_batch_gather(treadle_group *group, const treadle_batch *mine,
                                    treadle_batch **all_p) {
  treadle_mailbox mailbox = {0};
  treadle_gather gather = {.group = group, .everywhere = true, .mailbox = &mailbox};
  treadle_message message = {0};
  treadle_batch **parts = NULL;
  treadle_status status;
  TREADLE_NEED(all_p);
  *all_p = NULL;
  const int ranks = group ? treadle_group_size(group) : 1;
  if (ranks == 1) return copy(mine, all_p);
  put(&message, mine);
  parts = treadle_alloc_array((size_t)ranks, sizeof(*parts));
  status = parts && !message.failed
               ? TREADLE_OK
               : treadle_fail(TREADLE_NO_MEMORY, "no memory for rows of %d ranks", ranks);
  TRY(treadle_group_agree(group, status));
  TRY(treadle_gather_meet(&gather, &message));
  status = join(&gather, parts, ranks, all_p);
  TRY(treadle_group_agree(group, status)); /* and nobody reads the others' memory any more */
out:
  for (int rank = 0; parts && rank < ranks; rank++) treadle_batch_destroy(parts[rank]);
  treadle_free(parts);
  if (status) {
    treadle_batch_destroy(*all_p);
    *all_p = NULL;
  }
  treadle_message_release(&message);
  treadle_gather_release(&gather);
  treadle_mailbox_release(&mailbox);
  return status;
}
