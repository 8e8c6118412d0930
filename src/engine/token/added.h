/* Added tokens: texts that are found in what is encoded before it is cut into words. Those with `normalized` are found after the text
 * was normalized, as their normalized form; the others before. The longest token at the leftmost place is taken. */
#ifndef TREADLE_TOKEN_ADDED_H
#define TREADLE_TOKEN_ADDED_H

#include "base/hash_index.h"
#include "token/unicode.h"

typedef struct treadle_added_token {
  int32_t id;
  char *text; /* [bytes] */
  size_t bytes;
  char *form; /* [form_bytes] what is looked for, and what decoding starts from */
  size_t form_bytes;
  bool special;        /* left out when special tokens are */
  bool single_word;    /* only where no word goes on at either side */
  bool lstrip, rstrip; /* takes the white space at that side, too */
  bool normalized;
} treadle_added_token;

/* A tree of the texts of tokens, byte by byte. */
typedef struct treadle_token_tree {
  TREADLE_ARRAY(struct treadle_token_tree_node) nodes;
  int32_t first[256]; /* node of the first byte, plus one; 0: none */
} treadle_token_tree;

typedef struct treadle_added_tokens {
  TREADLE_ARRAY(treadle_added_token) items;
  size_t settled; /* of the items, those in the trees */
  treadle_hash_index by_text, by_id;
  treadle_token_tree before, after; /* tokens that are looked for before, and after, normalizing */
} treadle_added_tokens;

/* A token that was found, with the white space that it takes. */
typedef struct treadle_added_match {
  size_t start, end;
  const treadle_added_token *token; /* NULL: there is none up to the end */
} treadle_added_match;

/* Copies text and form, which the caller says with id and flags. The last one with a text counts. */
treadle_status treadle_added_put(treadle_added_tokens *added, treadle_added_token token);
/* The token with this text, or id; NULL: none. */
const treadle_added_token *treadle_added_find(const treadle_added_tokens *added, const char *text,
                                              size_t bytes);
const treadle_added_token *treadle_added_get(const treadle_added_tokens *added, int32_t id);
/* Puts the tokens that came since the last time into the trees. Refused: two with one form. */
treadle_status treadle_added_settle(treadle_added_tokens *added);
/* The next token from *from_p on, where the last search ended (0 at first); `taken` is the end of the last match. */
treadle_added_match treadle_added_next(const treadle_added_tokens *added, const treadle_token_tree *tree,
                                       const char *text, size_t bytes, size_t taken, size_t *from_p);
void treadle_added_release(treadle_added_tokens *added);

#endif
