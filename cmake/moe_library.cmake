# shared_headers(NAME [LIBRARIES ...] [HEADERS ...]): headers that nearly all files of many targets include, compiled
# once; they would take a second of each file. A target that reuses them may define more macros, never fewer.
file(WRITE ${CMAKE_BINARY_DIR}/no_code.cpp "")
function(shared_headers name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;HEADERS" ${ARGN})
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/no_code.cpp)
  target_link_libraries(${name} PRIVATE fmt::fmt ${ARG_LIBRARIES} moe_warnings)
  target_precompile_headers(${name} PRIVATE <algorithm> <functional> <map> <memory> <optional> <span> <string> <vector>
                            <fmt/format.h> ${ARG_HEADERS})
endfunction()
shared_headers(usual_headers)
shared_headers(json_headers LIBRARIES nlohmann_json::nlohmann_json HEADERS <nlohmann/json.hpp>)
if(MOETUNE_TESTS)
  shared_headers(test_headers LIBRARIES GTest::gtest HEADERS <gtest/gtest.h>)
endif()

# moe_library(NAME SOURCES ... [DEPENDS ...] [PRECOMPILED json_headers] [COLD]): one static library a folder; headers
# are included from the root. COLD: optimises less, which compiles a third faster, for code whose speed does not matter.
function(moe_library name)
  cmake_parse_arguments(ARG "COLD" "PRECOMPILED" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_PRECOMPILED)
    set(ARG_PRECOMPILED usual_headers)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_precompile_headers(${name} REUSE_FROM ${ARG_PRECOMPILED})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS} PRIVATE fmt::fmt $<BUILD_INTERFACE:moe_warnings>)
  if(ARG_COLD)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  set(library_dir "${PROJECT_SOURCE_DIR}/moe")
  cmake_path(IS_PREFIX library_dir "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE in_library)
  if(in_library AND NOT name STREQUAL "moe_measure")
    set_property(GLOBAL APPEND PROPERTY moe_folders ${name})  # of the package
  endif()
endfunction()

# The emulation of GPUs runs its threads as fibers, whose stack frames AddressSanitizer mistakes for those of functions
# that have returned.
set(of_fibers "ASAN_OPTIONS=detect_stack_use_after_return=0")

# hung_after(NAME SECONDS): how long a test may take before it counts as hung; three times that under sanitizers.
function(hung_after name seconds)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    math(EXPR seconds "3 * ${seconds}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds})
endfunction()

# moe_test(NAME SOURCES ... [DEPENDS ...] [LABELS ...] [TIMEOUT seconds]): one GoogleTest binary, one ctest entry.
function(moe_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if("gpu" IN_LIST ARG_LABELS)
    set_property(GLOBAL APPEND PROPERTY gpu_tests ${name})
    set(usual_timeout 240)  # GPU time is expensive
  else()
    set(usual_timeout 900)  # only hung tests reach it; tests are slow on busy machines
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT ${usual_timeout})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} fmt::fmt GTest::gtest_main moe_warnings)
  target_compile_definitions(${name} PRIVATE MOETUNE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_precompile_headers(${name} REUSE_FROM test_headers)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # compiles a third faster, and tests run as fast
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77)
  hung_after(${name} ${ARG_TIMEOUT})
  if("layer_emulated" IN_LIST ARG_DEPENDS)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${of_fibers}")
  endif()
endfunction()

# moe_program_test(NAME ...): a moe_test that starts the program, by tests/commands/cli/program.h.
function(moe_program_test name)
  moe_test(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE program_under_test)
  target_compile_definitions(${name} PRIVATE MOETUNE_PROGRAM="$<TARGET_FILE:moetune>")
  add_dependencies(${name} moetune)
endfunction()

# these_tests(PROPERTY VALUE ...): sets properties of all tests of the folder so far. `./moetune test` runs as many
# at once as there are cores. Those that compute on several have PROCESSORS 2, those whose times others would
# change have RUN_SERIAL ON. Of the others the longest have a COST, so that a first run begins with them.
function(these_tests)
  get_property(tests DIRECTORY PROPERTY TESTS)
  set_tests_properties(${tests} PROPERTIES ${ARGN})
endfunction()
