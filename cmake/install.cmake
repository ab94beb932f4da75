# `cmake --install`: the programs, the data files, and a package. find_package(moetune) gives moetune::plan (the
# planning half) and, where it was built, moetune::layer (what runs layers, with LibTorch).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moetune)

add_library(moetune_plan INTERFACE)
target_link_libraries(moetune_plan INTERFACE moe_search moe_export moe_record)
set_target_properties(moetune_plan PROPERTIES EXPORT_NAME plan)
set(exported moetune_plan)
if(MOETUNE_RUN)
  add_library(moetune_layer INTERFACE)
  target_link_libraries(moetune_layer INTERFACE moetune_plan moe_torch)
  set_target_properties(moetune_layer PROPERTIES EXPORT_NAME layer)
  list(APPEND exported moetune_layer)
endif()
get_property(folders GLOBAL PROPERTY moe_folders)
install(TARGETS ${exported} ${folders} EXPORT moetuneTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT moetuneTargets NAMESPACE moetune:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/moe/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moe FILES_MATCHING PATTERN "*.h"
        PATTERN measure EXCLUDE)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/moetuneConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/moetuneConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moetuneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/moetuneConfig.cmake ${PROJECT_BINARY_DIR}/moetuneConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/torch.cmake
        DESTINATION ${package_dir})

install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/moetune/configs)
install(TARGETS moetune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
if(MOETUNE_RUN)
  install(TARGETS moetune-run RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endif()
