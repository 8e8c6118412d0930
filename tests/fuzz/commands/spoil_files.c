/* Spoiling files of a known form. */
#include "base/crc.h"
#include "commands/bytes.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static uint64_t number_at(const fuzz_bytes *bytes, size_t at, int width) {
  uint64_t number = 0;
  for (int i = 0; i < width; i++) number |= (uint64_t)(uint8_t)bytes->at[at + (size_t)i] << 8 * i;
  return number;
}

void fuzz_spoil_safetensors(treadle_random *random, fuzz_bytes *bytes) {
  uint64_t length = bytes->count >= 8 ? number_at(bytes, 0, 8) : 0;
  if (length == 0 || length > bytes->count - 8 || fuzz_one_in(random, 10)) {
    fuzz_spoil_bytes(random, bytes);
    return;
  }
  if (fuzz_one_in(random, 12)) { /* data cut off, or more of it */
    if (fuzz_one_in(random, 2))
      fuzz_bytes_replace(bytes, bytes->count - 1, 1, NULL, 0);
    else
      fuzz_bytes_replace(bytes, bytes->count, 0, "more", 4);
    return;
  }
  fuzz_bytes header = {0};
  fuzz_bytes_replace(&header, 0, 0, bytes->at + 8, length);
  fuzz_spoil_json(random, &header);
  fuzz_bytes_replace(bytes, 8, length, header.at, header.count);
  uint64_t now = fuzz_one_in(random, 20) ? (uint64_t)fuzz_edge_int(random) : header.count;
  memcpy(bytes->at, &now, 8);
  fuzz_bytes_release(&header);
}

/* One entry of the central directory: where its content lies. */
static bool find_content(const fuzz_bytes *bytes, size_t record, size_t *from_p, size_t *count_p) {
  size_t local = number_at(bytes, record + 42, 4), count = number_at(bytes, record + 20, 4);
  if (local + 30 > bytes->count) return false;
  size_t from = local + 30 + number_at(bytes, local + 26, 2) + number_at(bytes, local + 28, 2);
  *from_p = from;
  *count_p = count;
  return count && from < bytes->count && count <= bytes->count - from;
}

static void put_crc(fuzz_bytes *bytes, size_t record, size_t from, size_t count) {
  uint32_t crc = treadle_crc32(0, bytes->at + from, count);
  size_t local = number_at(bytes, record + 42, 4);
  memcpy(bytes->at + record + 16, &crc, 4);
  memcpy(bytes->at + local + 14, &crc, 4);
}

void fuzz_spoil_zip(treadle_random *random, fuzz_bytes *bytes) {
  size_t records[64], from, count;
  int found = 0;
  for (size_t at = 0; at + 46 < bytes->count && found < 64; at++)
    if (memcmp(bytes->at + at, "PK\1\2", 4) == 0) records[found++] = at;
  if (!found || fuzz_one_in(random, 6)) {
    fuzz_spoil_bytes(random, bytes);
    return;
  }
  size_t record = records[0]; /* torch's pickle comes first */
  if (fuzz_one_in(random, 3)) record = records[treadle_random_below(random, found)];
  if (fuzz_one_in(random, 10) || !find_content(bytes, record, &from, &count)) { /* the record itself */
    uint64_t number = (uint64_t)fuzz_edge_int(random);
    memcpy(bytes->at + record + 4 + treadle_random_below(random, 40), &number, 2);
    return;
  }
  size_t at = from + (size_t)treadle_random_below(random, (int64_t)count), left = from + count - at;
  if (fuzz_one_in(random, 2)) { /* a number: BININT, BININT1, BININT2 */
    static const struct {
      char opcode;
      size_t width;
    } numbers[] = {{'J', 4}, {'K', 1}, {'M', 2}};
    uint64_t number = (uint64_t)fuzz_edge_int(random);
    int which = (int)treadle_random_below(random, 3);
    char *opcode = memchr(bytes->at + at, numbers[which].opcode, left);
    if (opcode && (size_t)(bytes->at + from + count - opcode) > numbers[which].width)
      memcpy(opcode + 1, &number, numbers[which].width);
  } else if (fuzz_one_in(random, 2)) {
    bytes->at[at] = (char)treadle_random_below(random, 256);
  } else if (fuzz_one_in(random, 2)) {
    bytes->at[at] ^= (char)(1 << treadle_random_below(random, 8));
  } else { /* some bytes of the entry again */
    size_t other = from + (size_t)treadle_random_below(random, (int64_t)count);
    size_t length = (size_t)treadle_random_between(random, 1, 12);
    if (length <= left && length <= from + count - other)
      memmove(bytes->at + at, bytes->at + other, length);
  }
  put_crc(bytes, record, from, count);
}

static void spoil_gzip(treadle_random *random, fuzz_bytes *bytes) {
  enum { MOST = 1 << 20 };
  fuzz_bytes text = {.at = malloc(MOST)};
  z_stream stream = {.next_in = (Bytef *)bytes->at,
                     .avail_in = (uInt)bytes->count,
                     .next_out = (Bytef *)text.at,
                     .avail_out = MOST - 1};
  if (text.at && inflateInit2(&stream, 31) == Z_OK) {
    inflate(&stream, Z_FINISH);
    text.count = stream.total_out;
    text.at[text.count] = 0;
    inflateEnd(&stream);
  }
  if (text.count && !fuzz_one_in(random, 3)) {
    fuzz_spoil_text(random, &text);
    uLong most = compressBound(text.count) + 64;
    char *packed = malloc(most);
    z_stream out = {.next_in = (Bytef *)text.at,
                    .avail_in = (uInt)text.count,
                    .next_out = (Bytef *)packed,
                    .avail_out = (uInt)most};
    if (packed && deflateInit2(&out, 1, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK) {
      deflate(&out, Z_FINISH);
      fuzz_bytes_replace(bytes, 0, bytes->count, packed, out.total_out);
      deflateEnd(&out);
    }
    free(packed);
  } else {
    fuzz_spoil_bytes(random, bytes);
  }
  fuzz_bytes_release(&text);
}

static bool ends(const char *name, const char *end) {
  size_t length = strlen(name), more = strlen(end);
  return length >= more && strcmp(name + length - more, end) == 0;
}

void fuzz_spoil_file(treadle_random *random, const char *name, fuzz_bytes *bytes) {
  static const struct {
    const char *end;
    void (*spoil)(treadle_random *random, fuzz_bytes *bytes);
  } forms[] = {{".json", fuzz_spoil_json},
               {".safetensors", fuzz_spoil_safetensors},
               {".pt", fuzz_spoil_zip},
               {".distcp", fuzz_spoil_bytes},
               {".metadata", fuzz_spoil_bytes},
               {".yaml", fuzz_spoil_text},
               {".tsv", fuzz_spoil_text},
               {".gz", spoil_gzip},
               {"checkpointed_iteration.txt", fuzz_spoil_text}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (ends(name, forms[i].end) && !fuzz_one_in(random, 20)) {
      forms[i].spoil(random, bytes);
      return;
    }
  fuzz_spoil_bytes(random, bytes);
}
