#include "backends/metal/pipelines.h"

#include "backends/metal/errors.h"
#include "backends/metal/shaders.h"

namespace accel::metal {

Pipelines::Pipelines(Ref<MTL::Device> device, const std::string& cache)
    : device_(device), archive_(device, cache) {}

// Exact arithmetic as it is written: no fast functions (the default beside any math mode), no
// reordering. Contraction is off in the texts themselves.
static Ref<MTL::CompileOptions> compile_options() {
  auto options = adopt(MTL::CompileOptions::alloc()->init());
  options->setLanguageVersion(MTL::LanguageVersion3_1);
  if (responds(options.get(), "setMathMode:")) {
    options->setMathMode(MTL::MathModeSafe);
    options->setMathFloatingPointFunctions(MTL::MathFloatingPointFunctionsPrecise);
  } else {
    options->setFastMathEnabled(false);
  }
  return options;
}

Ref<MTL::Library> Pipelines::library_of(const std::string& function) {
  const Shader shader = shader_of(function);
  auto& library = libraries_[shader.text];
  if (library) return library;
  NS::Error* error = nullptr;
  library = adopt(device_->newLibrary(text(shader.text), compile_options().get(), &error));
  if (!library) throw compile_error(shader.file, text(error));
  return library;
}

// Null, and why, where it cannot be had.
Ref<MTL::ComputePipelineState> Pipelines::make(MTL::ComputePipelineDescriptor* descriptor,
                                               std::string& why) {
  NS::Error* error = nullptr;
  const auto with = [&](MTL::PipelineOption option) {
    return adopt(device_->newComputePipelineState(descriptor, option, nullptr, &error));
  };
  archive_.look_in(descriptor);
  if (archive_.loaded())
    if (auto kept = with(MTL::PipelineOptionFailOnBinaryArchiveMiss)) return kept;
  archive_.add(descriptor);  // first, so that it is compiled once: the next call finds it there
  error = nullptr;
  auto made = with(MTL::PipelineOptionNone);
  if (!made) why = text(error);
  return made;
}

Ref<MTL::ComputePipelineState> Pipelines::get(const std::string& function, uint32_t threads) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& pipeline = made_[{function, threads}];
  if (pipeline) return pipeline;
  const Scope scope;
  const auto library = library_of(function);
  const auto entry = adopt(library->newFunction(text(function)));
  const std::string file = shader_of(function).file;
  if (!entry) throw compile_error(file, "the library lacks the function " + function);
  const auto descriptor = adopt(MTL::ComputePipelineDescriptor::alloc()->init());
  descriptor->setComputeFunction(entry.get());
  // So that the compiler leaves registers for all of them.
  descriptor->setMaxTotalThreadsPerThreadgroup(threads);
  std::string why;
  auto made = make(descriptor.get(), why);
  if (!made) throw compile_error(file, function + ": " + why);
  const auto most = made->maxTotalThreadsPerThreadgroup(), width = made->threadExecutionWidth();
  // Where groups exchange values all are of 32. Elsewhere kernels only wait for theirs, and a wider
  // one waits for more.
  if (most < threads || width == 0 || width % 32)
    throw compile_error(file, function + ": a group is at most " + std::to_string(most) +
                                  " threads in SIMD groups of " + std::to_string(width) +
                                  " and must be " + std::to_string(threads) +
                                  " in those of a multiple of 32");
  pipeline = std::move(made);
  return pipeline;
}

void Pipelines::save() {
  std::lock_guard<std::mutex> lock(mutex_);
  const Scope scope;
  archive_.save();
}

std::vector<ProbeNote> Pipelines::notes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return archive_.notes();
}

}  // namespace accel::metal
