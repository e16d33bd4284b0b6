// A defect planted in a plan, which a verifier must find.
#pragma once
#include <functional>
#include <string>

#include "plan/plan.h"
#include "tests/check.h"

// `says`: of the verifier's message about the changed plan; the plan as it is passes.
inline void expect_found(accel::PlanData plan, const char* what,
                         void (*verify)(const accel::PlanData&), const char* says,
                         const std::function<void(accel::PlanData&)>& change) {
  verify(plan);
  change(plan);
  try {
    verify(plan);
    CHECK_EQ(std::string(what), "found");
  } catch (const accel::Error& e) { CHECK(std::string(e.what()).find(says) != std::string::npos); }
}
