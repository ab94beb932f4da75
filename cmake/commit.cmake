# `cmake -D SOURCE=FOLDER -D HEADER=FILE -P commit.cmake` writes a header with the commit of the sources, and
# whether they have uncommitted changes. FILE is not touched if its content is already right.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=40 --exclude *
                OUTPUT_VARIABLE state OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
set(commit unknown)
set(dirty 0)
if(NOT failed AND state MATCHES "^([0-9a-f]+)(-dirty)?$")
  set(commit ${CMAKE_MATCH_1})
  if(CMAKE_MATCH_2)
    set(dirty 1)
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define MOETUNE_COMMIT \"${commit}\"\n#define MOETUNE_DIRTY ${dirty}\n")
