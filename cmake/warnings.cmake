# Warnings are errors in our own code; headers of dependencies are included as system headers.
add_library(moe_warnings INTERFACE)
target_compile_options(
  moe_warnings
  INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror>
            # What nvcc hands to the C++ compiler is its own code, not pedantic.
            "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>"
            "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler -Wall,-Wextra,-Wshadow>")
