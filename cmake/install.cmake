# `cmake --install`: the programs (components planning and running), the data files (data), and the library with its
# CMake package: find_package(moetune) gives moetune::plan (the planning half) and, where it was built, moetune::layer
# (what runs layers, with LibTorch).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moetune)

# Builds the targets that a component installs, before anything is installed: ./moetune builds only the programs.
function(build_before_install component)
  list(JOIN ARGN " " targets)
  install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\" --target ${targets}
                                RESULT_VARIABLE failed OUTPUT_VARIABLE printed)
                if(failed)
                  message(FATAL_ERROR \"\${printed}nothing is installed: building ${targets} failed\")
                endif()" COMPONENT ${component})
endfunction()

add_library(moetune_plan INTERFACE)
target_link_libraries(moetune_plan INTERFACE moe_serve moe_formats moe_record)
set_target_properties(moetune_plan PROPERTIES EXPORT_NAME plan)
set(exported moetune_plan)
if(MOETUNE_RUN)
  add_library(moetune_layer INTERFACE)
  target_link_libraries(moetune_layer INTERFACE moetune_plan moe_stack moe_torch moe_train)
  set_target_properties(moetune_layer PROPERTIES EXPORT_NAME layer)
  list(APPEND exported moetune_layer)
endif()
get_property(folders GLOBAL PROPERTY moe_folders)
build_before_install(planning moetune)
if(MOETUNE_RUN)
  build_before_install(running moetune-run)
endif()
if(MOETUNE_TORCH)
  build_before_install(torch moetune_torch)
  install(TARGETS moetune_torch LIBRARY DESTINATION lib COMPONENT torch)
  # It finds the libraries of torch, which are loaded before it.
  set(library "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/$<TARGET_FILE_NAME:moetune_torch>")
  install(CODE "file(RPATH_REMOVE FILE \"${library}\")" COMPONENT torch)
endif()
build_before_install(Unspecified ${folders})
install(TARGETS ${exported} ${folders} EXPORT moetuneTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT moetuneTargets NAMESPACE moetune:: DESTINATION ${package_dir})
# Public is all but what is in a folder detail, and what is for one kind of device.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/moe/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moe
        FILES_MATCHING PATTERN "*.h"
        PATTERN detail EXCLUDE PATTERN cuda EXCLUDE PATTERN cpu EXCLUDE PATTERN store EXCLUDE PATTERN measure EXCLUDE)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/moetuneConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/moetuneConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moetuneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/moetuneConfig.cmake ${PROJECT_BINARY_DIR}/moetuneConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/torch.cmake
        DESTINATION ${package_dir})

install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/moetune/configs COMPONENT data)
foreach(script history records style)  # what the verb history runs
  install(FILES ${PROJECT_SOURCE_DIR}/plots/${script}.py DESTINATION ${CMAKE_INSTALL_DATADIR}/moetune/plots
          COMPONENT data)
endforeach()
set(completion_dir ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
if(SKBUILD)  # a wheel: the prefix is the Python package, where bash does not look
  set(completion_dir ${SKBUILD_DATA_DIR}/share/bash-completion/completions)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/commands/cli/completion.bash RENAME moetune DESTINATION ${completion_dir}
        COMPONENT planning)
install(TARGETS moetune RUNTIME DESTINATION bin COMPONENT planning)
if(MOETUNE_RUN)
  # bin/moetune-run finds LibTorch first, so nothing says where this machine has it.
  configure_file(${PROJECT_SOURCE_DIR}/commands/cli/moetune-run.in ${PROJECT_BINARY_DIR}/install/moetune-run @ONLY)
  install(PROGRAMS ${PROJECT_BINARY_DIR}/install/moetune-run DESTINATION bin COMPONENT running)
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/libtorch.sh DESTINATION libexec/moetune COMPONENT running)
  install(TARGETS moetune-run RUNTIME DESTINATION libexec/moetune COMPONENT running)
  install(CODE [[file(RPATH_REMOVE FILE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/libexec/moetune/moetune-run")]]
          COMPONENT running)
endif()
