# Target `torch`: LibTorch's CPU half, as an imported target of our own. find_package(Torch) would ask for cuDNN and
# more; all we need is libtorch_cpu, libc10 and the headers.
set(MOETUNE_TORCH_DIR "" CACHE PATH "Folder with LibTorch's include/ and lib/; empty: what ./moetune finds")
set(torch_dir "${MOETUNE_TORCH_DIR}")
if(NOT torch_dir AND MOETUNE_TORCH AND SKBUILD)  # pip's: the torch that is beside the package
  execute_process(
    COMMAND ${PYTHON_EXECUTABLE} -c
            "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT torch_dir)
    message(FATAL_ERROR "MOETUNE_TORCH: ${PYTHON_EXECUTABLE} has no torch; expected one that is installed before "
                        "(pip install torch) and pip install --no-build-isolation")
  endif()
endif()
if(NOT torch_dir)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/moetune --torch-dir OUTPUT_VARIABLE torch_dir
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT EXISTS "${torch_dir}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found. Run `./moetune test`, which fetches it, or pass -DMOETUNE_TORCH_DIR=DIR "
                      "(DIR holds include/ and lib/), or build only the planning half: cmake --preset plan")
endif()
file(GLOB torch_version_file "${torch_dir}/version.py" "${torch_dir}/build-version")
list(GET torch_version_file 0 torch_version_file)
file(STRINGS "${torch_version_file}" torch_version REGEX "[0-9]+\\.[0-9]+\\.[0-9]+" LIMIT_COUNT 1)
string(REGEX REPLACE "[^0-9]*([0-9]+\\.[0-9]+\\.[0-9]+).*" "\\1" torch_version "${torch_version}")
message(STATUS "LibTorch ${torch_version}: ${torch_dir}")

# libtorch_cpu needs libcupti and libcudart: from the wheels beside torch, or from the CUDA toolkit.
file(GLOB torch_lib_dirs "${torch_dir}/../nvidia/*/lib")
list(APPEND torch_lib_dirs "${torch_dir}/lib" "${torch_dir}/../torch.libs" /usr/local/cuda/lib64
     /usr/local/cuda/extras/CUPTI/lib64)
foreach(dir IN LISTS torch_lib_dirs)
  if(EXISTS "${dir}")
    get_filename_component(dir "${dir}" REALPATH)
    list(APPEND torch_link_options "LINKER:-rpath,${dir}" "LINKER:-rpath-link,${dir}")
  endif()
endforeach()

foreach(library c10 torch_cpu)
  add_library(${library} SHARED IMPORTED GLOBAL)
  set_target_properties(${library} PROPERTIES IMPORTED_LOCATION "${torch_dir}/lib/lib${library}.so")
endforeach()
# The OpenMP library that libtorch_cpu loads, because a second library would start its own threads.
file(GLOB torch_openmp "${torch_dir}/lib/libgomp*.so*" "${torch_dir}/../torch.libs/libgomp*.so*")
list(APPEND torch_openmp gomp)
list(GET torch_openmp 0 torch_openmp)
add_library(torch INTERFACE IMPORTED GLOBAL)
target_link_libraries(torch INTERFACE torch_cpu c10 ${torch_openmp} Threads::Threads)
# After all other folders: LibTorch's include/ carries an fmt of its own, which must not hide the one we link.
target_compile_options(
  torch INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter \"${torch_dir}/include\">"
                  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter \"${torch_dir}/include/torch/csrc/api/include\">")
# DT_RPATH, unlike DT_RUNPATH, also serves what libtorch_cpu itself loads.
target_link_options(torch INTERFACE ${torch_link_options} LINKER:--disable-new-dtags)
