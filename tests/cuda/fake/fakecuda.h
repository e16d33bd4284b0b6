// What a test asks of the stand-in of the driver, besides the driver's own functions. All may be
// called at any time, from any thread.
#pragma once
#ifdef __cplusplus
extern "C" {
#endif

// The nth call of that function from now ("cuMemAlloc", without a version; "*": of any function)
// gives this CUresult, once; nth = 0: every call. "kernel": the nth launch that runs kills the
// context with it. Functions that free do so all the same. A null name disarms everything.
void fakecuda_fail(const char* function, unsigned nth, int code);

// The functions that failed because a test asked for it, since it last asked, one a line.
const char* fakecuda_failed_text(void);

// While held, no stream begins a graph or a kernel, nor what is queued behind it.
void fakecuda_hold(int on);
// The same until the nth call of cuEventQuery that finds its event not passed, or a call of
// cuEventSynchronize: that one lets all go and waits for its event. 0: nothing is held.
void fakecuda_end_at_query(unsigned nth);
// Order of the nodes of a graph that no edge orders: 1 as they were added, 2 reversed, 3 and up
// shuffled. Threads and groups of a kernel: metalemu_set_seed.
void fakecuda_set_order(unsigned seed);

// While on, modules are loaded as if their kernels had no griddepcontrol.wait.
void fakecuda_forget_waits(int on);

// Calls of a function since the start ("kernel": launches that ran; "*": all).
long fakecuda_calls(const char* function);
// Live objects, "memory 3" a line; an empty text where there are none.
const char* fakecuda_live_text(void);
// Misuse of the interface since the last clear: how often, and a line each.
long fakecuda_faults(void);
const char* fakecuda_fault_text(void);
void fakecuda_clear_faults(void);
// The PTX that was loaded last.
const char* fakecuda_module_text(void);
// The names of the kernels that ran since the start, one a line, oldest first.
const char* fakecuda_ran_text(void);

#ifdef __cplusplus
}
#endif
