// One dispatch as it was encoded, and how it runs.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "objects.h"

namespace emu {

struct Bound {
  Buffer* buffer = nullptr;
  size_t offset = 0;
  std::shared_ptr<std::vector<char>> bytes;  // of setBytes
  bool set() const { return buffer || bytes; }
  const char* low() const { return buffer ? buffer->data + offset : bytes->data(); }
  const char* high() const {
    return buffer ? buffer->data + buffer->length : low() + bytes->size();
  }
};

struct Dispatch {
  Pipeline* pipeline = nullptr;
  Bound bound[kBuffers];
  size_t threadgroup_bytes[kBuffers] = {};
  Size3 groups{}, threads{}, grid{};
};

// What is wrong with it, or "".
std::string misuse(const Dispatch& d);
// Runs every threadgroup. `node` is its place in the order of the GPU.
void run_dispatch(const Dispatch& d, const Node& node);

}  // namespace emu
