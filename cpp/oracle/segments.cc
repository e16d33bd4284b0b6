// segment_offsets (CONTRACT 14).
#include <algorithm>

#include "oracle/node.h"

namespace accel::oracle {

void eval_segment_offsets(Args& a) {
  const double total = double(a.attribute("total").i);
  for (size_t e = 0; e < a.in[0].size(); ++e)
    a.out[0][e + 1] = std::min(a.out[0][e] + a.in[0][e], total);
}

}  // namespace accel::oracle
