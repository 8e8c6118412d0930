/* Messages as transformers gives them to a template, and how a last message is continued: its text gets a tag that ends with a space.
 * Where the tag stands in the rendering, the rendering is cut. If the template stripped the tag's space, it strips the
 * message's own as well, so the text before the cut is stripped too. */
#include "chat/chat.h"

#include "base/alloc.h"
#include "base/json.h"
#include "jinja/jinja_text.h"

#include <string.h>

static const char tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { TAG = sizeof tag - 1, MAX_NESTED = 200 };

/* ---- Making ready ---------------------------------------------------------------------------------- */

static bool is_deeper(json_t *json, int most) {
  size_t i;
  json_t *item;
  const char *key;
  if (most == 0) return json_is_array(json) || treadle_json_is_object(json);
  json_array_foreach(json, i, item) {
    if (is_deeper(item, most - 1)) return true;
  }
  json_object_foreach(json, key, item) {
    if (is_deeper(item, most - 1)) return true;
  }
  return false;
}

static treadle_status check_message(json_t *message, size_t number) {
  const char *key;
  json_t *item;
  if (!treadle_json_is_object(message)) REFUSE("message %zu is not an object", number);
  if (!json_is_string(json_object_get(message, "role")))
    REFUSE("message %zu has no 'role', which is a text", number);
  json_object_foreach(message, key, item) {
    if (is_deeper(item, MAX_NESTED))
      REFUSE("message %zu: '%s' is nested deeper than %d", number, key, MAX_NESTED);
  }
  return TREADLE_OK;
}

static void drop_nulls(json_t *message) {
  const char *key;
  json_t *item;
  void *next;
  json_object_foreach_safe(message, next, key, item) {
    if (json_is_null(item)) json_object_del(message, key);
  }
}

/* Templates have two names for what the model thought. */
static treadle_status name_thoughts(json_t *message) {
  static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
  json_t *thought = NULL;
  for (int i = 0; i < 3 && !thought; i++) thought = json_object_get(message, names[i]);
  if (!thought) return TREADLE_OK;
  bool named = json_object_get(message, "thinking") != NULL;
  if (json_object_set(message, "reasoning_content", thought) == 0 &&
      (named || json_object_set(message, "thinking", thought) == 0))
    return TREADLE_OK;
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for messages");
}

treadle_status treadle_chat_prepare(json_t *messages) {
  size_t i;
  json_t *message;
  if (!json_is_array(messages)) REFUSE("messages are no list");
  if (json_array_size(messages) == 0) REFUSE("there are no messages");
  json_array_foreach(messages, i, message) {
    treadle_status status = check_message(message, i + 1);
    if (status != TREADLE_OK) return status;
    drop_nulls(message);
    status = name_thoughts(message);
    if (status != TREADLE_OK) return status;
  }
  return TREADLE_OK;
}

/* ---- Continuing ------------------------------------------------------------------------------------ */

/* Where the last text of a message stands: the content itself, or the last part of it that has a text. */
static treadle_status find_text(json_t *message, json_t **owner_p, const char **key_p) {
  json_t *content = json_object_get(message, "content");
  *owner_p = message;
  *key_p = "content";
  if (json_is_string(content)) return TREADLE_OK;
  *key_p = "text";
  for (size_t i = json_array_size(content); i > 0; i--) {
    *owner_p = json_array_get(content, i - 1);
    if (json_is_string(json_object_get(*owner_p, "text"))) return TREADLE_OK;
  }
  REFUSE("continue_final_message: the last message has no text in its 'content'");
}

treadle_status treadle_chat_mark_end(json_t *messages, char **content_p) {
  json_t *owner;
  const char *key;
  treadle_status status = find_text(json_array_get(messages, json_array_size(messages) - 1), &owner, &key);
  if (status != TREADLE_OK) return status;
  json_t *text = json_object_get(owner, key);
  size_t bytes = json_string_length(text);
  char *content = treadle_alloc(bytes + TAG + 1);
  if (!content) return treadle_fail(TREADLE_NO_MEMORY, "no memory for messages");
  memcpy(content, json_string_value(text), bytes);
  memcpy(content + bytes, tag, TAG);
  if (json_string_setn(text, content, bytes + TAG) != 0) {
    treadle_free(content);
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for messages");
  }
  content[bytes] = 0;
  *content_p = content;
  return TREADLE_OK;
}

/* The last place of the tag without its space; NULL: none. */
static char *find_tag(char *text, size_t bytes) {
  for (size_t at = bytes >= TAG - 1 ? bytes - (TAG - 1) + 1 : 0; at > 0; at--)
    if (memcmp(text + at - 1, tag, TAG - 1) == 0) return text + at - 1;
  return NULL;
}

treadle_status treadle_chat_cut(char *text, size_t *bytes_p, const char *content) {
  size_t from, to, end, ignored;
  (void)treadle_jinja_strip(NULL, content, strlen(content), JINJA_LEFT | JINJA_RIGHT, NULL, &from, &to);
  char *place = find_tag(text, *bytes_p);
  if (!place || (to > from && !memmem(text, *bytes_p, content + from, to - from)))
    REFUSE("continue_final_message: the template does not write the last message as it is");
  end = (size_t)(place - text);
  bool whole = *bytes_p - end >= TAG && place[TAG - 1] == tag[TAG - 1];
  if (!whole) (void)treadle_jinja_strip(NULL, text, end, JINJA_RIGHT, NULL, &ignored, &end);
  text[end] = 0;
  *bytes_p = end;
  return TREADLE_OK;
}
