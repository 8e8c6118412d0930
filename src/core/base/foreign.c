/* Formats that data come in, by their first bytes. */
#include "base/foreign.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* One line of Python: `import`, and an expression for all rows as dictionaries, or for the text. */
typedef struct format {
  const char *magic;
  size_t bytes;
  const char *what, *import, *rows, *text;
  const char *otherwise; /* where there is no such line */
} format;

#define MAGIC(text) text, sizeof(text) - 1

static const format formats[] = {
    {MAGIC("PAR1"), "a parquet file", "pyarrow.parquet as p", "p.read_table(sys.argv[1]).to_pylist()", NULL,
     NULL},
    {MAGIC("PARE"), "an encrypted parquet file", NULL, NULL, NULL,
     "decrypt it, and write its rows as JSON lines"},
    {MAGIC("ARROW1"), "an Arrow file", "pyarrow.feather as p", "p.read_table(sys.argv[1]).to_pylist()",
     NULL, NULL},
    {MAGIC("FEA1"), "a Feather file", "pyarrow.feather as p", "p.read_table(sys.argv[1]).to_pylist()", NULL,
     NULL},
    {MAGIC("\xff\xff\xff\xff"), "an Arrow stream", "pyarrow.ipc as p",
     "p.open_stream(open(sys.argv[1], \"rb\")).read_all().to_pylist()", NULL, NULL},
    {MAGIC("ORC"), "an ORC file", "pyarrow.orc as p", "p.read_table(sys.argv[1]).to_pylist()", NULL, NULL},
    {MAGIC("\x1f\x8b"), "compressed by gzip", "gzip", NULL, "gzip.open(sys.argv[1])", NULL},
    {MAGIC("BZh"), "compressed by bzip2", "bz2", NULL, "bz2.open(sys.argv[1])", NULL},
    {MAGIC("\xfd"
           "7zXZ"),
     "compressed by xz", "lzma", NULL, "lzma.open(sys.argv[1])", NULL},
    {MAGIC("\x28\xb5\x2f\xfd"), "compressed by zstd", NULL, NULL, NULL, "unpack it with zstd -d"},
    {MAGIC("\x04\x22\x4d\x18"), "compressed by lz4", NULL, NULL, NULL, "unpack it with lz4 -d"},
    {MAGIC("PK\x03\x04"), "a zip archive", NULL, NULL, NULL,
     "unpack it with python3 -m zipfile -e ARCHIVE FOLDER"},
    {MAGIC("PK\x05\x06"), "an empty zip archive", NULL, NULL, NULL, "JSON lines are wanted"},
    {MAGIC("7z\xbc\xaf"), "a 7z archive", NULL, NULL, NULL, "unpack it"},
    {MAGIC("\xff\xfe"), "a text in UTF-16", "sys", NULL, NULL, NULL},
    {MAGIC("\xfe\xff"), "a text in UTF-16", "sys", NULL, NULL, NULL},
};

/* The path as a word of a shell, where it can be one in a message. */
static const char *word_of(const char *path, char *text, size_t room) {
  bool plain = strlen(path) < room - 3;
  for (const char *at = path; *at && plain; at++)
    plain = *at != '\'' && (unsigned char)*at >= ' ' && (unsigned char)*at < 127;
  if (!plain) return "FILE";
  size_t safe = strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:@%,");
  snprintf(text, room, path[safe] || *path == '-' ? "'%s'" : "%s", path);
  return text;
}

static treadle_status refuse(const char *path, const format *f) {
  char word[256];
  const char *name = word_of(path, word, sizeof word);
  const char *out = strstr(path, "rows.jsonl") ? "lines.jsonl" : "rows.jsonl"; /* never the file itself */
  if (f->rows)
    REFUSE("%s: is %s, and JSON lines are wanted; this makes them: python3 -c 'import json, sys, %s; "
           "print(*(json.dumps(r, "
           "default=str) for r in %s), sep=\"\\n\")' %s > %s",
           path, f->what, f->import, f->rows, name, out);
  if (f->text)
    REFUSE("%s: is %s, and JSON lines are wanted; this makes them: python3 -c 'import sys, shutil, %s; "
           "shutil.copyfileobj(%s, sys.stdout.buffer)' %s > %s",
           path, f->what, f->import, f->text, name, out);
  if (f->import)
    REFUSE("%s: is %s, and JSON lines in UTF-8 are wanted; this makes them: python3 -c 'import sys; "
           "sys.stdout.buffer.write(open(sys.argv[1], encoding=\"utf-16\").read().encode())' %s > %s",
           path, f->what, name, out);
  REFUSE("%s: is %s, and JSON lines are wanted; %s", path, f->what, f->otherwise);
}

treadle_status treadle_foreign_check(const char *path, const char *bytes, size_t count) {
  char shown[3 * 8 + 1] = "";
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (count >= formats[i].bytes && memcmp(bytes, formats[i].magic, formats[i].bytes) == 0)
      return refuse(path, &formats[i]);
  if (count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
    return TREADLE_OK; /* a byte order mark of UTF-8 */
  if (!count || memchr("\t\r\n", bytes[0], 3) || (bytes[0] >= ' ' && bytes[0] < 127)) return TREADLE_OK;
  for (size_t i = 0; i < count && i < 8; i++) snprintf(shown + 3 * i, 4, " %02x", (unsigned char)bytes[i]);
  REFUSE("%s: is not text: it begins with the bytes%s, and JSON lines are wanted", path, shown);
}
