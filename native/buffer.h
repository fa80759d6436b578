#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "gather.h"

// Arrays that come from Python through the buffer protocol: any alignment, no copies.
namespace dataflow {

// Holds one exported buffer; made and destroyed with the GIL held, read without it.
class Buffer {
  public:
    enum class Access { read, write };

    // Throws TypeError naming `name` for what is not a C-contiguous array of native integers, floats or booleans.
    Buffer(nanobind::handle object, const char* name, Access access = Access::read);
    // The same memory, for as long as `owner`, which holds the other buffer, is kept.
    Buffer(const Buffer& other, nanobind::object owner) noexcept;
    Buffer(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer();

    Element element() const { return element_; }
    std::int64_t length() const { return view_.len / view_.itemsize; }  // in elements, over all dimensions
    int dimensions() const { return view_.ndim; }
    std::int64_t extent(int dimension) const { return view_.shape[dimension]; }
    std::byte* data() const { return static_cast<std::byte*>(view_.buf); }
    Array array() const { return {data(), length()}; }

  private:
    void own_shape(const Buffer& other) noexcept;

    Py_buffer view_;
    Element element_;
    nanobind::object owner_;
};

// A buffer that must be one-dimensional with elements of one type.
Buffer vector_of(Element element, nanobind::handle object, const char* name, Buffer::Access access = Buffer::Access::read);

// One buffer for each item of a list or tuple: an array, or a `Buffer` that Python made before, which costs far less.
std::vector<Buffer> buffers_of(nanobind::handle sequence, const char* name);

// A number as one element of that type, to fill with. Throws ValueError when it does not fit.
Scalar scalar_of(nanobind::handle fill, Element element);

}  // namespace dataflow
