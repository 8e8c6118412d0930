/* The keys of torch_dist: numbers taken out of names. */
#include "convert/dist_keys.h"

#include "base/text.h"

#include <string.h>

int64_t treadle_dist_take_expert(char *key, size_t room) {
  static const char EXPERTS[] = ".experts.linear_fc";
  char *at = strstr(key, EXPERTS), *digits = key + strlen(key), rest[300];
  while (digits > key && digits[-1] >= '0' && digits[-1] <= '9') digits--;
  int64_t expert;
  if (!at || !treadle_text_to_int64(digits, &expert)) return -1;
  *digits = 0;
  snprintf(rest, sizeof rest, "%s", at);
  snprintf(at, room - (size_t)(at - key), ".experts%s", rest);
  return expert;
}

int64_t treadle_dist_take_layer(char *key) {
  static const char LAYERS[] = "decoder.layers.";
  int64_t layer;
  char number[24], *at = key + strlen(LAYERS);
  if (!treadle_text_starts(key, LAYERS)) return -1;
  size_t digits = strspn(at, "0123456789");
  if (!digits || digits >= sizeof number || at[digits] != '.') return -1;
  memcpy(number, at, digits);
  number[digits] = 0;
  if (!treadle_text_to_int64(number, &layer)) return -1;
  memmove(at, at + digits + 1, strlen(at + digits + 1) + 1);
  return layer;
}
