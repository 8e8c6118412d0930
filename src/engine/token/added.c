/* Added tokens, as AddedVocabulary of huggingface/tokenizers finds them. */
#include "token/added.h"

#include "base/hash.h"

#include <string.h>

struct treadle_token_tree_node {
  unsigned char byte;
  int32_t token;          /* place in the list; -1: no token ends here */
  int32_t child, sibling; /* plus one; 0: none */
};

static char *copy(const char *text, size_t bytes) {
  char *made = treadle_alloc(bytes + 1);
  if (made && bytes) memcpy(made, text, bytes);
  return made;
}

static void release_texts(treadle_added_token *token) {
  treadle_free(token->text);
  treadle_free(token->form);
}

/* Puts a token at its place: the end, or that of an earlier one with the same text. */
static treadle_status place(treadle_added_tokens *added, const treadle_added_token *token) {
  treadle_status status;
  int32_t fresh = (int32_t)added->items.count, number;
  TRY(treadle_hash_index_put(&added->by_text, treadle_hash_bytes(token->text, token->bytes, 0), fresh,
                             &number));
  if (number < fresh) {
    if (added->items.items[number].id != token->id) REFUSE("added token '%.80s' has two ids", token->text);
    release_texts(&added->items.items[number]);
    added->items.items[number] = *token;
    return TREADLE_OK;
  }
  TRY(treadle_array_push(&added->items, *token));
  TRY(treadle_hash_index_put(&added->by_id, treadle_mix64((uint64_t)token->id), fresh, &number));
out:
  return status;
}

treadle_status treadle_added_put(treadle_added_tokens *added, treadle_added_token token) {
  treadle_status status = TREADLE_OK;
  token.text = copy(token.text, token.bytes);
  token.form = copy(token.form, token.form_bytes);
  if (!token.text || !token.form) status = treadle_fail(TREADLE_NO_MEMORY, "no memory for an added token");
  size_t before = added->items.count;
  if (!status) status = place(added, &token);
  if (status && added->items.count == before) release_texts(&token);
  return status;
}

const treadle_added_token *treadle_added_find(const treadle_added_tokens *added, const char *text,
                                              size_t bytes) {
  int32_t number = treadle_hash_index_find(&added->by_text, treadle_hash_bytes(text, bytes, 0));
  if (number < 0) return NULL;
  const treadle_added_token *token = &added->items.items[number];
  return token->bytes == bytes && memcmp(token->text, text, bytes) == 0 ? token : NULL;
}

const treadle_added_token *treadle_added_get(const treadle_added_tokens *added, int32_t id) {
  int32_t number = treadle_hash_index_find(&added->by_id, treadle_mix64((uint64_t)id));
  return number < 0 ? NULL : &added->items.items[number];
}

/* ---- The tree ---- */

/* The node of a byte below another node, or at the root (parent 0); made if it is not there. */
static treadle_status step_down(treadle_token_tree *tree, int32_t parent, unsigned char byte,
                                int32_t *node_p) {
  int32_t *link = parent ? &tree->nodes.items[parent - 1].child : &tree->first[byte];
  while (*link && tree->nodes.items[*link - 1].byte != byte) link = &tree->nodes.items[*link - 1].sibling;
  if (*link) {
    *node_p = *link;
    return TREADLE_OK;
  }
  struct treadle_token_tree_node node = {.byte = byte, .token = -1};
  int32_t made = (int32_t)tree->nodes.count + 1;
  *link = made; /* pushing may move the nodes */
  *node_p = made;
  treadle_status status = treadle_array_push(&tree->nodes, node);
  return status;
}

static treadle_status put(treadle_token_tree *tree, const treadle_added_tokens *added, int32_t number) {
  const treadle_added_token *token = &added->items.items[number];
  treadle_status status;
  int32_t node = 0;
  if (token->form_bytes == 0) return TREADLE_OK;
  for (size_t i = 0; i < token->form_bytes; i++)
    TRY(step_down(tree, node, (unsigned char)token->form[i], &node));
  struct treadle_token_tree_node *last = &tree->nodes.items[node - 1];
  if (last->token >= 0)
    REFUSE("added tokens %d and %d are both '%.*s'", (int)added->items.items[last->token].id,
           (int)token->id, token->form_bytes < 80 ? (int)token->form_bytes : 80, token->form);
  last->token = number;
out:
  return status;
}

treadle_status treadle_added_settle(treadle_added_tokens *added) {
  treadle_status status = TREADLE_OK;
  for (; added->settled < added->items.count; added->settled++)
    TRY(put(added->items.items[added->settled].normalized ? &added->after : &added->before, added,
            (int32_t)added->settled));
out:
  return status;
}

/* The longest token that begins at `at`; -1: none. */
static int32_t longest(const treadle_token_tree *tree, const char *at, size_t bytes) {
  const struct treadle_token_tree_node *nodes = tree->nodes.items;
  int32_t token = -1, node = tree->first[(unsigned char)*at];
  for (size_t i = 0; node; node = nodes[node - 1].child) {
    while (node && nodes[node - 1].byte != (unsigned char)at[i]) node = nodes[node - 1].sibling;
    if (!node) break;
    if (nodes[node - 1].token >= 0) token = nodes[node - 1].token;
    if (++i == bytes) break;
  }
  return token;
}

/* ---- Flags ---- */

static size_t character_before(const char *text, size_t at) {
  do at--;
  while (((unsigned char)text[at] & 0xc0) == 0x80);
  return at;
}

static bool stands_alone(const char *text, size_t bytes, size_t start, size_t end) {
  uint32_t code;
  if (start > 0) {
    treadle_utf8_decode(text + character_before(text, start), &code);
    if (treadle_unicode_is_word(code)) return false;
  }
  if (end == bytes) return true;
  treadle_utf8_decode(text + end, &code);
  return !treadle_unicode_is_word(code);
}

static size_t spaces_before(const char *text, size_t at, size_t least) {
  while (at > least) {
    uint32_t code;
    size_t before = character_before(text, at);
    treadle_utf8_decode(text + before, &code);
    if (!treadle_unicode_is_space(code)) break;
    at = before;
  }
  return at < least ? least : at;
}

static size_t spaces_behind(const char *text, size_t at, size_t bytes) {
  for (size_t length; at < bytes; at += length) {
    uint32_t code;
    length = treadle_utf8_decode(text + at, &code);
    if (!treadle_unicode_is_space(code)) break;
  }
  return at;
}

/* A token that is not a single word where it should be one is passed over with its text. White space that a token took at its right may
 * hold the start of the next one, which is found all the same. */
treadle_added_match treadle_added_next(const treadle_added_tokens *added, const treadle_token_tree *tree,
                                       const char *text, size_t bytes, size_t taken, size_t *from_p) {
  for (size_t at = *from_p; at < bytes;) {
    int32_t number = tree->first[(unsigned char)text[at]] ? longest(tree, text + at, bytes - at) : -1;
    if (number < 0) {
      at++;
      continue;
    }
    const treadle_added_token *token = &added->items.items[number];
    size_t start = at, end = at + token->form_bytes;
    at = end;
    if (token->single_word && !stands_alone(text, bytes, start, end)) continue;
    if (token->lstrip) start = spaces_before(text, start, taken);
    if (token->rstrip) end = spaces_behind(text, end, bytes);
    *from_p = at;
    return (treadle_added_match){start, end, token};
  }
  *from_p = bytes;
  return (treadle_added_match){bytes, bytes, NULL};
}

void treadle_added_release(treadle_added_tokens *added) {
  for (size_t i = 0; i < added->items.count; i++) release_texts(&added->items.items[i]);
  treadle_array_release(&added->items);
  treadle_hash_index_release(&added->by_text);
  treadle_hash_index_release(&added->by_id);
  treadle_array_release(&added->before.nodes);
  treadle_array_release(&added->after.nodes);
}
