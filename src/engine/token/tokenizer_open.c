/* Finding the files of a tokenizer: in a folder tokenizer.json, else vocab.json with merges.txt, else a *.bin of llama2.c, else
 * tokenizer_config.json with char_ords. A path to one of these files means it. Special tokens are those of tokenizer_config.json beside
 * it, else of special_tokens_map.json. */
#include "token/tokenizer.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "io/file.h"
#include "io/json.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BIN_BYTES = 64 << 20, MOST_FOLDER = PATH_MAX - 300 };

typedef struct place {
  char folder[MOST_FOLDER];
  char file[PATH_MAX];   /* tokenizer.json or *.bin; "" for vocab.json with merges.txt */
  char config[PATH_MAX]; /* tokenizer_config.json; "" where there is none */
  bool chars;            /* which has the characters */
  bool none;             /* a folder without a tokenizer: it was looked for, and nothing of one is there */
} place;

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool has(const place *p, const char *name) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", p->folder, name);
  return treadle_file_exists(path) && !treadle_file_is_folder(path);
}

/* ---- Looking into a folder ---- */

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_config(const struct dirent *entry) {
  return strncmp(entry->d_name, "tokenizer_config.", 17) == 0 && ends_with(entry->d_name, ".json");
}
static int is_bin(const struct dirent *entry) { return ends_with(entry->d_name, ".bin"); }

static void release_entries(struct dirent **entries, int count) {
  for (int i = 0; i < count; i++) free(entries[i]);
  free(entries);
}

/* tokenizer_config.json; else tokenizer_config.NAME.json, where there is only one. */
static void find_config(place *p) {
  if (*p->config) return;
  struct dirent **entries = NULL;
  int count = scandir(p->folder, &entries, is_config, by_name);
  bool plain = has(p, "tokenizer_config.json");
  if (plain || count == 1)
    snprintf(p->config, sizeof p->config, "%s/%s", p->folder,
             plain ? "tokenizer_config.json" : entries[0]->d_name);
  if (count >= 0) release_entries(entries, count);
}

static treadle_status read_bin(treadle_tokenizer *tokenizer, const char *path) {
  char *bytes = NULL;
  size_t count = 0;
  treadle_status status;
  TRY(treadle_file_read(path, MOST_BIN_BYTES, &bytes, &count));
  status = treadle_tokenizer_read_llama2c(tokenizer, bytes, count);
  if (status) treadle_fail_in(status, "%s: ", path);
out:
  treadle_free(bytes);
  return status;
}

/* Does a file begin as a tokenizer of llama2.c: with a small number? */
static bool begins_as_bin(const char *path) {
  int32_t most = 0;
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  bool read = fread(&most, sizeof most, 1, file) == 1;
  fclose(file);
  return read && most >= 1 && most <= 1024;
}

/* Is it one? It is if it can be read as one. */
static treadle_status try_bin(const char *path, bool *good_p) {
  treadle_tokenizer *tokenizer = NULL;
  treadle_status status;
  *good_p = false;
  if (!begins_as_bin(path)) return TREADLE_OK;
  TRY(treadle_tokenizer_make(&tokenizer));
  status = read_bin(tokenizer, path);
  *good_p = status == TREADLE_OK;
  if (status != TREADLE_NO_MEMORY) status = TREADLE_OK;
out:
  treadle_tokenizer_close(tokenizer);
  return status;
}

/* The *.bin files of the folder that are tokenizers: one is taken, several are refused. */
static treadle_status find_bin(place *p) {
  treadle_status status = TREADLE_OK;
  struct dirent **entries = NULL;
  int count = scandir(p->folder, &entries, is_bin, by_name);
  for (int i = 0; i < count; i++) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", p->folder, entries[i]->d_name);
    bool good;
    TRY(try_bin(path, &good));
    if (!good) continue;
    if (*p->file)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: both %s and %s are tokenizers of llama2.c; give one of them",
                       p->folder, strrchr(p->file, '/') + 1, entries[i]->d_name));
    snprintf(p->file, sizeof p->file, "%s", path);
  }
out:
  if (count >= 0) release_entries(entries, count);
  return status;
}

/* Has tokenizer_config.json char_ords? */
static treadle_status look_for_chars(place *p) {
  json_t *config = NULL;
  treadle_status status = TREADLE_OK;
  find_config(p);
  if (*p->config) TRY(treadle_json_load(p->config, &config));
  p->chars = json_object_get(config, "char_ords") != NULL;
out:
  json_decref(config);
  return status;
}

static treadle_status look_into_folder(place *p) {
  treadle_status status;
  if (has(p, "tokenizer.json")) {
    snprintf(p->file, sizeof p->file, "%s/tokenizer.json", p->folder);
    return TREADLE_OK;
  }
  bool vocabulary = has(p, "vocab.json"), merges = has(p, "merges.txt");
  if (vocabulary && merges) return TREADLE_OK;
  TRY(find_bin(p));
  if (!*p->file) TRY(look_for_chars(p));
  if (*p->file || p->chars) return TREADLE_OK;
  if (vocabulary || merges)
    REFUSE("%s: there is %s, but no %s and no tokenizer.json", p->folder,
           vocabulary ? "vocab.json" : "merges.txt", vocabulary ? "merges.txt" : "vocab.json");
  p->none = true;
  REFUSE("%s: there is no tokenizer: neither tokenizer.json, nor vocab.json with merges.txt, nor a *.bin "
         "of llama2.c, nor char_ords in tokenizer_config.json",
         p->folder);
out:
  return status;
}

/* ---- A path ---- */

static treadle_status look_at_file(const char *path, const char *name, place *p) {
  bool config = strncmp(name, "tokenizer_config.", 17) == 0 && ends_with(name, ".json");
  treadle_status status;
  if (strcmp(name, "config.json") == 0) return look_into_folder(p);
  if (!treadle_file_exists(path)) REFUSE("%s: there is no such file or folder", path);
  if (config) snprintf(p->config, sizeof p->config, "%s", path);
  if (config) TRY(look_for_chars(p));
  if (p->chars) return TREADLE_OK;
  if (config || strcmp(name, "vocab.json") == 0 || strcmp(name, "merges.txt") == 0) {
    if (has(p, "vocab.json") && has(p, "merges.txt")) return TREADLE_OK;
    REFUSE("%s: needs vocab.json and merges.txt in its folder%s", path, config ? ", or char_ords" : "");
  }
  if (!ends_with(name, ".json") && !ends_with(name, ".bin"))
    REFUSE("%s: is not a tokenizer: neither a tokenizer.json, nor vocab.json or merges.txt, nor a *.bin of "
           "llama2.c",
           path);
  snprintf(p->file, sizeof p->file, "%s", path);
  status = TREADLE_OK;
out:
  return status;
}

static treadle_status find_place(const char *path, place *p) {
  size_t length = strlen(path);
  if (length == 0) REFUSE("the path of the tokenizer is empty");
  if (length >= sizeof p->folder)
    REFUSE("the path of the tokenizer has %zu bytes, at most %zu are taken", length, sizeof p->folder - 1);
  strcpy(p->folder, path);
  if (treadle_file_is_folder(path)) return look_into_folder(p);
  char *slash = strrchr(p->folder, '/');
  const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
  if (!slash)
    strcpy(p->folder, ".");
  else
    slash[slash == p->folder] = 0;
  return look_at_file(path, name, p);
}

/* ---- Reading ---- */

static treadle_status read_json(treadle_tokenizer *tokenizer, const char *path) {
  json_t *root = NULL;
  treadle_status status;
  TRY(treadle_json_load(path, &root));
  status = treadle_tokenizer_read_json(tokenizer, root);
  if (status) treadle_fail_in(status, "%s: ", path);
out:
  json_decref(root);
  return status;
}

/* Tokens of a file beside tokenizer.json. */
static treadle_status put_config(treadle_tokenizer *tokenizer, const json_t *config) {
  treadle_status status;
  TRY(treadle_tokenizer_put_config(tokenizer, config, NULL));
  TRY(treadle_tokenizer_settle(tokenizer));
out:
  return status;
}

/* The special tokens beside tokenizer.json. As in transformers, special_tokens_map.json adds tokens where tokenizer_config.json has no
 * added_tokens_decoder. */
static treadle_status read_special(treadle_tokenizer *tokenizer, const place *p) {
  char path[PATH_MAX];
  json_t *config = NULL, *map = NULL;
  treadle_status status = TREADLE_OK;
  snprintf(path, sizeof path, "%s/special_tokens_map.json", p->folder);
  if (*p->config) TRY(treadle_json_load(p->config, &config));
  status = put_config(tokenizer, config);
  if (status) TRY(treadle_fail_in(status, "%s: ", p->config));
  if (!json_object_get(config, "added_tokens_decoder") && has(p, "special_tokens_map.json")) {
    TRY(treadle_json_load(path, &map));
    status = put_config(tokenizer, map);
    if (status) TRY(treadle_fail_in(status, "%s: ", path));
  }
  if (config || map) status = treadle_tokenizer_read_special(tokenizer, config ? config : map);
  if (status) treadle_fail_in(status, "%s: ", config ? p->config : path);
out:
  json_decref(config);
  json_decref(map);
  return status;
}

static treadle_status read_gpt2(treadle_tokenizer *tokenizer, const place *p) {
  char path[PATH_MAX];
  json_t *config = NULL, *model = NULL;
  treadle_gpt2_files files = {.folder = p->folder, .config_path = p->config};
  treadle_status status;
  if (*p->config) TRY(treadle_json_load(p->config, &config));
  snprintf(path, sizeof path, "%s/config.json", p->folder);
  if (has(p, "config.json")) {
    TRY(treadle_json_load(path, &model));
    files.model_type = json_string_value(json_object_get(model, "model_type"));
  }
  files.config = config;
  TRY(treadle_tokenizer_read_gpt2(tokenizer, &files));
out:
  json_decref(config);
  json_decref(model);
  return status;
}

static treadle_status read_chars(treadle_tokenizer *tokenizer, const char *path) {
  json_t *config = NULL;
  treadle_status status;
  TRY(treadle_json_load(path, &config));
  status = treadle_tokenizer_read_chars(tokenizer, config);
  if (status) treadle_fail_in(status, "%s: ", path);
out:
  json_decref(config);
  return status;
}

static treadle_status open_path(const char *path, bool may_lack, treadle_tokenizer **tokenizer_p) {
  treadle_tokenizer *tokenizer = NULL;
  treadle_status status;
  place *p = treadle_alloc(sizeof *p);
  if (!p) return treadle_fail(TREADLE_NO_MEMORY, "no memory for a path");
  status = find_place(path, p);
  if (status && p->none && may_lack) {
    status = TREADLE_OK;
    goto out;
  }
  TRY(status);
  find_config(p);
  TRY(treadle_tokenizer_make(&tokenizer));
  if (p->chars) {
    TRY(read_chars(tokenizer, p->config));
  } else if (!*p->file) {
    TRY(read_gpt2(tokenizer, p));
  } else if (ends_with(p->file, ".bin")) {
    TRY(read_bin(tokenizer, p->file));
  } else {
    TRY(read_json(tokenizer, p->file));
    TRY(read_special(tokenizer, p));
  }
  *tokenizer_p = tokenizer;
  tokenizer = NULL;
out:
  treadle_tokenizer_close(tokenizer);
  treadle_free(p);
  return status;
}

treadle_status treadle_tokenizer_open(const char *path, treadle_tokenizer **tokenizer_p) {
  TREADLE_NEED(tokenizer_p);
  *tokenizer_p = NULL;
  TREADLE_NEED(path);
  return open_path(path, false, tokenizer_p);
}

treadle_status treadle_tokenizer_open_if_there(const char *path, treadle_tokenizer **tokenizer_p) {
  *tokenizer_p = NULL;
  treadle_status status = open_path(path, true, tokenizer_p);
  return status ? treadle_fail_in(status, "there is a tokenizer, and it cannot be read (token ids need "
                                          "none: leave its files out): ")
                : TREADLE_OK;
}
