// What makes two plans the same (CONTRACT 21): canonical bytes in three parts, and a SHA-256 of
// each. Bound values, labels and places in the user's code are outside.
#pragma once
#include <string>

#include "base/sha256.h"
#include "exec/device.h"
#include "graph/builder.h"

namespace accel {

struct CompileOptions;

struct IdentityPart {
  std::string bytes;  // a versioned tag, then length-prefixed fields
  Digest digest{};
};

struct Identity {
  IdentityPart semantic;    // ports, scalars, nodes, outputs
  IdentityPart numerical;   // kernels with their digests, orders and blocks; the numerical level
  IdentityPart deployment;  // device token, compile options, layouts of ports
  // The first 16 hex digits of the SHA-256 of the three digests.
  std::string hex() const;
  std::string to_string() const { return hex(); }
  // By canonical bytes: equal digests alone make no equal identity.
  bool operator==(const Identity& other) const;
};

// Of a plan whose kernels are selected; later passes change nothing of it. The options take part
// in the deployment alone.
IdentityPart deployment_of(const PlanData& selected, const Device& device,
                           const CompileOptions& options);
Identity identity_of(const PlanData& selected, const Device& device, IdentityPart deployment);
// What compile(builder, options) would give its plan. Throws what compile throws up to the
// selection of kernels.
Identity identity(const Builder& builder, const CompileOptions& options);

}  // namespace accel
