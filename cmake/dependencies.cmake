# Everything found here is installed by ./moetune; nothing is downloaded while configuring.
find_package(fmt 9 REQUIRED)
find_package(Eigen3 3.4 REQUIRED NO_MODULE)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers alone: Boost.Math
find_package(benchmark 1.7 REQUIRED)
find_package(Threads REQUIRED)
if(MOETUNE_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()
if(MOETUNE_RUN)
  include(torch)
endif()
