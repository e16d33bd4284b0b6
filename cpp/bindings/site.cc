// The caller's line: the nearest Python frame outside the package, copied so that it outlives its
// code object.
#include <cstring>

#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

std::string& package_folder() {
  static std::string folder;
  return folder;
}

// Files directly in the package are the library; its subpackages are built on the public API and
// count as callers.
bool in_library(const char* file, size_t length) {
  const std::string& folder = package_folder();
  return length > folder.size() && std::memcmp(file, folder.data(), folder.size()) == 0 &&
         !std::memchr(file + folder.size(), '/', length - folder.size());
}

}  // namespace

void remember_package_folder(const std::string& folder) {
  package_folder() = folder + "/";
}

Site caller_site() {
  check_fork();  // every recording call comes by here
  Site site;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());  // a new reference, or null
  while (frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    Py_ssize_t length = 0;
    const char* file = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
    const bool found = file && !in_library(file, size_t(length));
    if (!file) PyErr_Clear();
    if (found) site = Site(std::string(file, size_t(length)), PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* back = found ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return site;
}

}  // namespace accel::bindings
