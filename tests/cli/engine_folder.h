/* A small model with a tokenizer and a chat template, for commands that generate and score. */
#ifndef TESTS_CLI_ENGINE_FOLDER_H
#define TESTS_CLI_ENGINE_FOLDER_H

/* Makes a folder with config.json and weights of a golden model (tests/golden/models), or makes it anew.
 *
 * The tokenizer has a token for each byte: 0 to 2 are <unk>, <s>, </s>; from 3 on printable ASCII, in its order, then 105 bytes from
 * 0x80 on. A text gets <s> in front. The template makes "<s>ROLE:CONTENT</s>" of each message, and "<s>assistant:" for the answer; the
 * role "bad" is refused with the words "no such role". */
void engine_folder_make(const char *path, const char *golden);
/* The same in command_folder(); the path lives until the next call. */
const char *engine_folder(const char *golden);

enum { ENGINE_VOCABULARY = 203, ENGINE_FIRST = 3 /* the token of a space */ };

#endif
