#include "plan/report.h"

#include <algorithm>
#include <cstdio>

#include "plan/passes.h"

namespace accel {

std::string json_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (uint8_t(c) >= 0x20) {
      out += c;
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", unsigned(uint8_t(c)));
      out += escape;
    }
  }
  return out + "\"";
}

std::string step_name(const PlanData& p, int step) {
  const Step& s = p.steps[size_t(step)];
  std::string text = std::to_string(step) + " " + s.def->name;
  if (planner::is_copy(s) && s.node > 0)
    text += std::string(" of ") + p.graph.node(s.node).def->name;
  return text;
}

namespace planner {

namespace {

// One transient with its place in memory and in the order.
struct Row {
  int value;
  int64_t begin, bytes;
  int first, last;  // steps
};

}  // namespace

static std::vector<Row> rows_of(const PlanData& p) {
  std::vector<int> values;
  const std::vector<Transient> transients = transients_of(p, values);
  std::vector<Row> rows;
  for (size_t i = 0; i < values.size(); ++i)
    rows.push_back({values[i], p.values[size_t(values[i])].arena_offset, transients[i].bytes,
                    transients[i].users.front(), transients[i].users.back()});
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.first != b.first ? a.first < b.first : a.value < b.value;
  });
  return rows;
}

static std::string value_name(const PlanData& p, int value) {
  const Value& v = p.values[size_t(value)];
  const std::string node =
      std::string(p.graph.node(v.node).def->name) + "." + std::to_string(v.node);
  if (v.result < 0) return "copy of an operand of " + node;
  return v.result ? node + "[" + std::to_string(v.result) + "]" : node;
}

// ------------------------------------------------------------------------------------------------
// dot

static std::string dot_text(const std::string& lines) {
  std::string out = "\"";
  for (const char c : lines) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "\"";
}

static std::string edge_text(const std::string& from, const std::string& to,
                             const std::string& attributes = "") {
  return "  " + from + " -> " + to + (attributes.empty() ? "" : " [" + attributes + "]") + ";\n";
}

static std::string steps_dot(const PlanData& p) {
  std::string text;
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const Step& step = p.steps[size_t(s)];
    std::string label = step_name(p, s) + "\n" + step.row->kernel;
    for (const Type& t : step.call.results) label += "\n" + t.to_string();
    text += "  s" + std::to_string(s) + " [label=" + dot_text(label) +
            (step.barrier_before ? ", peripheries=2" : "") + "];\n";
  }
  return text;
}

// Which ports each step reads and writes, each once.
static std::string ports_dot(const PlanData& p) {
  std::string text;
  for (size_t i = 0; i < p.graph.ports.size(); ++i) {
    const PortDesc& port = p.graph.ports[i];
    const std::string label = std::string(name_of(port.kind)) + " " + port.name + "\n" +
                              Type{port.dtype, port.shape}.to_string();
    text += "  p" + std::to_string(i) + " [shape=ellipse, label=" + dot_text(label) + "];\n";
  }
  std::vector<std::string> edges;
  const std::vector<Touches> steps = memory_touches(p);
  for (size_t s = 0; s < steps.size(); ++s)
    for (const Touch& t : steps[s]) {
      if (t.resource == 0) continue;
      const std::string step = "s" + std::to_string(s);
      const std::string port = "p" + std::to_string(t.resource - 1);
      if (t.read) edges.push_back(edge_text(port, step));
      if (t.write) edges.push_back(edge_text(step, port));
    }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  for (const std::string& edge : edges) text += edge;
  return text;
}

// Whether a later step reads what an earlier one wrote; otherwise only their order matters.
static bool carries_data(const Touches& from, const Touches& to) {
  for (const Touch& a : from)
    for (const Touch& b : to)
      if (a.write && b.read && conflict(a, b)) return true;
  return false;
}

static std::string data_dot(const PlanData& p) {
  std::string text;
  const std::vector<Touches> touches = dag_touches(p);
  for (const Edge& e : find_edges(touches)) {
    const bool data = carries_data(touches[size_t(e.from)], touches[size_t(e.to)]);
    text += edge_text("s" + std::to_string(e.from), "s" + std::to_string(e.to),
                      data ? "" : "style=dashed");
  }
  return text;
}

// Bytes of the arena with the transient that has them now, in the order of first writers.
static std::string shared_dot(const PlanData& p) {
  std::string text;
  std::vector<Row> owners;
  for (const Row& row : rows_of(p)) {
    std::vector<Row> left;
    for (const Row& o : owners) {
      const int64_t begin = std::max(o.begin, row.begin);
      const int64_t end = std::min(o.begin + o.bytes, row.begin + row.bytes);
      if (begin >= end) {
        left.push_back(o);
        continue;
      }
      text += edge_text(
          "s" + std::to_string(o.last), "s" + std::to_string(row.first),
          "style=dotted, constraint=false, label=" +
              dot_text("bytes [" + std::to_string(begin) + ":" + std::to_string(end) + "]"));
      // What the new owner leaves of the old one.
      if (o.begin < begin) left.push_back({o.value, o.begin, begin - o.begin, o.first, o.last});
      if (end < o.begin + o.bytes)
        left.push_back({o.value, end, o.begin + o.bytes - end, o.first, o.last});
    }
    left.push_back(row);
    owners = std::move(left);
  }
  return text;
}

// ------------------------------------------------------------------------------------------------
// memory map

static std::string row_json(const PlanData& p, const Row& r) {
  const auto user = [&](int step) {
    return "{\"step\": " + std::to_string(step) +
           ", \"node\": " + std::to_string(p.steps[size_t(step)].node) +
           ", \"name\": " + json_text(step_name(p, step)) + "}";
  };
  return "    {\"name\": " + json_text(value_name(p, r.value)) +
         ", \"type\": " + json_text(p.values[size_t(r.value)].type.to_string()) +
         ", \"offset\": " + std::to_string(r.begin) + ", \"bytes\": " + std::to_string(r.bytes) +
         ",\n     \"first\": " + user(r.first) + ", \"last\": " + user(r.last) + "}";
}

static std::string xml_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else if (uint8_t(c) >= 0x20) out += c;
  }
  return out;
}

static std::string fixed(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", v);
  return text;
}

}  // namespace planner

std::string dot_of(const PlanData& p) {
  return "digraph plan {\n  label=" + planner::dot_text(p.label) +
         ";\n  node [shape=box, fontname=monospace];\n" + planner::steps_dot(p) +
         planner::ports_dot(p) + planner::data_dot(p) + planner::shared_dot(p) + "}\n";
}

std::string memory_map_json(const PlanData& p) {
  std::string text = "{\n  \"plan\": " + json_text(p.label) +
                     ",\n  \"steps\": " + std::to_string(p.steps.size()) +
                     ",\n  \"transient_bytes\": " + std::to_string(p.memory.transient_bytes) +
                     ",\n  \"peak_bytes\": " + std::to_string(p.memory.peak_bytes) +
                     ",\n  \"unaliased_bytes\": " + std::to_string(p.memory.unaliased_bytes) +
                     ",\n  \"transients\": [";
  bool first = true;
  for (const auto& row : planner::rows_of(p)) {
    text += (first ? "\n" : ",\n") + planner::row_json(p, row);
    first = false;
  }
  return text + (first ? "]\n}\n" : "\n  ]\n}\n");
}

std::string memory_map_svg(const PlanData& p) {
  constexpr double width = 1000, height = 500, margin = 40;
  const double per_step = width / double(std::max<size_t>(p.steps.size(), 1));
  const double per_byte = height / double(std::max<int64_t>(p.memory.transient_bytes, 1));
  using planner::fixed;
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
                     fixed(width + 2 * margin) + "\" height=\"" + fixed(height + 2 * margin) +
                     "\" font-family=\"monospace\" font-size=\"10\">\n<text x=\"" + fixed(margin) +
                     "\" y=\"20\">" + planner::xml_text(p.label) + ": " +
                     std::to_string(p.memory.transient_bytes) + " bytes (down) over " +
                     std::to_string(p.steps.size()) + " steps (right)</text>\n";
  int n = 0;
  for (const auto& r : planner::rows_of(p)) {
    const std::string name = planner::xml_text(planner::value_name(p, r.value));
    const double x = margin + r.first * per_step, y = margin + double(r.begin) * per_byte;
    // Neighbours get colours far apart: a turn of the golden angle each.
    text += "<rect x=\"" + fixed(x) + "\" y=\"" + fixed(y) + "\" width=\"" +
            fixed((r.last - r.first + 1) * per_step) + "\" height=\"" +
            fixed(std::max(double(r.bytes) * per_byte, 1.0)) + "\" fill=\"hsl(" +
            std::to_string(n++ * 137 % 360) + ",60%,70%)\" stroke=\"#333\"><title>" + name + " " +
            planner::xml_text(p.values[size_t(r.value)].type.to_string()) + ", bytes [" +
            std::to_string(r.begin) + ":" + std::to_string(r.begin + r.bytes) + "], steps " +
            std::to_string(r.first) + " to " + std::to_string(r.last) + "</title></rect>\n";
  }
  return text + "</svg>\n";
}

}  // namespace accel
