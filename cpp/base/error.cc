#include "base/error.h"

#include <algorithm>

namespace accel {

std::string Site::to_string() const {
  const size_t slash = file.find_last_of("/\\");
  return (slash == std::string::npos ? file : file.substr(slash + 1)) + ":" + std::to_string(line);
}

std::string Diagnostic::text() const {
  return site.file.empty() ? message : message + ", recorded at " + site.to_string();
}

Error graph_error(std::vector<Diagnostic> diagnostics) {
  std::sort(diagnostics.begin(), diagnostics.end(),
            [](const Diagnostic& a, const Diagnostic& b) { return a.text() < b.text(); });
  std::string text;
  for (const Diagnostic& d : diagnostics) text += (text.empty() ? "" : "\n") + d.text();
  const bool one = diagnostics.size() == 1;
  if (!one) text = std::to_string(diagnostics.size()) + " mistakes\n" + text;
  static const char* const codes[] = {"graph", "shape", "dtype", "attr"};
  const ErrorKind kind = one ? diagnostics[0].kind : ErrorKind::graph;
  Error e(kind, codes[int(kind)], text);
  if (one)
    e.op = diagnostics[0].op, e.operand = diagnostics[0].operand, e.site = diagnostics[0].site;
  e.diagnostics = std::move(diagnostics);
  return e;
}

Error bind_error(std::vector<Problem> problems) {
  std::sort(problems.begin(), problems.end(),
            [](const Problem& a, const Problem& b) { return a.message < b.message; });
  std::string text, code = problems.front().code;
  for (const Problem& p : problems) {
    text += (text.empty() ? "" : "\n") + p.message;
    if (p.code != code) code = "several";
  }
  Error e(ErrorKind::bind, code, text);
  e.problems = std::move(problems);
  return e;
}

Error unsupported_error(const std::string& message) {
  return {ErrorKind::unsupported, "unsupported", message};
}

Error capacity_error(const std::string& code, const std::string& message, int64_t requested,
                     int64_t available, int64_t limit) {
  Error e(ErrorKind::capacity, code, message);
  e.requested = requested, e.available = available, e.limit = limit;
  return e;
}

Error device_error(const std::string& message, const std::string& code) {
  return {ErrorKind::device, code, message};
}
Error lost_error(const std::string& message) {
  return {ErrorKind::lost, "lost", message};
}

Error format_error(const std::string& path, const std::string& message) {
  Error e(ErrorKind::format, "format", path + ": " + message);
  e.path = path;
  return e;
}

void internal_failure(const char* condition, const char* file, int line) {
  throw Error(ErrorKind::internal, "internal",
              std::string(file) + ":" + std::to_string(line) + ": " + condition +
                  " does not hold; please report this");
}

}  // namespace accel
