// Libraries: MSL text turned into C++ by the translator, compiled by clang, loaded.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../shim/msl_args.h"

namespace emu {

using ConstantSet = std::map<unsigned, std::vector<char>>;

struct Argument {
  std::string kind, name;
  unsigned index = 0, size = 0, align = 1;
  bool write = false, optional = false, reference = false, constant_space = false;
};

// A loaded shared object: one for each set of function constants.
struct Module {
  const mslrt::Entry* table = nullptr;
  std::string path;             // of the file whose line tables name faults
  uintptr_t low = 0, high = 0;  // its own address range: constants and tables
};

// A source with its options, in two builds: for speed, and with every access reported.
class Program {
 public:
  Program(std::string source, bool fast, bool fast_functions, unsigned version,
          std::vector<std::string> defines)
      : source_(std::move(source)),
        fast_(fast),
        fast_functions_(fast_functions),
        version_(version),
        defines_(std::move(defines)) {}
  // Null, and the compiler's text in `error`, when the source is refused.
  std::shared_ptr<Module> module(bool check, const ConstantSet* constants, std::string& error);
  std::string identity() const;

 private:
  std::string build(bool check, std::string& error);
  std::string translate(const std::string& stem, std::string& error) const;
  std::string source_;
  bool fast_, fast_functions_;
  unsigned version_;
  std::vector<std::string> defines_;
  std::mutex m_;
  std::shared_ptr<Module> plain_[2];
};

// A kernel by name, in the build that the moment needs.
class Kernel {
 public:
  static std::shared_ptr<Kernel> make(std::shared_ptr<Program> program, const std::string& name,
                                      const ConstantSet* constants, std::string& error);
  struct Build {
    std::shared_ptr<Module> module;
    const mslrt::Entry* entry = nullptr;
  };
  const Build& build(bool check);
  std::string identity() const;
  std::string name;
  unsigned max_threads = 1024;
  std::vector<Argument> arguments;

 private:
  std::shared_ptr<Program> program_;
  std::unique_ptr<ConstantSet> constants_;
  std::mutex m_;
  Build builds_[2];
};

std::string run_command(const std::string& command, int* status);

}  // namespace emu
