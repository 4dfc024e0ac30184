# What every C++ target shares.

option(HIPPLAN_WERROR "Warnings are errors (CI)" OFF)
set(HIPPLAN_SANITIZE "" CACHE STRING "Sanitizers, such as address,undefined or thread")

add_library(hipplan_flags INTERFACE)
target_include_directories(hipplan_flags INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/cpp)
target_compile_options(hipplan_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(HIPPLAN_WERROR)
  target_compile_options(hipplan_flags INTERFACE -Werror)
endif()
if(HIPPLAN_SANITIZE)
  # A report needs functions and lines alone.
  target_compile_options(hipplan_flags INTERFACE -fsanitize=${HIPPLAN_SANITIZE} -fno-sanitize-recover=undefined
                         -fno-omit-frame-pointer -g1)
  target_link_options(hipplan_flags INTERFACE -fsanitize=${HIPPLAN_SANITIZE})
endif()
if(HIPPLAN_SANITIZE STREQUAL "thread")  # compiles each source by itself, to find one that includes too little
  set(CMAKE_UNITY_BUILD OFF)
endif()

get_filename_component(compiler_name ${CMAKE_CXX_COMPILER} NAME)
if(compiler_name MATCHES "hipcc")
  # The core has no device code: plain C++, not HIP. hipcc links libamdhip64 by itself; nothing needs it.
  target_compile_options(hipplan_flags INTERFACE "SHELL:-x c++" -D__HIP_PLATFORM_AMD__)
  target_link_options(hipplan_flags INTERFACE -Wl,--as-needed)
endif()
message(STATUS "hipplan: compiling with ${CMAKE_CXX_COMPILER}")
