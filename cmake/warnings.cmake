# Warnings of our own code; headers of dependencies are included as system headers. They are errors in CI and for those
# who work on the code (CMakePresets.json); in a plain build, perhaps with a compiler of next year, they are not.
option(MOETUNE_WERROR "Warnings are errors" OFF)
if(MOETUNE_WERROR)
  set(cxx_errors -Werror)
  set(cuda_errors "SHELL:-Werror all-warnings")
endif()
add_library(moe_warnings INTERFACE)
target_compile_options(
  moe_warnings
  INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual ${cxx_errors}>
    # What nvcc hands to the C++ compiler is its own code, not pedantic.
    "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_errors}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler -Wall,-Wextra,-Wshadow>")
