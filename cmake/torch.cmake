# Target `torch`: LibTorch's CPU half, as an imported target of our own. find_package(Torch) would ask for cuDNN and
# more; all we need is libtorch_cpu, libc10 and the headers.
set(MOETUNE_TORCH_VERSION 2.11)
set(MOETUNE_TORCH_DIR "" CACHE PATH "Folder with LibTorch's include/ and lib/; empty: Python's torch, then the cache")

# The torch package that python3 would import, or nothing. It is located, not imported: that would take seconds.
function(moe_python_torch out)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    WORKING_DIRECTORY / OUTPUT_VARIABLE dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${out} "${dir}" PARENT_SCOPE)
endfunction()

# Sets `out` to the version of the LibTorch in `dir`, or to "" if there is none.
function(moe_torch_version dir out)
  set(${out} "" PARENT_SCOPE)
  if(EXISTS "${dir}/version.py" AND EXISTS "${dir}/lib/libtorch_cpu.so" AND EXISTS "${dir}/include/ATen/ATen.h")
    file(STRINGS "${dir}/version.py" line REGEX "^__version__")
    string(REGEX MATCH "[0-9]+\\.[0-9.]*[0-9]" version "${line}")
    set(${out} "${version}" PARENT_SCOPE)
  endif()
endfunction()

function(moe_find_torch out)
  if(MOETUNE_TORCH_DIR)
    set(candidates "${MOETUNE_TORCH_DIR}")
  else()
    set(cache "$ENV{XDG_CACHE_HOME}")
    if(NOT cache)
      set(cache "$ENV{HOME}/.cache")
    endif()
    moe_python_torch(python)
    set(candidates ${python} "${cache}/moetune/torch-2.11.0/torch")
  endif()
  foreach(dir IN LISTS candidates)
    moe_torch_version("${dir}" version)
    if(version VERSION_GREATER_EQUAL MOETUNE_TORCH_VERSION)
      message(STATUS "LibTorch ${version}: ${dir}")
      set(${out} "${dir}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  list(JOIN candidates ", " looked)
  message(FATAL_ERROR "LibTorch >= ${MOETUNE_TORCH_VERSION} not found (looked in: ${looked}). Run ./moetune, which "
                      "fetches it, or pass -DMOETUNE_TORCH_DIR=DIR (DIR holds include/ and lib/), or build without it: "
                      "cmake --preset plan")
endfunction()

moe_find_torch(torch_dir)

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
add_library(torch INTERFACE IMPORTED GLOBAL)
target_link_libraries(torch INTERFACE torch_cpu c10 Threads::Threads)
# After all other folders: LibTorch's include/ carries an fmt of its own, which must not hide the one we link.
target_compile_options(torch INTERFACE "SHELL:-idirafter ${torch_dir}/include"
                                       "SHELL:-idirafter ${torch_dir}/include/torch/csrc/api/include")
# DT_RPATH, unlike DT_RUNPATH, also serves what libtorch_cpu itself loads.
target_link_options(torch INTERFACE ${torch_link_options} LINKER:--disable-new-dtags)
