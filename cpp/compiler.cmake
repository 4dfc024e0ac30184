# What every C++ target shares. The compiler itself is chosen before CMake runs (scripts in the Makefile or
# the environment's CXX): hipcc where one is found, else the host's compiler.

option(HIPPLAN_WERROR "Warnings are errors (CI)" OFF)
set(HIPPLAN_SANITIZE "" CACHE STRING "Sanitizers, such as address,undefined or thread")

add_library(hipplan_flags INTERFACE)
target_include_directories(hipplan_flags INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/cpp)
target_compile_options(hipplan_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(HIPPLAN_WERROR)
  target_compile_options(hipplan_flags INTERFACE -Werror)
endif()
if(HIPPLAN_SANITIZE)
  target_compile_options(hipplan_flags INTERFACE -fsanitize=${HIPPLAN_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(hipplan_flags INTERFACE -fsanitize=${HIPPLAN_SANITIZE})
endif()
