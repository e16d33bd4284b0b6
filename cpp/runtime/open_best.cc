// The policy of open_best over the enumerated devices, as one walk in the order of preference.
#include "runtime/open_best.h"

#include <algorithm>

namespace accel {

static const LimitRule* broken_limit(const DeviceInfo& info, const std::vector<LimitRule>& rules,
                                     std::string* is) {
  for (const LimitRule& rule : rules) {
    const auto at = std::find_if(info.limits.begin(), info.limits.end(),
                                 [&](const auto& l) { return l.first == rule.name; });
    *is = at == info.limits.end() ? "unknown" : std::to_string(at->second);
    if (at == info.limits.end()) return &rule;
    if (rule.at_least ? at->second < rule.value : at->second > rule.value) return &rule;
  }
  return nullptr;
}

std::string refusal_of(const DeviceInfo& info, const BestOptions& options) {
  if (info.backend == "cpu" && !options.allow_cpu) return "allow_cpu is False";
  if (info.backend != "cpu" && info.software && !options.allow_software)
    return "it is a software adapter and allow_software is False";
  for (const std::string& name : options.require)
    if (std::find(info.capabilities.begin(), info.capabilities.end(), name) ==
        info.capabilities.end())
      return "it lacks the capability '" + name + "'";
  std::string is;
  if (const LimitRule* rule = broken_limit(info, options.limits, &is))
    return "limit '" + rule->name + "' is " + is + " and must be at " +
           (rule->at_least ? "least " : "most ") + std::to_string(rule->value);
  return "";
}

static void check_names(const std::vector<std::string>& prefer) {
  if (prefer.empty())
    throw attr_error("open_best", "prefer", "open_best: prefer is empty and must name a backend");
  for (const std::string& backend : prefer)
    if (backend != "metal" && backend != "cuda" && backend != "cpu")
      throw attr_error(
          "open_best", "prefer",
          "open_best: prefer holds '" + backend + "' and must hold metal, cuda and cpu only");
}

// Notes for a backend that gives no device: what its probe said, or that there is none.
static void note_absent(const std::string& backend, const Enumeration& all,
                        std::vector<ProbeNote>& passed) {
  const size_t before = passed.size();
  for (const ProbeNote& note : all.notes)
    if (note.backend == backend) passed.push_back(note);
  if (passed.size() == before) passed.push_back({backend, "enumerate", "no device"});
}

DevicePtr open_best(const BestOptions& options) {
  check_names(options.prefer);
  const Enumeration all = enumerate_devices();
  std::vector<ProbeNote> passed;
  bool any = false;
  for (const std::string& backend : options.prefer) {
    bool here = false;
    for (const DeviceInfo& info : all.devices) {
      if (info.backend != backend) continue;
      here = any = true;
      const std::string why = refusal_of(info, options);
      if (!why.empty()) {
        passed.push_back({backend, "policy", info.name + ": " + why});
        continue;
      }
      DevicePtr device = open_device(info.id);
      device->passed_over = std::move(passed);
      return device;
    }
    if (!here) note_absent(backend, all, passed);
  }
  std::string text =
      any ? "open_best: every device was rejected" : "open_best: no device was found";
  for (const ProbeNote& note : passed) text += "\n" + note.backend + ": " + note.error;
  throw device_error(text, any ? "policy" : "no_adapter");
}

}  // namespace accel
