#include "memory.h"

#if defined(__GLIBC__) || __has_include(<gnu/libc-version.h>)
#include <malloc.h>
#define DATAFLOW_GLIBC
#endif

namespace dataflow {

bool reuse_freed_memory() {
#if defined(DATAFLOW_GLIBC)
    // Blocks come from the heap up to the largest size that glibc allows, rather than from a mapping of their own.
    constexpr int mapped_from_bytes = 32 << 20;
    constexpr int kept_bytes = 512 << 20;
    // What one thread frees, another takes: with an arena a thread, each would keep its own peak.
    constexpr int arenas = 2;
    return mallopt(M_MMAP_THRESHOLD, mapped_from_bytes) != 0 && mallopt(M_TRIM_THRESHOLD, kept_bytes) != 0 &&
           mallopt(M_ARENA_MAX, arenas) != 0;
#else
    return false;
#endif
}

}  // namespace dataflow
