// linear_attention: a group has sixteen rows of one state, sixteen threads a row, and goes through
// the tokens of its sequence. Each thread has the keys of one lane of lane16, so nothing but the
// sums over the keys is exchanged. `Held`: the state stays in registers, up to 128 keys.
#include "kernel.h"
#include "lanes.h"
#include "order.h"
#include "shared/params/linear_attention.h"

#define ROWS_A_GROUP 16
#define HELD_KEYS 8  // of one thread

// A thread's keys of its row of the state: key 16 * i + lane.
struct Held {
  float s[HELD_KEYS];
  device float* from;
  uint lane, keys;

  inline void load(device float* row, uint thread_lane, uint count) {
    from = row;
    lane = thread_lane;
    keys = count;
    for (int i = 0; i < HELD_KEYS; ++i) {
      const uint key = 16 * i + lane;
      s[i] = key < keys ? from[key] : 0.0f;
    }
  }
  inline void store() {
    for (int i = 0; i < HELD_KEYS; ++i) {
      const uint key = 16 * i + lane;
      if (key < keys) from[key] = s[i];
    }
  }
  inline float dot(device const float* x) {
    float a = 0.0f;
    for (int i = 0; i < HELD_KEYS; ++i) {
      const uint key = 16 * i + lane;
      if (key < keys) a = fma(x[key], s[i], a);
    }
    return a;
  }
  // step: from one decay to the next, 0 where there is one for all keys.
  inline void decay(device const float* alpha, uint step) {
    for (int i = 0; i < HELD_KEYS; ++i) {
      const uint key = 16 * i + lane;
      if (key < keys) s[i] = alpha[key * step] * s[i];
    }
  }
  inline void change(float by, device const float* k) {
    for (int i = 0; i < HELD_KEYS; ++i) {
      const uint key = 16 * i + lane;
      if (key < keys) s[i] = fma(by, k[key], s[i]);
    }
  }
};

// The same in place.
struct Long {
  device float* s;
  uint lane, keys;

  inline void load(device float* row, uint thread_lane, uint count) {
    s = row;
    lane = thread_lane;
    keys = count;
  }
  inline void store() {}
  inline float dot(device const float* x) {
    float a = 0.0f;
    for (uint key = lane; key < keys; key += 16) a = fma(x[key], s[key], a);
    return a;
  }
  inline void decay(device const float* alpha, uint step) {
    for (uint key = lane; key < keys; key += 16) s[key] = alpha[key * step] * s[key];
  }
  inline void change(float by, device const float* k) {
    for (uint key = lane; key < keys; key += 16) s[key] = fma(by, k[key], s[key]);
  }
};

template <class State, class Exchange>
kernel void linear_attention(
    device const float* q [[buffer(0)]], device const float* k [[buffer(1)]],
    device const float* v [[buffer(2)]], device float* state [[buffer(3)]],
    device const float* alpha [[buffer(4)]], device const float* beta [[buffer(5)]],
    device const uint* offsets [[buffer(7)]], device float* out [[buffer(8)]],
    constant LinearAttentionParams& p [[buffer(PARAMS)]],
    uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
    uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint tiles = (p.Dv + ROWS_A_GROUP - 1) / ROWS_A_GROUP;
  const uint sequence = group / tiles / p.H, head = group / tiles % p.H;
  const uint row = group % tiles * ROWS_A_GROUP + index / 16;
  const bool here = row < p.Dv;
  const uint keys = here ? p.Dk : 0, step = p.key_gates > 1 ? 1 : 0;
  const uint begin = offsets[sequence], end = offsets[sequence + 1];
  State s;
  if (begin < end)
    s.load(state + ((ulong(sequence) * p.H + head) * p.Dv + (here ? row : 0)) * p.Dk, index % 16,
           keys);
  for (uint t = begin; t < end; ++t) {
    const ulong at = ulong(t) * p.H + head;
    const ulong gate = ulong(t) * p.token_gates + ulong(head) * p.head_gates;
    device const float* own_k = k + at * p.Dk;
    device const float* decays = alpha + gate * p.key_gates;
    const float b = beta[gate];
    const bool changes = !is_zero(b), reads = changes && !p.add;
    if (p.decay_first) s.decay(decays, step);
    float u = 0.0f;
    if (reads) u = Exchange::sum16(s.dot(own_k), slots, index);
    if (!p.decay_first) s.decay(decays, step);
    if (changes) {
      const float value = here ? v[at * p.Dv + row] : 0.0f;
      s.change(b * (reads ? value - u : value), own_k);
    }
    const float result = Exchange::sum16(s.dot(q + at * p.Dk), slots, index);
    if (here && index % 16 == 0) out[at * p.Dv + row] = result;
  }
  if (begin < end) s.store();
  const ulong first = ulong(offsets[p.B]) * p.H * p.Dv, all = ulong(p.T) * p.H * p.Dv;
  for (ulong i = first + group * ulong(256) + index; i < all; i += groups * ulong(256))
    out[i] = 0.0f;
}

#define LINEAR(name, ...) \
  template [[host_name(   \
      name)]] [[kernel]] decltype(linear_attention<__VA_ARGS__>) linear_attention<__VA_ARGS__>;
LINEAR("linear_attention", Held, Simd)
LINEAR("linear_attention_plain", Held, Plain)
LINEAR("linear_attention_long", Long, Simd)
LINEAR("linear_attention_plain_long", Long, Plain)
