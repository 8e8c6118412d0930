/* Fields of transformers' GenerationConfig that change which tokens come, and the values with which they do not. Left out: do_sample, which is
 * not looked at (sampling.h), lengths of a whole sequence, and what is of beams alone, since num_beams is named. */
#include "generate/unheard.h"

#include "io/json.h"

typedef struct field {
  const char *name;
  double neutral; /* beside null, false, "" and an empty list or object */
} field;

static const field fields[] = {
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"max_time", 0},
    {"stop_strings", 0},
    {"num_beams", 1},
    {"penalty_alpha", 0},
    {"dola_layers", 0},
    {"typical_p", 1},
    {"top_h", 0},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"encoder_repetition_penalty", 1},
    {"no_repeat_ngram_size", 0},
    {"encoder_no_repeat_ngram_size", 0},
    {"bad_words_ids", 0},
    {"force_words_ids", 0},
    {"constraints", 0},
    {"forced_bos_token_id", -1},
    {"forced_eos_token_id", -1},
    {"forced_decoder_ids", 0},
    {"exponential_decay_length_penalty", 0},
    {"suppress_tokens", 0},
    {"begin_suppress_tokens", 0},
    {"sequence_bias", 0},
    {"token_healing", 0},
    {"guidance_scale", 1},
    {"watermarking_config", 0},
    {"num_return_sequences", 1},
};

static bool is_neutral(const json_t *value, double neutral) {
  if (!value || json_is_null(value) || json_is_false(value)) return true;
  if (json_is_number(value)) return json_number_value(value) == neutral;
  if (json_is_string(value)) return json_string_length(value) == 0;
  return (json_is_array(value) && json_array_size(value) == 0) ||
         (json_is_object(value) && json_object_size(value) == 0);
}

void treadle_generation_unheard(const json_t *config, treadle_builder *names) {
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (!is_neutral(json_object_get(config, fields[i].name), fields[i].neutral))
      treadle_builder_add(names, "%s%s", names->text ? ", " : "", fields[i].name);
}
