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

Buffer::Buffer(const Buffer& other, nb::object owner) noexcept
    : view_(other.view_), element_(other.element_), owner_(std::move(owner)) {
    own_shape(other);
    view_.obj = nullptr;  // PyBuffer_Release does nothing then
}

Buffer::Buffer(Buffer&& other) noexcept
    : view_(other.view_), element_(other.element_), owner_(std::move(other.owner_)) {
    own_shape(other);
    other.view_.obj = nullptr;
}

// A view of one dimension may point at its own struct for its shape; NumPy's never does, but bytes' does.
void Buffer::own_shape(const Buffer& other) noexcept {
    if (other.view_.shape == &other.view_.len) view_.shape = &view_.len;
    if (other.view_.strides == &other.view_.itemsize) view_.strides = &view_.itemsize;
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
        nb::object item = nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), i));
        const Buffer* held = nullptr;
        if (nb::try_cast(item, held, false) && held != nullptr) {
            buffers.emplace_back(*held, std::move(item));
        } else {
            buffers.emplace_back(item, name);
        }
    }
    return buffers;
}

Scalar scalar_of(nb::handle fill, Element element) {
    Scalar scalar{};
    auto* bytes = reinterpret_cast<char*>(scalar.data());
    if (element.kind == Kind::real) {
        const double value = PyFloat_AsDouble(fill.ptr());
        if (value == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
        const int failed = element.size == 2   ? PyFloat_Pack2(value, bytes, 1)
                           : element.size == 4 ? PyFloat_Pack4(value, bytes, 1)
                                               : PyFloat_Pack8(value, bytes, 1);
        if (failed != 0) throw nb::python_error();
        return scalar;
    }
    // Integers: the value as 64 bits, which must survive being cut to the size of an element.
    const nb::object integer = nb::steal(PyNumber_Index(fill.ptr()));
    if (!integer.is_valid()) throw nb::python_error();
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
    const int bits = element.size * 8;
    bool fits = overflow == 0;
    std::uint64_t pattern = static_cast<std::uint64_t>(value);
    if (element.kind == Kind::signed_integer) {
        fits = fits && (bits == 64 || (value >= -(1LL << (bits - 1)) && value < (1LL << (bits - 1))));
    } else if (element.kind == Kind::boolean) {
        fits = fits && (value == 0 || value == 1);
    } else if (overflow > 0 && bits == 64) {
        pattern = PyLong_AsUnsignedLongLong(integer.ptr());
        fits = PyErr_Occurred() == nullptr;
        PyErr_Clear();
    } else {
        fits = fits && value >= 0 && (bits == 64 || value < (1LL << bits));
    }
    if (!fits) throw nb::value_error(("fill does not fit " + element.name()).c_str());
    std::memcpy(bytes, &pattern, sizeof pattern);
    return scalar;
}

}  // namespace dataflow
