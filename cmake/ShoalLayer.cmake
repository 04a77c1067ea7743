# What every layer of src/shoal shares: compiler settings, and shoal_layer(), which makes its target and its tests.
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(SHOAL_CCACHE ccache)
if(SHOAL_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the source folder count as relative ones: another clone finds what this one has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${SHOAL_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)

add_library(shoal_settings INTERFACE)
target_include_directories(shoal_settings INTERFACE
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/src> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(shoal_settings INTERFACE cxx_std_20)
target_compile_options(shoal_settings INTERFACE $<BUILD_INTERFACE:-Wall> $<BUILD_INTERFACE:-Wextra>)
# g++ 12 warns of overlapping copies inside std::string where there are none (GCC bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(shoal_settings INTERFACE $<BUILD_INTERFACE:-Wno-restrict>)
endif()
# No fused multiply-add behind the author's back: trajectories are the same bits on every x86-64 and aarch64 machine.
target_compile_options(shoal_settings INTERFACE -ffp-contract=off)
# Nobody puts another function in the place of one of ours: calls within libshoal.so are direct ones, and may be inlined.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(shoal_settings INTERFACE $<BUILD_INTERFACE:-fno-semantic-interposition>)
endif()
if(SHOAL_WERROR)
  target_compile_options(shoal_settings INTERFACE $<BUILD_INTERFACE:-Werror>)
endif()
if(SHOAL_SANITIZE)
  # address brings undefined with it: they go together, and ThreadSanitizer with neither.
  string(REPLACE "address" "address,undefined" SHOAL_SANITIZERS "${SHOAL_SANITIZE}")
  target_compile_options(shoal_settings INTERFACE
    -fsanitize=${SHOAL_SANITIZERS} -fno-sanitize-recover=all -fno-omit-frame-pointer -g
    -Wno-maybe-uninitialized)  # g++ sees what is not there in instrumented code of the standard library
  target_link_options(shoal_settings INTERFACE -fsanitize=${SHOAL_SANITIZERS})
  # Runs every test program of the build, its discovery included.
  set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/run_sanitized.sh)
endif()

if(SHOAL_FUZZ)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(shoal_settings INTERFACE -fsanitize=fuzzer-no-link)
  else()
    target_compile_options(shoal_settings INTERFACE -fsanitize-coverage=trace-pc,trace-cmp)
  endif()
endif()

if(SHOAL_BUILD_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(SHOAL_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# shoal_batches(TARGET): where sources are compiled in batches (CMAKE_UNITY_BUILD), chooses which of TARGET's go together: at
# most eight, of which no two define the same name, since the anonymous namespaces of a batch are one. Sources with compiler
# options of their own are compiled alone.
function(shoal_batches target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  set(batches 0)
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options OR NOT source MATCHES "\\.cc$")
      continue()
    endif()
    shoal_defined_names(${source} names)
    set(batch 0)
    while(batch LESS batches)
      set(common ${names})
      list(REMOVE_ITEM common ${names_${batch}} "")
      list(LENGTH common others)
      list(LENGTH names all)
      if(others EQUAL all AND size_${batch} LESS 8)
        break()
      endif()
      math(EXPR batch "${batch} + 1")
    endwhile()
    if(batch EQUAL batches)
      math(EXPR batches "${batches} + 1")
      set(names_${batch} "")
      set(size_${batch} 0)
    endif()
    list(APPEND names_${batch} ${names})
    math(EXPR size_${batch} "${size_${batch}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${batch})
  endforeach()
endfunction()

# shoal_defined_names(SOURCE OUT): types, constants and functions that a source defines outside of any class. They begin a line.
function(shoal_defined_names source out)
  file(READ ${source} text)
  string(REGEX REPLACE "\n\\[\\[[a-z_]+\\]\\] " "\n" text "${text}")  # an attribute before a function
  string(REGEX REPLACE "\\[[^]\n]*\\]|;" "" text "${text}")  # lists of CMake would trip over these
  string(REGEX REPLACE "[][]" "" text "${text}")
  string(REGEX MATCHALL "\n[A-Za-z][^\n]*" lines "${text}")
  set(names "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^\n(using|namespace|template) ")
      continue()
    elseif(line MATCHES "^\n(struct|class|union|enum|enum class) ([A-Za-z_0-9]+)" OR
           line MATCHES "(^|[^:A-Za-z_0-9])([A-Za-z_0-9]+)([({]| *=)")
      list(APPEND names ${CMAKE_MATCH_2})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${out} ${names} PARENT_SCOPE)
endfunction()

# shoal_layer(NAME SOURCES a.cc … DEPS shm … [LIBS fmt::fmt …] [TESTS a_test.cc …] [BENCHMARKS a_benchmark.cc …])
#
# Compiles the files of this folder once (shoal_NAME_objects, for libshoal.so) and makes the static library shoal_NAME of
# them, for the tests. DEPS are the layers it includes; each TESTS file becomes the program NAME_a_test, its cases in ctest.
function(shoal_layer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBS;TESTS;BENCHMARKS" ${ARGN})
  add_library(shoal_${name}_objects OBJECT ${ARG_SOURCES})
  target_link_libraries(shoal_${name}_objects PUBLIC shoal_settings Threads::Threads ${ARG_LIBS})
  shoal_batches(shoal_${name}_objects)
  add_library(shoal_${name} STATIC $<TARGET_OBJECTS:shoal_${name}_objects>)
  add_library(shoal::${name} ALIAS shoal_${name})
  target_link_libraries(shoal_${name} PUBLIC shoal_settings Threads::Threads ${ARG_LIBS})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(shoal_${name} PUBLIC shoal_${dep})
  endforeach()
  if(SHOAL_BUILD_TESTS)
    foreach(test IN LISTS ARG_TESTS)
      shoal_test(${name} ${test} LIBS shoal_${name})
    endforeach()
  endif()
  if(SHOAL_BUILD_BENCHMARKS)
    foreach(source IN LISTS ARG_BENCHMARKS)
      get_filename_component(stem ${source} NAME_WE)
      add_executable(${name}_${stem} ${source})
      target_link_libraries(${name}_${stem} PRIVATE shoal_${name} shoal_child benchmark::benchmark_main)
    endforeach()
  endif()
endfunction()

# shoal_test(GROUP file_test.cc LIBS …): one GoogleTest program, every case with a deadline. Its main() and the children of
# tests are in src/shoal/os/testing.
function(shoal_test group source)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  get_filename_component(stem ${source} NAME_WE)
  set(target ${group}_${stem})
  add_executable(${target} ${source})
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${target} PRIVATE ${ARG_LIBS} shoal_testing)
  set(deadline 120)  # seconds
  if(SHOAL_SANITIZE)
    set(deadline 600)  # what a test computes, learning above all, takes ten times as long
  endif()
  gtest_discover_tests(${target} NO_PRETTY_VALUES PROPERTIES TIMEOUT ${deadline} LABELS ${group} DISCOVERY_MODE PRE_TEST)
endfunction()

# shoal_left_out(GROUP "reason" a_test.cc …): tests that this build has no programs of. `shoal test` tells of them, by the file
# that shoal_write_left_out() writes: a line each, "GROUP file: reason".
function(shoal_left_out group reason)
  foreach(test IN LISTS ARGN)
    set_property(GLOBAL APPEND_STRING PROPERTY SHOAL_LEFT_OUT "${group} ${test}: ${reason}\n")
  endforeach()
endfunction()

function(shoal_write_left_out)
  get_property(lines GLOBAL PROPERTY SHOAL_LEFT_OUT)
  file(WRITE ${CMAKE_BINARY_DIR}/left_out.txt "${lines}")
endfunction()
