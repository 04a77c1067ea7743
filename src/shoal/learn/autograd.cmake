# LibTorch: that of the torch wheel which the build's Python imports, found without importing it
# (importing takes seconds). -DSHOAL_TORCH_ROOT=… names another one: the folder that holds include/ and lib/.
if(NOT SHOAL_TORCH_ROOT)
  if(NOT Python_EXECUTABLE)
    find_package(Python 3.10 COMPONENTS Interpreter REQUIRED)
  endif()
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0], end='')"
    OUTPUT_VARIABLE torch_root RESULT_VARIABLE torch_missing ERROR_QUIET)
  if(torch_missing)
    message(FATAL_ERROR "Learning from images needs torch, and ${Python_EXECUTABLE} has none. "
                        "Install it with pip, or configure with -DSHOAL_BUILD_AUTOGRAD=OFF.")
  endif()
  set(SHOAL_TORCH_ROOT ${torch_root} CACHE PATH "LibTorch: the folder that holds include/ and lib/")
endif()
set(TORCH_INSTALL_PREFIX ${SHOAL_TORCH_ROOT} CACHE INTERNAL "")

add_library(shoal_torch INTERFACE)
target_include_directories(shoal_torch SYSTEM INTERFACE
  ${SHOAL_TORCH_ROOT}/include ${SHOAL_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(shoal_torch INTERFACE ${SHOAL_TORCH_ROOT}/lib/libtorch_cpu.so ${SHOAL_TORCH_ROOT}/lib/libc10.so)

# The part that uses LibTorch is a library of its own beside libshoal.so, loaded when a network needs it: loading LibTorch
# takes a third of a second, and most classic tasks never need it. It also keeps LibTorch's own fmt, of another version
# than the system's, away from the files that include that.
add_library(shoal_autograd SHARED network/autograd_actor_critic.cc)
target_link_libraries(shoal_autograd PRIVATE shoal_settings shoal_torch)
target_link_options(shoal_autograd PRIVATE -Wl,--no-undefined)
set(beside_libshoal $<TARGET_PROPERTY:shoal,LIBRARY_OUTPUT_DIRECTORY>)
set(autograd_rpath "$ORIGIN/../torch/lib")  # a wheel's: torch is a sibling of shoal
if(NOT SKBUILD)
  list(APPEND autograd_rpath ${SHOAL_TORCH_ROOT}/lib)
endif()
set_target_properties(shoal_autograd PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY $<IF:$<BOOL:${beside_libshoal}>,${beside_libshoal},${CMAKE_CURRENT_BINARY_DIR}/..>
  BUILD_WITH_INSTALL_RPATH ON
  INSTALL_RPATH "${autograd_rpath}")
if(SKBUILD)
  install(TARGETS shoal_autograd LIBRARY DESTINATION shoal COMPONENT python)
endif()
add_dependencies(shoal_learn shoal_autograd)  # loaded, not linked

if(SHOAL_BUILD_TESTS)
  # The same mathematics with LibTorch, which own kernels, losses and optimiser are held to.
  add_library(shoal_learn_torch_oracle OBJECT testing/torch_oracle.cc)
  target_link_libraries(shoal_learn_torch_oracle PRIVATE shoal_settings shoal_torch)
  foreach(test IN LISTS oracle_tests)
    shoal_test(learn ${test} LIBS shoal_learn $<TARGET_OBJECTS:shoal_learn_torch_oracle>
               ${SHOAL_TORCH_ROOT}/lib/libtorch_cpu.so ${SHOAL_TORCH_ROOT}/lib/libc10.so)
  endforeach()
  foreach(test IN LISTS autograd_tests)
    shoal_test(learn ${test} LIBS shoal_learn)
  endforeach()
endif()
