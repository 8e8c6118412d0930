/* Safetensors: the checkpoint that the model was opened with, in whatever form its files are. */
#include "convert/source.h"

#include "base/dtype.h"

static treadle_status hf_open(treadle_source *source, const char *folder, const char *layout_text) {
  treadle_status status;
  const treadle_checkpoint *checkpoint = source->model->checkpoint;
  TRY(treadle_layout_create(source->model, layout_text, 1, NULL,
                            &source->layout)); /* for the refusals of its text */
  if (source->layout->dtype)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "--from '%s': files of Hugging Face say their types themselves: leave out dtype=", layout_text));
  if (treadle_model_weights(source->model) == TREADLE_WEIGHTS_NONE) /* which are never made up here */
    TRY(treadle_model_refuse_absent(source->model, ""));
  if (!checkpoint || checkpoint->index_only)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: is a config.json, and has no weights: name the folder that has them", folder));
  source->files = checkpoint->files;
  source->file_count = checkpoint->file_count;
out:
  return status;
}

static treadle_status hf_places(treadle_source *source, int32_t tensor, const treadle_box *box,
                                treadle_file_boxes *places) {
  treadle_status status = TREADLE_OK;
  treadle_stored_box stored;
  for (int32_t next = 0;
       treadle_model_stored(source->model, tensor, box->start, box->size, &next, &stored);) {
    treadle_file_box place = {.box = *box, .dtype = stored.stored->dtype, .file = stored.stored->file};
    place.coded = stored.coding != TREADLE_CODED_PLAIN;
    place.stored = stored;
    int64_t bytes = place.coded ? 1 : (int64_t)treadle_dtype_bytes(place.dtype);
    place.data = (const char *)stored.stored->data + (place.coded ? 0 : stored.at * bytes);
    for (int a = 0; a < source->model->tensors[tensor].naxes; a++) {
      place.box.start[a] = stored.start[a];
      place.box.size[a] = stored.size[a];
      place.stride[a] = stored.stride[a] * bytes;
    }
    TRY(treadle_array_push(places, place));
  }
out:
  return status;
}

static const void *hf_image(const treadle_source *source, int32_t file) {
  return treadle_checkpoint_image(source->model->checkpoint, file);
}

static void hf_close(treadle_source *source) { (void)source; }

const treadle_source_type treadle_source_hf = {"hf", hf_open, hf_places, NULL, hf_image, hf_close};
