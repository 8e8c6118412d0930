# Writes OUTPUT, a C file that holds the text of each file of FAMILIES and of BLOCKS (see src/core/family/family.h).
set(c "/* Made from families/ by tools/embed-families.cmake. */\n#include \"family/family.h\"\n")

# One table of C: the names and texts of some files.
function(add_table table)
  string(APPEND c "\nconst treadle_family_text ${table}[] = {\n")
  foreach(path IN LISTS ARGN)
    get_filename_component(name "${path}" NAME)
    file(READ "${path}" text)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "?" "\\?" text "${text}") # no trigraphs
    string(REPLACE "\n" "\\n\"\n     \"" text "${text}")
    string(APPEND c "    {\"${name}\",\n     \"${text}\"},\n")
  endforeach()
  string(APPEND c "    {NULL, NULL}};\n")
  set(c "${c}" PARENT_SCOPE)
endfunction()

add_table(treadle_family_texts ${FAMILIES})
add_table(treadle_block_texts ${BLOCKS})
file(WRITE "${OUTPUT}" "${c}")
