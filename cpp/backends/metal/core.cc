#include "backends/metal/core.h"

#include "exec/memory.h"

namespace accel::metal {

namespace {

constexpr MTL::ResourceOptions kOptions =
    MTL::ResourceStorageModeShared | MTL::ResourceHazardTrackingModeUntracked;

// The deleter of a block's owner, in which buffer_of finds the MTLBuffer.
struct Block {
  mutable Ref<MTL::Buffer> buffer;
  std::shared_ptr<Residency> residency;
  void operator()(void*) const {
    if (forked()) return buffer.detach();  // see own()
    residency->remove(buffer.get());
    buffer.reset();
  }
};

}  // namespace

Core::Core(Ref<MTL::Device> d, const MetalOptions& o)
    : WorkerHost(o.lose_at, int64_t(d->maxBufferLength())),
      device(d),
      options(o),
      residency(own(new Residency(d.get()))),
      pipelines(d, o.cache) {
  dummy = allocate(256, "the operand that is absent");
}

std::shared_ptr<void> Core::allocate(int64_t bytes, const std::string& what) {
  check_bytes(bytes, max_bytes, what);
  const Scope scope;
  Ref<MTL::Buffer> buffer;
  // newBuffer clears what it gives. Whole words, which is what a blit fills.
  if (!allocation_must_fail()) buffer = adopt(device->newBuffer(whole_words(bytes), kOptions));
  if (!buffer) throw out_of_memory(bytes, max_bytes, what);
  void* host = buffer->contents();
  residency->add(buffer.get());
  return {host, Block{std::move(buffer), residency}};
}

MTL::Buffer* buffer_of(const std::shared_ptr<void>& memory) {
  const Block* block = std::get_deleter<Block>(memory);
  return block ? block->buffer.get() : nullptr;
}

}  // namespace accel::metal
