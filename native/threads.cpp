#include "threads.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace dataflow {
namespace {

// Work that is being shared out; lives on its caller's stack.
struct Job {
    Job(std::size_t count, const std::function<void(std::size_t)>& work) : count(count), work(work) {}

    void run() {
        for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) work(i);
    }

    const std::size_t count;
    const std::function<void(std::size_t)>& work;
    std::atomic<std::size_t> next{0};
    // Guarded by the pool's mutex.
    std::size_t wanted = 0;  // helpers that may still join
    std::size_t inside = 0;  // helpers that have joined and not left
};

class Pool {
  public:
    void share_out(Job& job, std::size_t helpers) {
        if (helpers > 0) {
            std::lock_guard lock(mutex_);
            job.wanted = helpers;
            jobs_.push_back(&job);
            busy_ += helpers;
            while (threads_ < std::min(busy_, most_threads) && start_thread()) ++threads_;
            wake_.notify_all();
        }
        job.run();
        if (helpers > 0) {
            std::unique_lock lock(mutex_);
            // Helpers that did not come in time are not waited for.
            if (job.wanted > 0) std::erase(jobs_, &job);
            left_.wait(lock, [&] { return job.inside == 0; });
            busy_ -= helpers;
        }
    }

  private:
    static constexpr std::size_t most_threads = 256;

    bool start_thread() {
        // Signals are for the threads that Python knows.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        bool started = true;
        try {
            std::thread([this] { help(); }).detach();
        } catch (const std::system_error&) {
            started = false;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        return started;
    }

    [[noreturn]] void help() {
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return !jobs_.empty(); });
            Job& job = *jobs_.front();
            ++job.inside;
            if (--job.wanted == 0) jobs_.pop_front();
            lock.unlock();
            job.run();
            lock.lock();
            if (--job.inside == 0) left_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_, left_;
    std::deque<Job*> jobs_;    // those that want helpers
    std::size_t busy_ = 0;     // helpers that the jobs under way have asked for
    std::size_t threads_ = 0;  // started
};

// Never destroyed: at exit its threads sleep, and go with the process.
std::atomic<Pool*> current{nullptr};

// The threads stay behind in a fork, and a lock that one of them held stays locked: the child makes another pool.
[[maybe_unused]] const int watched = pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });

Pool& pool() {
    Pool* found = current.load();
    if (found == nullptr) {
        auto* made = new Pool;
        if (current.compare_exchange_strong(found, made)) return *made;
        delete made;
    }
    return *found;
}

}  // namespace

void share_out(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
    Job job(count, work);
    const std::size_t useful = std::min(count, static_cast<std::size_t>(std::max(threads, 1)));
    pool().share_out(job, useful > 0 ? useful - 1 : 0);
}

}  // namespace dataflow
