#include "runtime/trace.h"

#include <cinttypes>
#include <cstdio>

#include "plan/report.h"

namespace accel {

// Microseconds, as the format has them, with all nanoseconds.
static std::string micros(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%" PRId64 ".%03d", ns / 1000, int(ns % 1000));
  return text;
}

static std::string event(const std::string& name, const char* category, int thread, int64_t begin,
                         int64_t end, const std::string& args) {
  return ",\n{\"name\":" + json_text(name) + ",\"cat\":\"" + category +
         "\",\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(thread) +
         ",\"ts\":" + micros(begin) + ",\"dur\":" + micros(end - begin) + ",\"args\":{" + args +
         "}}";
}

static std::string command_event(const PlanData& p, const Command& c, int thread, int64_t begin,
                                 int64_t end) {
  std::string name = c.row->kernel, args = "\"kernel\":" + json_text(name);
  if (size_t(c.step) < p.steps.size()) {
    const Step& step = p.steps[size_t(c.step)];
    name = step_name(p, c.step);
    args += ",\"node\":" + std::to_string(step.node);
    if (step.node > 0) args += ",\"site\":" + json_text(p.graph.node(step.node).site.to_string());
    std::string results;
    for (const Type& t : step.call.results)
      results += (results.empty() ? "" : ", ") + t.to_string();
    args += ",\"results\":" + json_text(results);
  }
  return event(name, "node", thread, begin, end, args);
}

std::string chrome_trace(const PlanData& p, const std::vector<Trace::Run>& runs) {
  const std::string label = p.label.empty() ? "plan" : p.label;
  std::string text =
      "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\","
      "\"pid\":1,\"args\":{\"name\":" +
      json_text("accel: " + label) + "}}";
  int named = 0;
  for (const Trace::Run& run : runs)
    for (; named <= run.instance; ++named)
      text += ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":" +
              std::to_string(named + 1) + ",\"args\":{\"name\":\"graph instance " +
              std::to_string(named) + "\"}}";
  int n = 0;
  for (const Trace::Run& run : runs) {
    const std::vector<int64_t>& at = run.command_ns;
    if (at.empty()) continue;  // refused where execution starts
    const int thread = run.instance + 1;
    text += event(label, "submission", thread, at.front(), at.back(),
                  "\"submission\":" + std::to_string(++n));
    for (size_t i = 0; i + 1 < at.size() && i < p.commands.size(); ++i)
      text += command_event(p, p.commands[i], thread, at[i], at[i + 1]);
  }
  return text + "\n]}\n";
}

}  // namespace accel
