// What a test asks of the emulator, besides Metal itself. All may be called at any time between
// submissions, from any thread.
#pragma once
#ifdef __cplusplus
extern "C" {
#endif

// Check mode: races, bounds, uninitialised threadgroup memory, alignment. Also MSLEMU_CHECK=1.
void metalemu_set_check(int on);
// A device that flushes subnormal f32: operands and results of arithmetic and of comparisons count
// as zeros of their sign; what is only moved stays. Also MSLEMU_FLUSH=1.
void metalemu_set_flush(int on);
// Order of lanes, groups and of everything unordered: 1 natural, 2 reversed, 3 and up shuffled.
void metalemu_set_seed(unsigned seed);
// Apple GPU family of the device: 5 has no SIMD-group exchange, 7 and up have all of it.
void metalemu_set_family(unsigned family);
// Version of macOS that the process believes to run on; residency sets and math modes need 15.
void metalemu_set_os(unsigned major);
// How long the GPU waits for more submissions in check mode and for seeds from 2 on, unless the
// host waits for one (3 at first): what comes in that time is unordered unless something joins it.
void metalemu_set_grace(unsigned milliseconds);

// The nth call of that kind from now fails, once; 0: every call. A null name disarms everything.
// Names: device, queue, buffer, library, function, pipeline, event, fence, residency, archive_load,
// archive_add, archive_save, encoder, no_command_buffer (none is given), command_buffer or
// command_buffer=CODE (one that runs into an MTLCommandBufferError).
void metalemu_fail(const char* what, unsigned nth);

// Faults reported since the last clear: how many, and their lines.
long metalemu_faults(void);
const char* metalemu_fault_text(void);
void metalemu_clear_faults(void);

// Live objects of a class, and of every class that has any ("MTLBuffer 3" a line).
long metalemu_live(const char* cls);
const char* metalemu_live_text(void);

// So far: pipelines that a binary archive served, archives written, libraries compiled by clang,
// dispatches run, command buffers committed, and what was asked of residency sets.
long metalemu_archive_hits(void);
long metalemu_archive_writes(void);
long metalemu_compiles(void);
long metalemu_dispatches(void);
long metalemu_commits(void);
long metalemu_residency_commits(void);
long metalemu_residency_requests(void);

// Names of the kernels that ran in check mode, or outside of it, since the last clear; one a line.
const char* metalemu_ran_text(int check);
void metalemu_clear_ran(void);

#ifdef __cplusplus
}
#endif
