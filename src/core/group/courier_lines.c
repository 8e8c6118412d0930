#include "group/courier.h"

#include <string.h>

/* ---- To the others ---- */

static uint32_t used_of(const char *bytes, uint32_t most) {
  while (most > 0 && bytes[most - 1] == 0) most--;
  return most;
}

/* A copy of the line between two equal looks at its bell; so what it has is what it had at one moment. */
static treadle_line_copy copy_line(treadle_rank_line *line, uint32_t *bell_p) {
  treadle_line_copy copy;
  memset(&copy, 0, sizeof copy); /* copies are compared as bytes */
  do {
    *bell_p = atomic_load(&line->bell);
    copy.left = atomic_load(&line->left);
    copy.arrived = atomic_load(&line->arrived);
    copy.last_words = atomic_load(&line->last_words);
    copy.waits_for = atomic_load(&line->waits_for);
    copy.pid = atomic_load(&line->pid);
    copy.gone = atomic_load(&line->gone);
    for (int w = TREADLE_GROUP_WORDS - 1; w >= 0; w--) copy.words[w] = atomic_load(&line->words[w]);
  } while (atomic_load(&line->bell) != *bell_p);
  return copy;
}

/* What it has said in the barriers that were not sent yet: in the last two at most, since it enters one more only when the others have
 * these. Each has a half of the payload. */
static size_t add_payloads(const treadle_rank_line *line, const treadle_line_copy *before,
                           treadle_line_copy *copy, char *to) {
  size_t used = 0;
  for (uint32_t half = 0; half < 2; half++) {
    uint64_t barrier = (copy->arrived & 1) == half ? copy->arrived : copy->arrived - 1;
    bool last_words = half == 0 && copy->last_words > before->last_words;
    if (copy->arrived == 0 || barrier <= before->arrived) barrier = 0;
    if (barrier == 0 && !last_words) continue;
    copy->says[half] = 1;
    copy->said[half] = used_of(line->payload[half], TREADLE_GROUP_PAYLOAD);
    memcpy(to + used, line->payload[half], copy->said[half]);
    used += copy->said[half];
  }
  return used;
}

static void post_line(treadle_courier *courier, int rank) {
  treadle_rank_line *line = &courier->group->control->lines[rank];
  treadle_line_copy *sent = &courier->sent[rank];
  if (courier->bells[rank] == atomic_load(&line->bell) && atomic_load(&line->gone) == sent->gone) return;
  treadle_line_copy copy = copy_line(line, &courier->bells[rank]);
  if (memcmp(&copy, sent, sizeof copy) == 0) return;
  char content[TREADLE_MAIL_MOST];
  treadle_line_copy full = copy;
  size_t used = sizeof full;
  if (copy.left == TREADLE_LEFT_FAILED && sent->left != copy.left) {
    full.left_message = used_of(line->left_message, TREADLE_GROUP_MESSAGE);
    memcpy(content + used, line->left_message, full.left_message);
    used += full.left_message;
  }
  used += add_payloads(line, sent, &full, content + used);
  memcpy(content, &full, sizeof full);
  *sent = copy;
  treadle_courier_send_all(courier, (treadle_mail_head){.frame.type = TREADLE_MAIL_LINE, .rank = rank},
                           content, used);
}

/* Ranks of this node that have died are gone for the others. */
static void look_at(treadle_courier *courier, int rank) {
  treadle_rank_line *line = &courier->group->control->lines[rank];
  if (atomic_load(&line->gone) || atomic_load(&line->left) != TREADLE_LEFT_NOT) return;
  int32_t at = courier->group->nodes->index[rank];
  if (at != courier->near->rank && !courier->near->ops->alive(courier->near, at))
    atomic_store(&line->gone, 1);
}

void treadle_courier_post(treadle_courier *courier) {
  const treadle_nodes *nodes = courier->group->nodes;
  for (int32_t i = nodes->first[courier->node]; i < nodes->first[courier->node + 1]; i++) {
    look_at(courier, nodes->list[i]);
    if (nodes->count > 1) /* else nobody waits for what it reads, and its line is written meanwhile */
      post_line(courier, nodes->list[i]);
  }
}

/* ---- From the others ---- */

static void take_payload(treadle_rank_line *line, int half, const char *from, uint32_t bytes) {
  memcpy(line->payload[half], from, bytes);
  memset(line->payload[half] + bytes, 0, TREADLE_GROUP_PAYLOAD - bytes);
}

/* Words that are waited for come last, and only grow. */
static void take_words(treadle_rank_line *line, const treadle_line_copy *copy) {
  atomic_store(&line->waits_for, copy->waits_for);
  atomic_store(&line->pid, copy->pid);
  for (int w = 0; w < TREADLE_GROUP_WORDS; w++) atomic_store(&line->words[w], copy->words[w]);
  atomic_store(&line->arrived, copy->arrived);
  atomic_store(&line->last_words, copy->last_words);
  atomic_store(&line->left, copy->left);
  if (copy->gone) atomic_store(&line->gone, 1);
}

bool treadle_courier_take_line(treadle_courier *courier, const treadle_mail_head *head,
                               const char *content) {
  treadle_group *group = courier->group;
  treadle_line_copy copy;
  const char *parts[3];
  if (head->rank < 0 || head->rank >= group->size || group->nodes->of[head->rank] != head->node ||
      !treadle_mail_line(content, head->frame.bytes, &copy, parts))
    return false;
  treadle_rank_line *line = &group->control->lines[head->rank];
  if (copy.left_message > 0) {
    memcpy(line->left_message, parts[0], copy.left_message);
    line->left_message[TREADLE_GROUP_MESSAGE - 1] = 0;
  }
  for (int half = 0; half < 2; half++)
    if (copy.says[half]) take_payload(line, half, parts[1 + half], copy.said[half]);
  take_words(line, &copy);
  treadle_group_ring(group->control, line, false);
  return true;
}
