# Warnings are errors in our own code; headers of dependencies are included as system headers.
add_library(moe_warnings INTERFACE)
target_compile_options(moe_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                                              -Werror)
