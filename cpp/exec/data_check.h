// What a device opened with check=True tests before a node: the rules of its definition over its
// operands.
#pragma once
#include <optional>

#include "plan/plan.h"

namespace accel {

// One command's rules, with what its error says.
struct DataCheck {
  Call call;
  Site site;
};

// The first entry that breaks a rule, as a bind error of code "data"; operands in slot order.
std::optional<Error> check_data(const DataCheck& check, void* const* operands);

}  // namespace accel
