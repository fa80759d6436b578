#include "buffer.h"

#include <bit>
#include <cstring>
#include <string>
#include <utility>

namespace nb = nanobind;

static_assert(std::endian::native == std::endian::little, "Arrow data and formats are read as little-endian");

namespace dataflow {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& what) {
    throw nb::type_error((std::string(name) + ' ' + what).c_str());
}

Element element_of(const Py_buffer& view, const char* name) {
    const char* format = view.format != nullptr ? view.format : "B";
    // NumPy says "=" or "^" for arrays that are not aligned; the size of an element is in itemsize either way.
    if (std::strchr("@=^<", *format) != nullptr && *format != '\0') ++format;
    if (std::strlen(format) == 1) {
        const auto size = static_cast<std::uint8_t>(view.itemsize);
        if (std::strchr("bhilqn", *format) != nullptr) return {Kind::signed_integer, size};
        if (std::strchr("BHILQN", *format) != nullptr) return {Kind::unsigned_integer, size};
        if (std::strchr("efd", *format) != nullptr) return {Kind::real, size};
        if (*format == '?') return {Kind::boolean, size};
    }
    refuse(name, std::string("has elements of format '") + (view.format != nullptr ? view.format : "") +
                     "': only integers, floats and booleans in native byte order are gathered; view other types as these");
}

}  // namespace

Buffer::Buffer(nb::handle object, const char* name, Access access) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (access == Access::write ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
        nb::python_error cause;
        nb::raise_from(cause, PyExc_TypeError, "%s must be a C-contiguous%s array", name,
                       access == Access::write ? ", writable" : "");
    }
    try {
        element_ = element_of(view_, name);
    } catch (...) {
        PyBuffer_Release(&view_);
        throw;
    }
}

Buffer::Buffer(Buffer&& other) noexcept : view_(other.view_), element_(other.element_) {
    // A view of one dimension may point at its own struct for its shape; NumPy's never does, but bytes' does.
    if (other.view_.shape == &other.view_.len) view_.shape = &view_.len;
    if (other.view_.strides == &other.view_.itemsize) view_.strides = &view_.itemsize;
    other.view_.obj = nullptr;  // PyBuffer_Release does nothing then
}

Buffer::~Buffer() { PyBuffer_Release(&view_); }

Buffer vector_of(Element element, nb::handle object, const char* name, Buffer::Access access) {
    Buffer buffer(object, name, access);
    if (buffer.element() != element || buffer.dimensions() != 1) {
        refuse(name, "must be a one-dimensional array of " + element.name() + ", not " +
                         std::to_string(buffer.dimensions()) + "-dimensional " + buffer.element().name());
    }
    return buffer;
}

std::vector<Buffer> buffers_of(nb::handle sequence, const char* name) {
    const bool list = PyList_Check(sequence.ptr());
    if (!list && !PyTuple_Check(sequence.ptr())) refuse(name, "must be a list or tuple of arrays");
    std::vector<Buffer> buffers;
    // The size is read anew each time: an exporter's code may run between two items.
    buffers.reserve(static_cast<std::size_t>(PySequence_Fast_GET_SIZE(sequence.ptr())));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.ptr()); ++i) {
        buffers.emplace_back(nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), i)), name);
    }
    return buffers;
}

}  // namespace dataflow
