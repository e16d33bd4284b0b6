# The CUDA backend: the target accel_backends_cuda and the kernels that it embeds, PTX made of shaders/ by NVRTC, which is
# a package of the build's Python and needs neither a GPU nor a toolkit. Without it the backend says why it has none.
set(ACCEL_CUDA AUTO CACHE STRING "build the CUDA kernels: ON (needs NVRTC), OFF, or AUTO (on Linux, where NVRTC is found)")
set(NVRTC_DIR "" CACHE PATH "a folder that holds libnvrtc.so; empty: of the package of the build's Python")

find_package(Python REQUIRED COMPONENTS Interpreter)
set(cuda_kernels ${CMAKE_BINARY_DIR}/generated/cuda_shaders.inc)
# Build trees side by side in build/ share what NVRTC made of a text.
get_filename_component(cuda_cache ${CMAKE_BINARY_DIR} DIRECTORY)
if(NOT cuda_cache STREQUAL ${CMAKE_SOURCE_DIR}/build)
  set(cuda_cache ${CMAKE_BINARY_DIR})
endif()
set(cuda_options --out ${cuda_kernels} --cxx ${CMAKE_CXX_COMPILER} --cache ${cuda_cache}/cuda_cache)
if(NVRTC_DIR)
  list(APPEND cuda_options --nvrtc ${NVRTC_DIR})
endif()
if(ACCEL_CUDA STREQUAL "AUTO")
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    list(APPEND cuda_options --absent "the CUDA executor is built on Linux alone")
  endif()
elseif(ACCEL_CUDA)
  list(APPEND cuda_options --need)
else()
  list(APPEND cuda_options --absent "this build was made with ACCEL_CUDA=OFF")
endif()
file(GLOB cuda_shaders CONFIGURE_DEPENDS shaders/*.metal shaders/*.h shaders/shared/*.h shaders/shared/*/*.h shaders/cuda/*
     tools/mslc/*.py)
add_custom_command(OUTPUT ${cuda_kernels} VERBATIM DEPENDS ${cuda_shaders} tools/cuda_shaders.py tools/ptx_waits.py
  tools/embed_shaders.py
  COMMENT "PTX of the shaders" COMMAND ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/cuda_shaders.py ${cuda_options})

file(GLOB cuda_sources CONFIGURE_DEPENDS cpp/backends/cuda/*.cc)
if(cuda_sources)
  add_library(accel_backends_cuda STATIC ${cuda_sources})
  set_source_files_properties(cpp/backends/cuda/modules.cc PROPERTIES OBJECT_DEPENDS ${cuda_kernels})
  target_include_directories(accel_backends_cuda PRIVATE ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(accel_backends_cuda PUBLIC accel_exec ${CMAKE_DL_LIBS})
else()
  add_library(accel_backends_cuda INTERFACE)
endif()
add_custom_target(cuda_kernels DEPENDS ${cuda_kernels})
