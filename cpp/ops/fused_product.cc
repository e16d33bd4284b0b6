// When products of one row, and what stands around them, are one launch of a ring.
#include "ops/fused_product.h"

#include "ops/gpu.h"
#include "ops/product_rings.h"
#include "shared/params/fused_product.h"
#include "shared/params/rows.h"

namespace accel {

namespace {

// Places of shaders/cuda/ring_fused.h.
enum : size_t { kX, kGain, kResidual, kFirstPart, kPartPlaces = 4, kMostParts = 3 };
enum PartPlace : size_t { kWeight, kScales, kOffsets, kOut };
constexpr size_t kPlaces = kFirstPart + kMostParts * kPartPlaces;

size_t place_of(size_t part, PartPlace what) {
  return kFirstPart + part * kPartPlaces + what;
}

std::pair<const Call*, int> result_of(const Call& c) {
  return {&c, int(c.in.size())};
}
// One f32 for each of n elements, in their order.
bool is_row(const In& in, int64_t n) {
  return in.dtype == DType::F32 && in.shape.elements() == n && in.contiguous();
}

// A product that a fused kernel takes beside the first.
bool takes(const Call& c, const ProductParams& p, const ProductParams& first,
           const Limits& limits) {
  if (needs_ring(c, limits) || p.bias || p.activations > unsigned(Activations::bf16)) return false;
  if (p.M != 1 || !p.N || !is_row(c.in[0], p.K)) return false;
  return p.K == first.K && p.activations == first.activations && p.zeros == first.zeros;
}
bool takes_norm(const Call& c, unsigned K) {
  return c.def->op == Op::rms_norm && K <= RING_X_FLOATS && is_row(c.in[0], K) &&
         is_row(c.in[1], K);
}
bool takes_pair(const FusedProduct& f, const FusedProductParams& p) {
  const Call& c = *f.swiglu;
  return f.products.size() == 2 && !f.add && p.N[0] == p.N[1] && is_row(c.in[0], p.N[0]) &&
         is_row(c.in[1], p.N[0]);
}
bool takes_residual(const FusedProduct& f, unsigned N) {
  const Call& c = *f.add;
  return f.products.size() == 1 && !f.swiglu && is_row(c.in[0], N) && is_row(c.in[1], N) &&
         c.results[0].shape.elements() == int64_t(N);
}

// False where a part has no place.
bool gather(const FusedProduct& f, const Limits& limits, FusedProductParams& p) {
  if (f.products.empty() || f.products.size() > kMostParts) return false;
  const auto first = params_of<ProductParams>(*f.products[0]);
  p.K = first.K, p.parts = unsigned(f.products.size());
  p.activations = first.activations, p.zeros = first.zeros;
  for (size_t i = 0; i < f.products.size(); ++i) {
    const auto own = params_of<ProductParams>(*f.products[i]);
    if (!takes(*f.products[i], own, first, limits)) return false;
    p.N[i] = own.N;
  }
  p.norm = f.norm != nullptr, p.pair = f.swiglu != nullptr, p.residual = f.add != nullptr;
  if (f.norm && !takes_norm(*f.norm, p.K)) return false;
  if (f.norm) p.eps = params_of<RowsParams>(*f.norm).eps;
  if (f.swiglu && !takes_pair(f, p)) return false;
  return !f.add || takes_residual(f, p.N[0]);
}

void bind(const FusedProduct& f, CombinedLaunch& out) {
  auto& bound = out.operands;
  bound.assign(kPlaces, {nullptr, 0});
  bound[kX] = {f.norm ? f.norm : f.products[0], 0};
  if (f.norm) bound[kGain] = {f.norm, 1};
  if (f.add) bound[kResidual] = {f.add, f.residual};
  for (size_t i = 0; i < f.products.size(); ++i) {
    const Call& c = *f.products[i];
    const uint32_t planes = ring_format(c).planes;
    const std::vector<int> own = product_places(c);
    bound[place_of(i, kWeight)] = {&c, own[1]};
    if (planes > 0) bound[place_of(i, kScales)] = {&c, own[2]};
    if (planes > 1) bound[place_of(i, kOffsets)] = {&c, own[3]};
    if (!f.swiglu) bound[place_of(i, kOut)] = result_of(c);
  }
  if (f.swiglu) bound[place_of(0, kOut)] = result_of(*f.swiglu);
  if (f.add) bound[place_of(0, kOut)] = result_of(*f.add);
}

}  // namespace

bool fused_product(const FusedProduct& f, const KernelRow& row, const Limits& limits,
                   CombinedLaunch& out) {
  FusedProductParams p = {};
  if (!is_ring(row) || !gather(f, limits, p)) return false;
  const Call& first = *f.products[0];
  const RingFormat format = ring_format(first);
  const int64_t n = int64_t(p.N[0]) + p.N[1] + p.N[2];
  const ProductRing& ring = ring_for(first, 1, p.K, n);
  uint32_t tiles = 0;  // of a pair those of one
  for (unsigned part = 0; part < (p.pair ? 1 : p.parts); ++part)
    tiles += groups_of(p.N[part], ring.tile());
  Launch launch;
  launch.function =
      product_function(first, plain_of(row)) + "_ring_" + std::string(ring.suffix) + "_fused";
  launch.groups[0] = tiles;
  launch.threads = 32 * ring.warps;
  launch.group_bytes = ring.bytes(p.K, format) + RING_NORM_BYTES;
  launch.per_unit = ring_per_unit(ring, format, n);
  if (launch.group_bytes > limits.group_bytes) return false;
  out = {};
  out.launch = launch;
  out.params.put(p);
  bind(f, out);
  return true;
}

}  // namespace accel
