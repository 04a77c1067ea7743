# shoal_torch: the LibTorch of the torch wheel which the build's Python imports, found without importing it (importing takes
# seconds). -DSHOAL_TORCH_ROOT=… names another one: the folder that holds include/ and lib/. Without torch there is no such target.
if(NOT SHOAL_TORCH_ROOT)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0], end='')"
    OUTPUT_VARIABLE torch_root RESULT_VARIABLE torch_missing ERROR_QUIET)
  if(torch_missing)
    message(STATUS "${Python_EXECUTABLE} has no torch: _torch and _models are not built")
    return()
  endif()
  set(SHOAL_TORCH_ROOT ${torch_root} CACHE PATH "LibTorch: the folder that holds include/ and lib/")
endif()

add_library(shoal_torch INTERFACE)
target_include_directories(shoal_torch SYSTEM INTERFACE
  ${SHOAL_TORCH_ROOT}/include ${SHOAL_TORCH_ROOT}/include/torch/csrc/api/include)
target_link_libraries(shoal_torch INTERFACE ${SHOAL_TORCH_ROOT}/lib/libtorch_cpu.so ${SHOAL_TORCH_ROOT}/lib/libc10.so)
