/* src/engine/chat/chat*.c. */
#include "test.h"

#include "chat/chat.h"
#include "io/file.h"

#include <sys/stat.h>

static const char hello[] = "[{\"role\": \"user\", \"content\": \"Hi\"}]";

static void put(const char *folder, const char *name, const char *text) {
  char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  if (text)
    assert_ok(treadle_file_write(path, text, strlen(text)));
  else
    unlink(path);
}

static treadle_status render(const treadle_chat *chat, const char *messages, const char *variables,
                             char **text_p) {
  treadle_chat_options options = {sizeof options, variables, "2025-03-14 15:09:26.5"};
  size_t bytes;
  return treadle_chat_render(chat, messages, &options, text_p, &bytes);
}

static void assert_renders(const char *wanted, const char *path, const char *messages,
                           const char *variables) {
  treadle_chat *chat;
  char *text;
  assert_ok(treadle_chat_open(path, &chat));
  assert_ok(render(chat, messages, variables, &text));
  assert_string_equal(text, wanted);
  free(text);
  treadle_chat_close(chat);
}

static void opens_folders(void **state) {
  (void)state;
  treadle_chat *chat;
  const char *folder = test_folder();
  char path[200];
  assert_refused("there is no chat template", treadle_chat_open(folder, &chat));
  put(folder, "chat_template.json", "{\"chat_template\": \"json {{ bos_token }}\"}");
  assert_renders("json ", folder, hello, NULL);
  put(folder, "special_tokens_map.json",
      "{\"bos_token\": \"<m>\", \"eos_token\": {\"content\": \"</m>\"}}");
  assert_renders("json <m>", folder, hello, NULL);
  put(folder, "tokenizer_config.json",
      "{\"bos_token\": {\"content\": \"<s>\"}, \"pad_token\": null, \"add_bos_token\": true, "
      "\"extra_special_tokens\":"
      " {\"image_token\": \"<i>\"}, \"chat_template\": \"{{ bos_token }}{{ eos_token }}{{ image_token }}{{ "
      "pad_token is"
      " defined }}{{ add_bos_token is defined }}\"}");
  assert_renders("<s></m><i>FalseFalse", folder, hello, NULL);
  put(folder, "chat_template.jinja", "jinja {{ bos_token }}\n");
  assert_renders("jinja <s>", folder, hello, NULL);
  snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
  assert_renders("<s><i>FalseFalse", path, hello, NULL);
  snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
  assert_renders("jinja ", path, hello, NULL);

  put(folder, "chat_template.jinja", "a\n{{ }}");
  assert_refused("chat_template.jinja: line 2: an expression is wanted", treadle_chat_open(folder, &chat));
  put(folder, "chat_template.jinja", NULL);
  put(folder, "tokenizer_config.json", "{\"chat_template\": 5}");
  assert_refused("tokenizer_config.json: chat_template is neither a text nor a list",
                 treadle_chat_open(folder, &chat));
  put(folder, "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"x\"}]}");
  assert_refused("chat_template: item 0 has no name or no template", treadle_chat_open(folder, &chat));
  put(folder, "tokenizer_config.json", "[1");
  assert_refused("tokenizer_config.json: line 1", treadle_chat_open(folder, &chat));
  put(folder, "tokenizer_config.json", "[]");
  assert_refused("tokenizer_config.json: no object", treadle_chat_open(folder, &chat));
  snprintf(path, sizeof path, "%s/nothing", folder);
  assert_fails(TREADLE_SYSTEM, path, treadle_chat_open(path, &chat));
  assert_null(chat);
  test_remove(folder);
}

/* A folder may have no template; one that is broken is not none. */
static void finds_templates(void **state) {
  (void)state;
  treadle_chat *chat;
  const char *folder = test_folder();
  char path[200];
  snprintf(path, sizeof path, "%s/model.bin", folder);
  for (int i = 0; i < 2; i++) {
    assert_ok(treadle_chat_find(i ? path : folder, &chat));
    assert_null(chat);
  }
  put(folder, "tokenizer_config.json", "{\"eos_token\": \"</s>\"}");
  assert_ok(treadle_chat_find(folder, &chat));
  assert_null(chat);
  put(folder, "tokenizer_config.json", "{\"chat_template\": \"{{ 7 }}\"}");
  for (int i = 0; i < 2; i++) {
    char *text;
    assert_ok(treadle_chat_find(i ? path : folder, &chat));
    assert_ok(render(chat, hello, NULL, &text));
    assert_string_equal(text, "7");
    free(text);
    treadle_chat_close(chat);
  }
  put(folder, "tokenizer_config.json", "{\"chat_template\": \"{{ }}\"}");
  assert_refused("an expression is wanted", treadle_chat_find(path, &chat));
  assert_null(chat);
  test_remove(folder);
}

static void chooses_templates(void **state) {
  (void)state;
  const char *folder = test_folder();
  treadle_chat *chat;
  char *text;
  put(folder, "tokenizer_config.json",
      "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D{{ tools is none }}\"},"
      " {\"name\": \"tool_use\", \"template\": \"T{{ tools | length }}\"}, {\"name\": \"rag\", "
      "\"template\": \"R\"}]}");
  assert_renders("DTrue", folder, hello, NULL);
  assert_renders("DTrue", folder, hello, "{\"tools\": null}");
  assert_renders("T1", folder, hello, "{\"tools\": [{}]}");
  assert_renders("R", folder, hello, "{\"chat_template\": \"rag\"}");
  assert_renders("own user", folder, hello, "{\"chat_template\": \"own {{ messages[0].role }}\"}");
  put(folder, "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"R\"}]}");
  assert_ok(treadle_chat_open(folder, &chat));
  assert_refused("none of the 1 chat templates is named 'default' (the first is 'rag')",
                 render(chat, hello, NULL, &text));
  assert_refused("chat_template: line 1", render(chat, hello, "{\"chat_template\": \"{{\"}", &text));
  assert_refused("chat_template is not a text", render(chat, hello, "{\"chat_template\": 5}", &text));
  treadle_chat_close(chat);
  test_remove(folder);
}

/* chat_template.jinja and additional_chat_templates/NAME.jinja stand for the templates of tokenizer_config.json. */
static void finds_more_templates(void **state) {
  (void)state;
  const char *folder = test_folder();
  treadle_chat *chat;
  char path[200], *text;
  put(folder, "tokenizer_config.json", "{\"chat_template\": \"config\"}");
  snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
  assert_int_equal(mkdir(path, 0777), 0);
  put(folder, "additional_chat_templates/notes.txt", "{{ }}");
  assert_renders("config", folder, hello, NULL);
  put(folder, "additional_chat_templates/tool_use.jinja", "tools {{ tools|length }}");
  put(folder, "additional_chat_templates/rag.jinja", "rag");
  assert_renders("tools 1", folder, hello, "{\"tools\": [1]}");
  assert_renders("rag", folder, hello, "{\"chat_template\": \"rag\"}");
  assert_ok(treadle_chat_open(folder, &chat));
  assert_refused("none of the 2 chat templates is named 'default'", render(chat, hello, NULL, &text));
  treadle_chat_close(chat);
  put(folder, "chat_template.jinja", "plain");
  assert_renders("plain", folder, hello, NULL);
  assert_renders("tools 0", folder, hello, "{\"chat_template\": \"tool_use\", \"tools\": []}");
  assert_ok(treadle_chat_open(folder, &chat));
  assert_refused(
      "chat_template 'tools' is neither a template nor the name of one; there is 'default', 'rag', "
      "'tool_use'",
      render(chat, hello, "{\"chat_template\": \"tools\"}", &text));
  treadle_chat_close(chat);
  put(folder, "additional_chat_templates/rag.jinja", "{{ }}");
  assert_refused("additional_chat_templates/rag.jinja: line 1", treadle_chat_open(folder, &chat));
  test_remove(folder);
}

static void prepares_messages(void **state) {
  (void)state;
  const char *folder = test_folder();
  char path[200];
  put(folder, "t.jinja", "{{ messages }}{{ x }}{{ add_generation_prompt }}{{ documents }}");
  snprintf(path, sizeof path, "%s/t.jinja", folder);
  assert_renders("[{'role': 'a', 'x': 1}]FalseNone", path,
                 "[{\"role\": \"a\", \"content\": null, \"x\": 1}]", NULL);
  assert_renders("[{'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r', 'thinking': 'r'}]5TrueNone",
                 path, "[{\"role\": \"a\", \"reasoning\": \"r\", \"thinking\": null}]",
                 "{\"x\": 5, \"add_generation_prompt\": true}");
  assert_renders("[{'role': 'a', 'thinking': 't', 'reasoning_content': 'c'}]FalseNone", path,
                 "[{\"role\": \"a\", \"thinking\": \"t\", \"reasoning_content\": \"c\"}]", NULL);
  put(folder, "t.jinja", "{{ strftime_now('%H:%M:%S.%f') }}");
  assert_renders("15:09:26.500000", path, hello, NULL);
  test_remove(folder);
}

static void goes_on_with_the_last_message(void **state) {
  (void)state;
  const char *folder = test_folder();
  static const char on[] = "{\"continue_final_message\": true}",
                    parts[] = "[{\"role\": \"a\", \"content\": [{\"text\": \"one \"}, {\"image\": 1}]}]",
                    spaced[] = "[{\"role\": \"a\", \"content\": \" one \"}]";
  char path[200], *text;
  treadle_chat *chat;
  put(folder, "t.jinja", "<{{ messages[-1].content }}><end>");
  snprintf(path, sizeof path, "%s/t.jinja", folder);
  assert_renders("< one ", path, spaced, on);
  put(folder, "t.jinja", "<{{ messages[-1].content | trim }}><end>");
  assert_renders("<one", path, spaced, on);
  put(folder, "t.jinja", "<{{ messages[-1].content[0].text }}>");
  assert_renders("<one ", path, parts, on);
  assert_ok(treadle_chat_open(path, &chat));
  assert_refused("does not write the last message",
                 render(chat, "[{\"role\": \"a\", \"content\": \"x\"}]", on, &text));
  assert_refused("has no text in its 'content'", render(chat, "[{\"role\": \"a\"}]", on, &text));
  assert_refused(
      "exclude each other",
      render(chat, hello, "{\"continue_final_message\": true, \"add_generation_prompt\": true}", &text));
  assert_refused("continue_final_message is true or false",
                 render(chat, hello, "{\"continue_final_message\": 1}", &text));
  treadle_chat_close(chat);
  test_remove(folder);
}

static void refuses_messages(void **state) {
  (void)state;
  static const struct {
    const char *messages, *part;
  } bad[] = {{"", "messages: line 1"},
             {"[{\"role\": \"a\",\n}]", "messages: line 2"},
             {"[\"\xff\"]", "messages: line 1"},
             {"{}", "messages are no list"},
             {"[]", "there are no messages"},
             {"[5]", "message 1 is not an object"},
             {"[{\"role\": \"a\"}, {\"content\": \"x\"}]", "message 2 has no 'role'"},
             {"[{\"role\": 1}]", "message 1 has no 'role'"}};
  const char *folder = test_folder();
  char path[200], *text, deep[1000] = "[{\"role\": \"a\", \"content\": ";
  treadle_chat *chat;
  put(folder, "t.jinja", "{{ messages[0].role }}");
  snprintf(path, sizeof path, "%s/t.jinja", folder);
  assert_ok(treadle_chat_open(path, &chat));
  for (size_t i = 0; i < TEST_COUNT(bad); i++)
    assert_refused(bad[i].part, render(chat, bad[i].messages, NULL, &text));
  for (int i = 0; i < 300; i++) strcat(deep, "[");
  for (int i = 0; i < 300; i++) strcat(deep, "]");
  strcat(deep, "}]");
  assert_refused("message 1: 'content' is nested deeper than 200", render(chat, deep, NULL, &text));
  assert_refused("options of the chat: line 1", render(chat, hello, "{", &text));
  assert_refused("options of the chat are no object", render(chat, hello, "[]", &text));
  assert_refused("'messages', which are given beside", render(chat, hello, "{\"messages\": []}", &text));
  assert_null(text);
  treadle_chat_close(chat);
  test_remove(folder);
}

static treadle_status open_and_render(const char *folder) {
  treadle_chat *chat = NULL;
  char *text = NULL;
  treadle_status status = treadle_chat_open(folder, &chat);
  if (status == TREADLE_OK) status = render(chat, hello, "{\"continue_final_message\": true}", &text);
  free(text);
  treadle_chat_close(chat);
  return status;
}

static void survives_failing_allocations(void **state) {
  (void)state;
  const char *folder = test_folder();
  put(folder, "tokenizer_config.json",
      "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{% for m in messages %}{{ m.content "
      "}}{% endfor %}\"}]}");
  TEST_EACH_ALLOCATION(open_and_render(folder));
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(opens_folders),
                                     cmocka_unit_test(finds_templates),
                                     cmocka_unit_test(chooses_templates),
                                     cmocka_unit_test(prepares_messages),
                                     cmocka_unit_test(goes_on_with_the_last_message),
                                     cmocka_unit_test(finds_more_templates),
                                     cmocka_unit_test(refuses_messages),
                                     cmocka_unit_test(survives_failing_allocations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
