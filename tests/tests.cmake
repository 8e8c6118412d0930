# The test programs; included by CMakeLists.txt, whose first lines say which files they are.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

# Open MPI refuses root, more ranks than cores, and prints about both, unless told otherwise; and gives those that are left when a
# rank has failed a second each to end. Ranks that wait for others in MPI give their processor away: they run beside other tests.
set(test_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl=self,vader
    OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_odls_base_sigkill_timeout=0
    TREADLE_BUILD=${CMAKE_BINARY_DIR} TREADLE_SOURCE=${CMAKE_SOURCE_DIR}
    TREADLE=${CMAKE_BINARY_DIR}/treadle CC=${CMAKE_C_COMPILER} MPIEXEC=${MPIEXEC_EXECUTABLE}
    TSAN_OPTIONS=second_deadlock_stack=1
    UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1)

# Registers a test and applies the "ctest:" line of its source. Each test has one stage of .ci/run, which is a label, too: tsan for threads; asan
# for what is one process, and for commands with inputs of others (tests/found); gcc for the other commands, ranks, kernels and long searches.
# A line may name another one: gcc for what a sanitizer makes many times slower, nightly for what is too long for any. optimise: its own loops take
# long in hasty builds.
function(treadle_add_test name source)
  file(STRINGS ${source} lines REGEX "ctest: " LIMIT_COUNT 1)
  string(REGEX REPLACE ".*ctest: *([^*]*).*" "\\1" words "${lines}")
  string(REGEX MATCHALL "[^ ]+" words "${words}")
  set(command ${ARGN})
  set(timeout 300)
  set(labels "")
  set(alone OFF)
  set(stage "")
  foreach(word IN LISTS words)
    if(word MATCHES "^label=(.+)$")
      list(APPEND labels ${CMAKE_MATCH_1})
    elseif(word MATCHES "^timeout=([0-9]+)$")
      set(timeout ${CMAKE_MATCH_1})
    elseif(word MATCHES "^ranks=([0-9]+)$")
      set(command ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${CMAKE_MATCH_1} ${command})
      list(APPEND labels mpi)
    elseif(word MATCHES "^stage=(gcc|asan|tsan|nightly)$")
      set(stage ${CMAKE_MATCH_1})
    elseif(word STREQUAL "alone")
      set(alone ON)
    elseif(word STREQUAL "optimise" AND TARGET ${name})
      target_compile_options(${name} PRIVATE ${optimise})
    else()
      message(FATAL_ERROR "${source}: 'ctest: ${word}' is none of label= timeout= ranks= stage=gcc|asan|tsan|nightly alone optimise")
    endif()
  endforeach()
  if(NOT stage)
    if(labels STREQUAL "threads")
      set(stage tsan)
    elseif((TARGET ${name} OR source MATCHES "/tests/found/") AND NOT labels)
      set(stage asan)
    else()
      set(stage gcc)
    endif()
  endif()
  list(APPEND labels ${stage})
  set(environment ${test_environment} # two mpirun of one user share a folder, which one removes while the other makes its own there
      OMPI_MCA_orte_tmpdir_base=${CMAKE_BINARY_DIR}/mpi/${name})
  if("mpi" IN_LIST labels) # Open MPI leaks, out of modules that it has unloaded: nothing to suppress by
    list(APPEND environment ASAN_OPTIONS=abort_on_error=1:detect_leaks=0)
  else()
    list(APPEND environment ASAN_OPTIONS=abort_on_error=1)
  endif()
  add_test(NAME ${name} COMMAND ${command})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" RUN_SERIAL ${alone}
                       SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}"
                       COST ${timeout}) # the long ones begin first
  if("mpi" IN_LIST labels) # ranks outnumber the cores, and mostly wait: those of one script and those of one program at a time
    set(lock mpi_scripts)
    if(TARGET ${name})
      set(lock mpi_programs)
    endif()
    math(EXPR cost "${timeout} + 10000") # before all others, or they are left at the end, one at a time
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK ${lock} COST ${cost})
  endif()
  foreach(label IN LISTS labels) # tests_mpi, tests_threads: what is needed to run those of a label alone
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
      if(NOT label STREQUAL "tsan") # whose tests start no command
        add_dependencies(tests_${label} treadle_command)
      endif()
    endif()
    if(TARGET ${name})
      add_dependencies(tests_${label} ${name})
    endif()
  endforeach()
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
endfunction()

file(GLOB test_folders RELATIVE ${CMAKE_SOURCE_DIR}/tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*)
list(REMOVE_ITEM test_folders tools fuzz ${wings})
foreach(wing IN LISTS wings)
  file(GLOB rooms RELATIVE ${CMAKE_SOURCE_DIR}/tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${wing}/*)
  list(APPEND test_folders ${rooms})
endforeach()

set(helper_sources "")
set(test_sources "")
set(test_scripts "")
foreach(folder IN LISTS test_folders)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*.c)
  file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/test_*.sh)
  set(tests ${files})
  list(FILTER tests INCLUDE REGEX "/test_[^/]*$")
  list(FILTER files EXCLUDE REGEX "/test_[^/]*$|/cuda/(fake|gpu)_[^/]*$") # a library and a program of their own, below
  list(APPEND test_sources ${tests})
  list(APPEND test_scripts ${scripts})
  list(APPEND helper_sources ${files})
endforeach()

# One archive, so that helpers of different folders may use each other.
set(helpers treadle_mpi_static MPI::MPI_C PkgConfig::CMOCKA)
if(helper_sources)
  add_library(tests_helpers STATIC ${helper_sources})
  target_include_directories(tests_helpers PRIVATE ${wing_folders} ${CMAKE_SOURCE_DIR}/src ${test_roots})
  target_compile_definitions(tests_helpers PRIVATE TREADLE_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(tests_helpers PRIVATE ${helpers} ${all_static} ${libraries})
  list(PREPEND helpers tests_helpers)
endif()

# The stand-in of NVIDIA's driver (tests/cuda/fake_cuda.h). It compiles the kernels, for the host.
file(GLOB fake_cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/fake_*.c)
add_library(fake_cuda SHARED ${fake_cuda_sources})
target_include_directories(fake_cuda PRIVATE ${wing_folders} ${CMAKE_SOURCE_DIR}/tests)
target_link_libraries(fake_cuda PRIVATE Threads::Threads)
target_link_options(fake_cuda PRIVATE -Wl,-z,nodelete) # it holds a card until the process ends
set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake-cuda)
set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/cuda/fake_kernels.c PROPERTIES OBJECT_DEPENDS
                            ${CMAKE_SOURCE_DIR}/src/core/memory/kernel_cuda.cu)

# What tools/gpu-check runs on a device (tests/cuda/gpu.h).
file(GLOB gpu_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/gpu_*.c)
treadle_program(gpu_check SOURCES ${gpu_sources} LINK treadle_cli ${helpers})

foreach(source IN LISTS test_sources)
  get_filename_component(name ${source} NAME_WE)
  treadle_program(${name} FOLDER tests SOURCES ${source} LINK ${helpers})
  treadle_add_test(${name} ${source} ${CMAKE_BINARY_DIR}/tests/${name})
endforeach()
set(on_fake_cuda test_fake_cuda test_fake_processes test_fake_threads test_table_cuda test_cuda_device test_cuda_switch
                 test_cuda_renew test_cuda_processes test_cuda_handles test_cuda_cards)
foreach(name IN LISTS on_fake_cuda)
  target_link_libraries(${name} PRIVATE fake_cuda)
endforeach()
target_link_options(test_rl_differs PRIVATE -Wl,--wrap=treadle_actor_compute_log_prob -Wl,--wrap=treadle_actor_update)
# The command, with a trainer that scores other bits than its generator.
treadle_program(planted_other_bits SOURCES ${CMAKE_SOURCE_DIR}/src/cli/entry.c ${CMAKE_SOURCE_DIR}/tests/tools/planted/other_bits.c
                LINK treadle_cli)
target_link_options(planted_other_bits PRIVATE -Wl,--wrap=treadle_actor_compute_log_prob)
set_target_properties(planted_other_bits PROPERTIES BUILD_RPATH "$ORIGIN")
foreach(source IN LISTS test_scripts)
  get_filename_component(name ${source} NAME_WE)
  treadle_add_test(${name} ${source} bash ${source})
endforeach()
foreach(check ladder doors references words functions once)
  treadle_add_test(${check} ${CMAKE_SOURCE_DIR}/tools/check-${check} ${CMAKE_SOURCE_DIR}/tools/check-${check})
endforeach()

file(GLOB tool_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/tools/*.c)
foreach(source IN LISTS tool_sources)
  get_filename_component(name ${source} NAME_WE)
  treadle_program(${name} SOURCES ${source} LINK ${helpers})
endforeach()

# What tests load into processes (tools/test-kernels).
file(GLOB preload_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/tools/preload/*.c)
foreach(source IN LISTS preload_sources)
  get_filename_component(name ${source} NAME_WE)
  add_library(preload_${name} SHARED ${source})
  target_include_directories(preload_${name} PRIVATE ${wing_folders})
  target_link_libraries(preload_${name} PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(preload_${name} PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()

# Commands start any program but the tests of other stages.
get_property(programs DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER programs EXCLUDE REGEX "^(tests?|bench|fuzz)_")
add_dependencies(tests_gcc ${programs} bench_programs)
add_dependencies(tests_kernels planted_other_bits preload_kernels)
add_dependencies(tests_mpi planted_other_bits fake_cuda)

# Fuzz targets define LLVMFuzzerTestOneInput. Without libFuzzer they replay their corpus and seeded
# mutations of it; with it (TREADLE_FUZZ) tools/fuzz runs build/fuzz_<name> for a while.
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
set(described ${CMAKE_SOURCE_DIR}/tests/fuzz/described.c)
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE fuzz_ "" corpus ${name})
  if(TREADLE_FUZZ)
    treadle_program(${name} SOURCES ${source} ${described} LINK ${helpers})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    treadle_program(${name} FOLDER tests SOURCES ${source} ${described} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.c
                    LINK ${helpers})
    treadle_add_test(${name} ${source} ${CMAKE_BINARY_DIR}/tests/${name}
                     ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${corpus})
  endif()
endforeach()

# Whole commands in one process (tests/fuzz/commands/call.c).
file(GLOB command_fuzz_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/commands/*.c)
treadle_program(fuzz_commands FOLDER tests SOURCES ${command_fuzz_sources} LINK treadle_cli ${helpers})
target_include_directories(fuzz_commands PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz)
treadle_add_test(fuzz_commands ${CMAKE_SOURCE_DIR}/tests/fuzz/commands/main.c ${CMAKE_BINARY_DIR}/tests/fuzz_commands
                 ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/commands)
