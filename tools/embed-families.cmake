# Writes OUTPUT, a C file that holds the text of each file of FAMILIES (see src/family/family.h).
set(c "/* Made from families/ by tools/embed-families.cmake. */\n#include \"family/family.h\"\n\n")
string(APPEND c "const treadle_family_text treadle_family_texts[] = {\n")
foreach(path IN LISTS FAMILIES)
  get_filename_component(name "${path}" NAME)
  file(READ "${path}" text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "?" "\\?" text "${text}") # no trigraphs
  string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
  string(APPEND c "    {\"${name}\",\n     \"${text}\"},\n")
endforeach()
string(APPEND c "    {NULL, NULL}};\n")
file(WRITE "${OUTPUT}" "${c}")
