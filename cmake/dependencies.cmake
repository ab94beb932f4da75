# Everything found here is installed by ./moetune, or was copied by stage_dependencies.sh; nothing is downloaded while
# configuring.
if(EXISTS ${PROJECT_SOURCE_DIR}/.staged/usr)
  list(PREPEND CMAKE_PREFIX_PATH ${PROJECT_SOURCE_DIR}/.staged/usr)
endif()
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers alone: Boost.Math
find_package(benchmark 1.7 REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
if(MOETUNE_TESTS)
  find_package(GTest 1.12 REQUIRED)
  find_package(boost_context 1.74 QUIET CONFIG)  # the emulation of GPUs, untested without
endif()
if(MOETUNE_RUN)
  include(torch)
  include(cuda)
endif()
