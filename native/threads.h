#pragma once

#include <cstddef>
#include <functional>

namespace dataflow {

// Calls `work(0)` to `work(count - 1)`, each once, in the calling thread and up to `threads - 1` others, and returns when
// all have returned. Threads are started when they are first wanted and then kept; where the system gives none, the
// caller does everything. `work` must not throw. Any thread may call this, also in a process that was forked.
void share_out(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace dataflow
