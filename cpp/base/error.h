// The one error hierarchy. Messages say what is and what must be; numbers are fields too.
#pragma once
#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

namespace accel {

// A place in the user's code. file is the full path; texts show its last component.
struct Site {
  std::string file;
  int line = 0;
  Site() = default;
  Site(std::string f, int l) : file(std::move(f)), line(l) {}
  // C++ callers: `Site site = std::source_location::current()` as a default argument.
  Site(const std::source_location& s)
      : file(s.file_name()), line(int(s.line())) {}  // NOLINT: implicit
  std::string to_string() const;                     // "model.py:12"
};

enum class ErrorKind : uint8_t {
  graph,
  shape,
  dtype,
  attr,
  unsupported,
  capacity,
  bind,
  device,
  compile,
  lost,
  format,
  internal
};

// One recorded mistake. message is the text up to ", recorded at".
struct Diagnostic {
  ErrorKind kind = ErrorKind::attr;
  std::string op, operand, message;
  Site site;
  std::string text() const;
};

// One problem of a set of bindings; name is the port or scalar.
struct Problem {
  std::string code, name, message;
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string code, const std::string& message)
      : std::runtime_error(message), kind(kind), code(std::move(code)) {}
  ErrorKind kind;
  std::string code;
  std::string op, operand;
  Site site;
  std::vector<Diagnostic> diagnostics;              // graph errors
  std::vector<Problem> problems;                    // bind errors
  int64_t requested = 0, available = 0, limit = 0;  // capacity errors
  std::string path;                                 // format and compile errors
};

// One diagnostic is raised as its own class, several as a graph error that holds them.
Error graph_error(std::vector<Diagnostic> diagnostics);
// Problems are sorted by text and joined; code is the common one, or "several".
Error bind_error(std::vector<Problem> problems);
inline Error bind_error(std::string code, std::string name, std::string message) {
  return bind_error({Problem{std::move(code), std::move(name), std::move(message)}});
}
inline Error attr_error(const std::string& op, const std::string& operand,
                        const std::string& message) {
  return graph_error({Diagnostic{ErrorKind::attr, op, operand, message, {}}});
}
Error unsupported_error(const std::string& message);
Error capacity_error(const std::string& code, const std::string& message, int64_t requested,
                     int64_t available, int64_t limit);
Error device_error(const std::string& message, const std::string& code = "driver");
Error lost_error(const std::string& message);
Error format_error(const std::string& path, const std::string& message);

// A defect of the library, never of its user.
[[noreturn]] void internal_failure(const char* condition, const char* file, int line);
#define ACCEL_CHECK(condition) \
  ((condition) ? (void)0 : ::accel::internal_failure(#condition, __FILE__, __LINE__))

}  // namespace accel
