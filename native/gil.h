#pragma once

#include <Python.h>
#include <unistd.h>

// Giving up Python's interpreter lock and taking it again. When the interpreter ends, Python up to 3.13 ends daemon threads as
// they take the lock, by unwinding their stacks; through C++ code that would end the process. Such threads sleep instead,
// as they do from 3.14 on.
namespace dataflow {

template <typename Take>
auto take_gil(Take take) {
    try {
        return take();
    } catch (...) {
        for (;;) pause();
    }
}

class GilReleased {
  public:
    GilReleased() : thread_(PyEval_SaveThread()) {}
    ~GilReleased() {
        take_gil([&] { PyEval_RestoreThread(thread_); });
    }
    GilReleased(const GilReleased&) = delete;
    GilReleased& operator=(const GilReleased&) = delete;

  private:
    PyThreadState* const thread_;
};

class GilHeld {
  public:
    GilHeld() : state_(take_gil([] { return PyGILState_Ensure(); })) {}
    ~GilHeld() { PyGILState_Release(state_); }
    GilHeld(const GilHeld&) = delete;
    GilHeld& operator=(const GilHeld&) = delete;

  private:
    const PyGILState_STATE state_;
};

}  // namespace dataflow
