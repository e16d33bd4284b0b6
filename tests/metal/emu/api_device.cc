// The device and its buffers.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "gpu.h"
#include "settings.h"

namespace emu {

Device* the_device() {
  static auto* d = new Device;
  return d;
}

// Pages with a guard page on each side, the end of the data against the upper one.
Buffer::Buffer(size_t bytes, UInt resource_options) : length(bytes), options(resource_options) {
  const size_t page = 4096, pages = (bytes + page - 1) / page * page;
  mapped = pages + 2 * page;
  base = static_cast<char*>(
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(base, page, PROT_NONE);
  mprotect(base + page + pages, page, PROT_NONE);
  data = base + page + (pages - (bytes + 15) / 16 * 16);
  the_device()->allocated += bytes;
}
Buffer::Buffer(void* memory, size_t bytes, UInt resource_options, void* freed)
    : data(static_cast<char*>(memory)),
      length(bytes),
      options(resource_options),
      deallocator(freed ? _Block_copy(freed) : nullptr) {
  the_device()->allocated += bytes;
}
Buffer::~Buffer() {
  check_forget(data, length);
  the_device()->allocated -= length;
  if (in_flight) {
    // Its pages stay, so that the command buffer does not end the process.
    report("lifetime", "a buffer of %zu bytes ('%s') is freed while a command buffer uses it",
           length, label.c_str());
    return;
  }
  if (base) munmap(base, mapped);
  if (!deallocator) return;
  static_cast<Block*>(deallocator)->invoke(deallocator, data, length);
  _Block_release(deallocator);
}

namespace {

struct Architecture : Object<Architecture> {
  static constexpr const char* kName = "MTLArchitecture";
};

Buffer* new_buffer(size_t n, UInt options) {
  if (!n) {
    report("validation", "a buffer of 0 bytes");
    return nullptr;
  }
  if (n > UInt{1} << 33 || must_fail("buffer")) return nullptr;
  return new Buffer(n, options);
}

// Apple 1001 and up, Mac 2001, Common 3001, Metal 5001.
bool supports(long family) {
  unsigned apple = settings().family;
  if (family > 1000 && family < 2000) return family <= 1000 + static_cast<long>(apple);
  if (family == 5001) return apple >= 7;
  return family == 2001 || family == 2002 || (family > 3000 && family <= 3003);
}

void register_properties() {
  method<Device>("name", [](Device*, Sel) { return string_object("Emulated Metal device"); });
  method<Device>("architecture", [](Device*, Sel) { return autorelease(new Architecture); });
  method<Architecture>("name", [](Architecture*, Sel) {
    return string_object("applegpu_g" + std::to_string(settings().family + 6) + "s");
  });
  method<Device>("registryID", [](Device*, Sel) { return uint64_t{0x100000abc}; });
  method<Device>("hasUnifiedMemory", [](Device*, Sel) { return true; });
  method<Device>("isLowPower", [](Device*, Sel) { return false; });
  method<Device>("isHeadless", [](Device*, Sel) { return false; });
  method<Device>("isRemovable", [](Device*, Sel) { return false; });
  method<Device>("supportsFamily:", [](Device*, Sel, long f) { return supports(f); });
  method<Device>("maxThreadgroupMemoryLength",
                 [](Device*, Sel) { return UInt{kThreadgroupBytes}; });
  method<Device>("maxThreadsPerThreadgroup", [](Device*, Sel) { return Size3{1024, 1024, 1024}; });
  method<Device>("maxBufferLength", [](Device*, Sel) { return UInt{1} << 33; });
  method<Device>("recommendedMaxWorkingSetSize", [](Device*, Sel) { return uint64_t{1} << 33; });
  method<Device>("currentAllocatedSize", [](Device* d, Sel) { return d->allocated.load(); });
}

void register_new_buffers() {
  method<Device>("newBufferWithLength:options:", [](Device*, Sel, UInt n, UInt options) -> Obj* {
    return new_buffer(n, options);
  });
  method<Device>("newBufferWithBytes:length:options:",
                 [](Device*, Sel, const void* p, UInt n, UInt options) -> Obj* {
                   Buffer* b = new_buffer(n, options);
                   if (b) memcpy(b->data, p, n);
                   return b;
                 });
  method<Device>("newBufferWithBytesNoCopy:length:options:deallocator:",
                 [](Device*, Sel, void* p, UInt n, UInt options, void* freed) -> Obj* {
                   UInt page = getpagesize();
                   if (reinterpret_cast<UInt>(p) % page || n % page || !n) {
                     report("validation",
                            "newBufferWithBytesNoCopy: %p, %zu bytes: not whole pages", p, n);
                     return nullptr;
                   }
                   if (must_fail("buffer")) return nullptr;
                   return new Buffer(p, n, options, freed);
                 });
}

void register_buffers() {
  has_label<Buffer>();
  has_device<Buffer>();
  method<Buffer>("contents", [](Buffer* b, Sel) -> void* {
    return b->storage() == 2 ? nullptr : b->data;  // private memory has no address here
  });
  method<Buffer>("length", [](Buffer* b, Sel) { return UInt{b->length}; });
  method<Buffer>("allocatedSize",
                 [](Buffer* b, Sel) { return UInt{(b->length + 4095) & ~4095ul}; });
  method<Buffer>("gpuAddress", [](Buffer* b, Sel) { return reinterpret_cast<uint64_t>(b->data); });
  method<Buffer>("storageMode", [](Buffer* b, Sel) { return b->storage(); });
  method<Buffer>("cpuCacheMode", [](Buffer* b, Sel) { return b->options & 15; });
  method<Buffer>("resourceOptions", [](Buffer* b, Sel) { return b->options; });
  method<Buffer>("hazardTrackingMode", [](Buffer* b, Sel) { return UInt{b->tracked() ? 2u : 1u}; });
  method<Buffer>("heap", [](Buffer*, Sel) -> Obj* { return nullptr; });
  method<Buffer>("setPurgeableState:", [](Buffer*, Sel, UInt) { return UInt{2}; });
  method<Buffer>("didModifyRange:", [](Buffer* b, Sel, Range r) {
    if (b->storage() != 1) report("validation", "didModifyRange: of a buffer that is not managed");
    else if (r.location + r.length > b->length)
      report("validation", "didModifyRange: past the end of a buffer of %zu bytes", b->length);
  });
}

const bool registered = [] {
  register_properties();
  register_new_buffers();
  register_buffers();
  return true;
}();

}  // namespace
}  // namespace emu

extern "C" {
void* MTLCreateSystemDefaultDevice() {
  if (emu::must_fail("device")) return nullptr;
  return emu::retain(emu::the_device());
}
void* MTLCopyAllDevices() {
  auto* all = new emu::NSArray;
  if (!emu::must_fail("device")) all->add(emu::the_device());
  return all;
}
void* MTLCopyAllDevicesWithObserver(void** observer, void*) {
  if (observer) *observer = nullptr;
  return MTLCopyAllDevices();
}
void MTLRemoveDeviceObserver(const void*) {}
}
