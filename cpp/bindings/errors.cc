// accel::Error to the Python class of its kind, with the numbers as fields. One translator for all.
#include <cerrno>
#include <filesystem>

#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::graph:
      return "GraphError";
    case ErrorKind::shape:
      return "ShapeError";
    case ErrorKind::dtype:
      return "DTypeError";
    case ErrorKind::attr:
      return "AttrError";
    case ErrorKind::unsupported:
      return "UnsupportedError";
    case ErrorKind::capacity:
      return "CapacityError";
    case ErrorKind::bind:
      return "BindError";
    case ErrorKind::device:
      return "DeviceError";
    case ErrorKind::compile:
      return "CompileError";
    case ErrorKind::lost:
      return "DeviceLostError";
    case ErrorKind::format:
      return "FormatError";
    case ErrorKind::internal:
      return "InternalError";
  }
  return "Error";
}

py::list diagnostics_of(const Error& error) {
  py::list list;
  for (const Diagnostic& d : error.diagnostics)
    list.append(make_named("Diagnostic", d.op, d.operand, d.message, d.site.file, d.site.line));
  return list;
}

py::list problems_of(const Error& error) {
  py::list list;
  for (const Problem& p : error.problems)
    list.append(make_named("Problem", p.code, p.name, p.message));
  return list;
}

// Kernel and why, as the selections name them.
py::list rejected_of(const Error& error) {
  py::list list;
  for (const Problem& p : error.problems) list.append(make_named("Rejection", p.name, p.message));
  return list;
}

}  // namespace

py::object exception_of(const Error& error) {
  const char* name = class_name(error.kind);
  py::object e = py::module_::import("accel._errors").attr(name)(error.what());
  const bool one = error.diagnostics.size() == 1;
  e.attr("code") = error.code;
  e.attr("op") = error.op;
  e.attr("operand") = error.operand;
  e.attr("file") = error.site.file;
  e.attr("line") = error.site.line;
  e.attr("message") = one ? error.diagnostics[0].message : std::string(error.what());
  if (!error.diagnostics.empty()) e.attr("diagnostics") = diagnostics_of(error);
  if (error.kind == ErrorKind::unsupported) e.attr("rejected") = rejected_of(error);
  else if (!error.problems.empty()) e.attr("problems") = problems_of(error);
  if (error.kind == ErrorKind::capacity) {
    e.attr("requested") = error.requested;
    e.attr("free") = error.available;
    e.attr("limit") = error.limit;
  }
  e.attr("path") = error.path;
  return e;
}

void add_errors(py::module_&) {
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& error) {
      py::object e = exception_of(error);
      PyErr_SetObject(py::type::handle_of(e).ptr(), e.ptr());
    } catch (const std::filesystem::filesystem_error& error) {
      errno = error.code().value();
      PyErr_SetFromErrnoWithFilename(PyExc_OSError, error.path1().c_str());
    }
  });
}

}  // namespace accel::bindings
