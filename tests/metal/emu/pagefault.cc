// A kernel that leaves its buffers by so much that it meets a page which is not there: the thread
// of the kernel ends, with a report, and the process goes on.
#include <signal.h>
#include <ucontext.h>

#include <mutex>

#include "fibers.h"
#include "order.h"
#include "settings.h"

namespace emu {
namespace {

struct sigaction before_segv, before_bus;

void abandon() {
  worker->end_thread();
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (!worker) {  // not a kernel: whoever was there before us says so
    sigaction(signal, signal == SIGBUS ? &before_bus : &before_segv, nullptr);
    return;
  }
  static std::atomic<unsigned> said{0}, said_in{0};  // once for each dispatch
  if (said.exchange(worker->node->id) != worker->node->id ||
      said_in.exchange(fault_epoch()) != fault_epoch())
    report("out-of-bounds", "kernel '%s', group %u, thread %u: page fault at %p; the thread ends",
           worker->entry->name, worker->group, worker->current, info->si_addr);
  auto* c = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
  auto& sp = c->uc_mcontext.gregs[REG_RSP];
  sp = ((sp - 256) & ~15ll) - 8;  // past the red zone, aligned as after a call
  c->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<long long>(abandon);
#else
#error "write the end of a thread for this machine"
#endif
}

}  // namespace

void catch_page_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction a = {};
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &a, &before_segv);
    sigaction(SIGBUS, &a, &before_bus);
  });
}

}  // namespace emu
