# Writes the header that names, for each instruction set, a SHA-256 over what makes its kernels: the sources (by path
# below ROOT, in order), the flags and the compiler. Runs whenever a source changes.
#
#   cmake -DROOT=<tree> -DOUT=<header> -DCOMPILER=<id and version> -DFLAGS=<common> -DISAS="base|..,avx2|.."
#         -P kernel_digest.cmake
cmake_minimum_required(VERSION 3.18)
file(GLOB sources RELATIVE ${ROOT} ${ROOT}/cpp/backends/cpu/kernels/* ${ROOT}/cpp/backends/cpu/kernel_api.h
     ${ROOT}/shaders/shared/*.h ${ROOT}/shaders/shared/*/*.h)
list(SORT sources)
set(all "")
foreach(source ${sources})
  file(SHA256 ${ROOT}/${source} hash)
  string(APPEND all "${source} ${hash}\n")
endforeach()
set(text "// Written by tools/kernel_digest.cmake: instruction set, SHA-256 of its kernels' sources, flags and compiler.\n")
string(REPLACE "," ";" ISAS "${ISAS}")
foreach(row ${ISAS})
  string(REPLACE "|" ";" row "${row}")
  list(POP_FRONT row isa)
  string(SHA256 digest "accel.kernels.1\n${all}${COMPILER}\n${FLAGS}\n${isa} ${row}\n")
  string(APPEND text "{\"${isa}\", \"${digest}\"},\n")
endforeach()
file(WRITE ${OUT} "${text}")
