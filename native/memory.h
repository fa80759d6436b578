#pragma once

namespace dataflow {

// Lets this process keep the memory that it frees, up to a bound, instead of giving it back to the system at once. A
// pipeline frees and takes buffers of the same sizes all the time; fresh pages cost it more than the copying does.
// Returns whether the allocator took the advice (glibc's does).
bool reuse_freed_memory();

}  // namespace dataflow
