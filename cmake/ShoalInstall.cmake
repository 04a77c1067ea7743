# What a C++ program or plug-in needs of Shoal: `cmake --install BUILD --prefix PREFIX --component development`, then
# find_package(shoal) with PREFIX in CMAKE_PREFIX_PATH. examples/cmake_project and examples/plugin_env show its use.
include(CMakePackageConfigHelpers)

set(SHOAL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/shoal)
install(TARGETS shoal shoal_settings EXPORT shoalTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
# Beside the library: process::native_interpreter() looks for it there.
install(TARGETS shoal-worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT shoalTargets NAMESPACE shoal:: DESTINATION ${SHOAL_CMAKE_DIR} COMPONENT development)
install(CODE "set(SHOAL_INCLUDE_FOLDER ${CMAKE_INSTALL_INCLUDEDIR})" COMPONENT development)
install(SCRIPT cmake/install_headers.cmake COMPONENT development)

configure_package_config_file(cmake/shoalConfig.cmake.in shoalConfig.cmake INSTALL_DESTINATION ${SHOAL_CMAKE_DIR})
write_basic_package_version_file(shoalConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/shoalConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/shoalConfigVersion.cmake
  DESTINATION ${SHOAL_CMAKE_DIR} COMPONENT development)
