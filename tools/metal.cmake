# The Metal backend: the target accel_backends_metal, of the units of cpp/backends/metal or of the one that says that
# there is none. On Linux they run on the emulator of tests/metal: clang compiles them, because metal-cpp holds blocks,
# and everything else stays with the compiler of the build.
set(metal_default OFF)
if(APPLE)
  set(metal_default ON)
endif()
option(ACCEL_METAL "build the Metal backend" ${metal_default})
option(ACCEL_METAL_EMULATOR "build the Metal backend against the emulator of tests/metal" OFF)
set(METAL_CPP_DIR "" CACHE PATH "folder with Metal/Metal.hpp; empty: of an installed mlx, or fetched on macOS")
set(METAL_EMULATOR_LIB "" CACHE FILEPATH "the emulator as a library; empty: built from tests/metal/emu")
set(METAL_EMULATOR_STUBS ${CMAKE_SOURCE_DIR}/tests/metal/stubs CACHE PATH "headers that metal-cpp wants of macOS")

if(NOT ACCEL_METAL AND NOT ACCEL_METAL_EMULATOR)
  add_library(accel_backends_metal STATIC cpp/backends/metal/none.cc)
  target_link_libraries(accel_backends_metal PUBLIC accel_exec)
  return()
endif()

find_package(Python REQUIRED COMPONENTS Interpreter)
if(NOT METAL_CPP_DIR)
  execute_process(OUTPUT_VARIABLE metal_cpp OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u, os
for p in u.find_spec('mlx').submodule_search_locations:
    p = os.path.join(p, 'include', 'metal_cpp')
    if os.path.isfile(os.path.join(p, 'Metal', 'Metal.hpp')):
        print(p)
        break")
  if(NOT metal_cpp AND APPLE)
    include(FetchContent)
    FetchContent_Declare(metal_cpp URL https://developer.apple.com/metal/cpp/files/metal-cpp_macOS15_iOS18.zip)
    FetchContent_MakeAvailable(metal_cpp)
    set(metal_cpp ${metal_cpp_SOURCE_DIR})
  endif()
else()
  set(metal_cpp ${METAL_CPP_DIR})
endif()
if(NOT EXISTS ${metal_cpp}/Metal/Metal.hpp)
  message(FATAL_ERROR "metal-cpp was not found: set METAL_CPP_DIR to the folder that holds Metal/Metal.hpp")
endif()

file(GLOB metal_sources CONFIGURE_DEPENDS cpp/backends/metal/*.cc)
list(FILTER metal_sources EXCLUDE REGEX "/none.cc$")
file(GLOB shader_sources CONFIGURE_DEPENDS shaders/*.metal shaders/*.h shaders/shared/*.h shaders/shared/*/*.h)
set(shader_texts ${CMAKE_BINARY_DIR}/generated/shaders.inc)
add_custom_command(OUTPUT ${shader_texts} VERBATIM DEPENDS ${shader_sources} tools/embed_shaders.py COMMAND
  ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/embed_shaders.py --out ${shader_texts} --cxx ${CMAKE_CXX_COMPILER})
set_source_files_properties(cpp/backends/metal/shaders.cc PROPERTIES OBJECT_DEPENDS ${shader_texts})

if(NOT ACCEL_METAL_EMULATOR)
  add_library(accel_backends_metal STATIC ${metal_sources} ${shader_texts})
  target_include_directories(accel_backends_metal PRIVATE ${CMAKE_BINARY_DIR}/generated)
  target_include_directories(accel_backends_metal SYSTEM PRIVATE ${metal_cpp})
  target_link_libraries(accel_backends_metal PUBLIC accel_exec "-framework Foundation" "-framework Metal")
  return()
endif()

find_program(METAL_CLANG NAMES clang++-19 clang++-20 clang++-21 clang++)
if(NOT METAL_CLANG)
  message(FATAL_ERROR "ACCEL_METAL_EMULATOR needs clang++ 19 or newer")
endif()
set(emulator_flags -O2 -g1 -fPIC -Wall -I${METAL_EMULATOR_STUBS})
set(emulator ${METAL_EMULATOR_LIB})
if(NOT emulator)
  set(emulator ${CMAKE_BINARY_DIR}/libmetalemu.so)
  file(GLOB emulator_sources CONFIGURE_DEPENDS tests/metal/emu/* tests/metal/shim/*.h)
  add_custom_command(OUTPUT ${emulator} VERBATIM DEPENDS ${emulator_sources} COMMAND
    ${CMAKE_COMMAND} -E env CXX=${METAL_CLANG} ${CMAKE_SOURCE_DIR}/tests/metal/build.sh ${CMAKE_BINARY_DIR})
endif()
set(metal_objects "")
set(metal_launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
foreach(source ${metal_sources})
  get_filename_component(unit ${source} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/metal/${unit}.o)
  list(APPEND metal_objects ${object})
  add_custom_command(OUTPUT ${object} VERBATIM DEPENDS ${source} ${shader_texts} DEPFILE ${object}.d COMMAND
    ${metal_launcher} ${METAL_CLANG} -std=c++20 -fblocks -fvisibility=hidden ${emulator_flags} ${numeric_flags} -Wextra
    -Icpp -Ishaders -I${CMAKE_BINARY_DIR}/generated -isystem ${metal_cpp} -MD -MT ${object} -MF ${object}.d
    -c ${source} -o ${object} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/metal)
set_source_files_properties(${metal_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_library(accel_backends_metal STATIC ${metal_objects})
set_target_properties(accel_backends_metal PROPERTIES LINKER_LANGUAGE CXX)
add_custom_target(metal_emulator DEPENDS ${emulator})
add_dependencies(accel_backends_metal metal_emulator)
target_link_libraries(accel_backends_metal PUBLIC accel_exec ${emulator} BlocksRuntime ${CMAKE_DL_LIBS} Threads::Threads)
