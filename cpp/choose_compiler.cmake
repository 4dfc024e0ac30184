# hipcc compiles the core wherever one is found: in ROCM_PATH, which is /opt/rocm unless it is set, or on PATH.
# CXX or CMAKE_CXX_COMPILER overrides.
# No HIP library is linked and the core has no device code, so any host compiler does as well.

# scikit-build-core sets CXX to Python's own compiler where the user has not; pyproject.toml tells the two apart.
if(SKBUILD)
  set(given ${HIPPLAN_CXX_GIVEN})
else()
  set(given $ENV{CXX})
endif()
if(NOT CMAKE_CXX_COMPILER AND NOT given)
  set(rocm /opt/rocm)
  if(DEFINED ENV{ROCM_PATH})
    set(rocm $ENV{ROCM_PATH})
  endif()
  # Not in CMake's own list of folders: a hipcc that PATH leaves out is left out.
  find_program(HIPPLAN_HIPCC hipcc HINTS ${rocm}/bin NO_CMAKE_SYSTEM_PATH)
  if(HIPPLAN_HIPCC)
    set(CMAKE_CXX_COMPILER ${HIPPLAN_HIPCC})
  else()
    # CMake's own message blames CXX, which the user may never have set.
    string(REGEX MATCH "^[^ ]+" python_compiler "$ENV{CXX}")
    find_program(HIPPLAN_CXX NAMES ${python_compiler} c++ g++ clang++)
    if(NOT HIPPLAN_CXX)
      message(FATAL_ERROR "hipplan needs a C++ compiler, and none was found. Install g++ (apt-get install g++), or install "
        "hipplan without its compiled part, which checks and previews plans: HIPPLAN_PURE=1 pip install .")
    endif()
    get_filename_component(name "${HIPPLAN_CXX}" NAME)
    if(SKBUILD AND python_compiler AND NOT name STREQUAL python_compiler AND NOT HIPPLAN_CXX STREQUAL python_compiler)
      set(CMAKE_CXX_COMPILER ${HIPPLAN_CXX})  # Python's own compiler is not installed, but another one is
    endif()
  endif()
endif()

if("${CMAKE_CXX_COMPILER}" MATCHES "hipcc" OR (given AND "$ENV{CXX}" MATCHES "hipcc"))
  # hipcc takes NVIDIA's compiler if nvcc is on PATH, and looks for a GPU at each call (old ones print a
  # traceback when there is none) unless told the platform and a target.
  set(ENV{HIP_PLATFORM} amd)
  set(ENV{HCC_AMDGPU_TARGET} gfx90a)
  set(CMAKE_CXX_COMPILER_LAUNCHER env HIP_PLATFORM=amd HCC_AMDGPU_TARGET=gfx90a)
  set(CMAKE_CXX_LINKER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
