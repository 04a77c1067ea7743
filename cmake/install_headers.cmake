# Installs the public headers (public_headers.txt) and those that they include, no others. It runs when Shoal is installed,
# so an include that is new needs no new configuration.
cmake_policy(VERSION 3.25)

file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/public_headers.txt waiting REGEX "^shoal/")
set(found)
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST found)
    continue()
  endif()
  list(APPEND found ${header})
  file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../src/${header} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"shoal/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^\"]*\"([^\"]+)\".*" "\\1" included "${line}")
    list(APPEND waiting ${included})
  endforeach()
endwhile()
foreach(header IN LISTS found)
  get_filename_component(folder ${header} DIRECTORY)
  file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/${SHOAL_INCLUDE_FOLDER}/${folder}"
       TYPE FILE FILES "${CMAKE_CURRENT_LIST_DIR}/../src/${header}")
endforeach()
