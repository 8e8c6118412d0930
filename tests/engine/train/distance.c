#include "train/distance.h"

#include "test.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"

#include <math.h>

double distance_of_files(const char *got_path, const char *wanted_path) {
  char *got, *wanted;
  size_t got_bytes, bytes;
  uint64_t header;
  double largest = 0;
  const char *name;
  json_t *root, *tensor;
  assert_ok(treadle_file_read(got_path, 1 << 26, &got, &got_bytes));
  assert_ok(treadle_file_read(wanted_path, 1 << 26, &wanted, &bytes));
  memcpy(&header, wanted, sizeof header);
  assert_int_equal(got_bytes, bytes);
  assert_memory_equal(got, wanted, 8 + header);
  assert_ok(treadle_json_parse("header", wanted + 8, header, &root));
  json_object_foreach(root, name, tensor) {
    json_t *offsets = json_object_get(tensor, "data_offsets");
    double off = 0, sum = 0;
    for (int64_t at = json_integer_value(json_array_get(offsets, 0));
         at < json_integer_value(json_array_get(offsets, 1)); at += 4) {
      float x, y;
      memcpy(&x, got + 8 + header + at, sizeof x);
      memcpy(&y, wanted + 8 + header + at, sizeof y);
      off += ((double)x - y) * ((double)x - y);
      sum += (double)y * y;
    }
    if (sum > 0 && sqrt(off / sum) > largest) largest = sqrt(off / sum);
  }
  json_decref(root);
  treadle_free(got);
  treadle_free(wanted);
  return largest;
}
