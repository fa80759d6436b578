#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "buffer.h"
#include "columns.h"
#include "files.h"
#include "gather.h"
#include "gil.h"
#include "image_bindings.h"
#include "memory.h"
#include "order.h"
#include "receive.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dataflow {
namespace {

constexpr Element uint64{Kind::unsigned_integer, 8};

template <typename T>
using Vector = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

// A new NumPy array that owns memory which was filled here.
template <typename T>
Vector<T> to_numpy(std::unique_ptr<T[]> data, std::size_t length) {
    nb::capsule owner(data.get(), [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
    return Vector<T>(data.release(), {length}, owner);
}

void check_gatherable(const Values& values, const Buffer& out, std::int64_t positions) {
    if (!values.buffers.empty() && !can_gather(values.element(), out.element())) {
        type_error("cannot gather " + values.element().name() + " into " + out.element().name());
    }
    if (out.dimensions() < 1 || out.extent(0) != positions) {
        value_error("out must have " + std::to_string(positions) + " rows, one for each position");
    }
}

void gather_ragged_binding(nb::handle values, nb::handle offsets, nb::handle block, nb::handle row, nb::handle out,
                           nb::handle lengths, nb::handle fill, bool truncate) {
    const Values columns(values);
    const OffsetLists lists(offsets);
    const SelectedRows selected(block, row);
    const Buffer target(out, "out", Buffer::Access::write);
    const Buffer counts = vector_of(int64, lengths, "lengths", Buffer::Access::write);
    const Selection selection = selected.selection();
    check_paired(columns, lists);
    check_gatherable(columns, target, selection.size());
    if (target.dimensions() != 2) value_error("out must have two dimensions");
    if (counts.length() != selection.size()) value_error("lengths must have one item for each position");
    const Scalar padding = scalar_of(fill, target.element());
    const Element source = columns.buffers.empty() ? target.element() : columns.element();

    const GilReleased released;
    gather_ragged(columns.arrays, lists.offsets, source, selection, {target.data(), target.extent(1), target.element()},
                  counts.data(), padding, truncate);
}

void gather_fixed_binding(nb::handle values, std::int64_t width, nb::handle block, nb::handle row, nb::handle out) {
    const Values columns(values);
    const SelectedRows selected(block, row);
    const Buffer target(out, "out", Buffer::Access::write);
    const Selection selection = selected.selection();
    check_gatherable(columns, target, selection.size());
    if (width < 1) value_error("width must be at least 1");
    if (selection.size() > 0 && (target.length() % selection.size() != 0 || target.length() / selection.size() != width)) {
        value_error("out must have " + std::to_string(width) + " elements for each position");
    }
    const Element source = columns.buffers.empty() ? target.element() : columns.element();

    const GilReleased released;
    gather_fixed(columns.arrays, source, selection, {target.data(), width, target.element()});
}

Vector<std::int64_t> ragged_lengths_binding(nb::handle offsets, nb::handle block, nb::handle row) {
    const OffsetLists lists(offsets);
    const SelectedRows selected(block, row);
    const Selection selection = selected.selection();
    const auto size = static_cast<std::size_t>(selection.size());
    auto lengths = std::make_unique_for_overwrite<std::int64_t[]>(size);
    {
        const GilReleased released;
        ragged_lengths(lists.offsets, selection, reinterpret_cast<std::byte*>(lengths.get()));
    }
    return to_numpy(std::move(lengths), size);
}

nb::list gather_bytes_binding(nb::handle values, nb::handle offsets, nb::handle block, nb::handle row) {
    const BytesColumns columns(values, offsets, block, row);
    std::vector<std::span<const std::byte>> located;
    {
        const GilReleased released;
        located = columns.locate();
    }
    std::vector<nb::object> rows;
    rows.reserve(located.size());
    for (const auto& bytes : located) {
        PyObject* object = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes.size()));
        if (object == nullptr) throw nb::python_error();
        rows.push_back(nb::steal(object));
    }
    {
        // No other thread can see these objects yet.
        const GilReleased released;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (!located[i].empty()) std::memcpy(PyBytes_AS_STRING(rows[i].ptr()), located[i].data(), located[i].size());
        }
    }
    nb::list list;
    for (const nb::object& bytes : rows) list.append(bytes);
    return list;
}

using Permutation = void (*)(std::span<const std::uint64_t>, std::uint64_t, std::uint64_t, std::int64_t*);

template <Permutation function>
Vector<std::int64_t> permute_binding(nb::handle positions, std::uint64_t n, std::uint64_t key) {
    const Buffer buffer(positions, "positions");
    if ((buffer.element() != int64 && buffer.element() != uint64) || buffer.dimensions() != 1) {
        type_error("positions must be a one-dimensional array of int64 or uint64");
    }
    if (n < 1 || n > std::uint64_t{1} << 63) value_error("n must be 1 to 2**63");
    const auto size = static_cast<std::size_t>(buffer.length());
    auto images = std::make_unique_for_overwrite<std::int64_t[]>(size);
    {
        const GilReleased released;
        std::memcpy(images.get(), buffer.data(), size * sizeof(std::int64_t));
        function({reinterpret_cast<const std::uint64_t*>(images.get()), size}, n, key, images.get());
    }
    return to_numpy(std::move(images), size);
}

template <typename T>
std::vector<T> copied(const Buffer& buffer) {
    std::vector<T> copy(static_cast<std::size_t>(buffer.length()));
    if (!copy.empty()) std::memcpy(copy.data(), buffer.data(), copy.size() * sizeof(T));
    return copy;
}

Vector<std::int32_t> permute_rows(const std::vector<std::int64_t>& counts, const std::vector<std::uint64_t>& keys) {
    std::unique_ptr<std::int32_t[]> rows;
    const auto total = static_cast<std::size_t>(total_rows(counts));
    {
        const GilReleased released;
        rows = std::make_unique_for_overwrite<std::int32_t[]>(total);
        row_permutations(counts, keys, rows.get());
    }
    return to_numpy(std::move(rows), total);
}

Vector<std::int32_t> row_permutation_binding(std::int64_t n, std::uint64_t key) { return permute_rows({n}, {key}); }

Vector<std::int32_t> row_permutations_binding(nb::handle counts, nb::handle keys) {
    const auto count_values = copied<std::int64_t>(vector_of(int64, counts, "counts"));
    const auto key_values = copied<std::uint64_t>(vector_of(uint64, keys, "keys"));
    if (count_values.size() != key_values.size()) {
        value_error("there are " + std::to_string(count_values.size()) + " counts, but " + std::to_string(key_values.size()) +
                    " keys");
    }
    return permute_rows(count_values, key_values);
}

nb::tuple receive_binding(int descriptor, nb::bytes request, nb::handle buffer, std::int64_t start, double idle_seconds) {
    const Buffer target(buffer, "buffer", Buffer::Access::write);
    if (target.element().size != 1) type_error("buffer must be bytes, not " + target.element().name());
    if (!(idle_seconds > 0) || !std::isfinite(idle_seconds)) value_error("idle_seconds must be above 0 and finite");
    Reply reply;
    {
        const GilReleased released;
        reply = receive(descriptor, {request.c_str(), request.size()},
                        {target.data(), static_cast<std::size_t>(target.length())}, start, idle_seconds, [] {
                            const GilHeld held;
                            return PyErr_CheckSignals() != 0;
                        });
    }
    // A signal's handler has raised.
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return nb::make_tuple(reply.status, reply.length, reply.received, reply.kept,
                          nb::bytes(reply.said.data(), reply.said.size()));
}

std::size_t read_files_binding(nb::bytes folder, nb::bytes names, nb::handle ends, nb::handle buffer) {
    const Buffer end_of(ends, "ends");
    if (end_of.element() != int64 || end_of.dimensions() != 1) type_error("ends must be a one-dimensional array of int64");
    const Buffer target(buffer, "buffer", Buffer::Access::write);
    const auto sizes = copied<std::int64_t>(end_of);
    std::int64_t before = 0;
    for (const std::int64_t end : sizes) {
        if (end < before || end > target.length() * target.element().size) value_error("ends must rise, within the buffer");
        before = end;
    }
    const std::string_view given(names.c_str(), names.size());
    if (static_cast<std::size_t>(std::count(given.begin(), given.end(), '\0')) != sizes.size()) {
        value_error("there must be a name, with a zero byte behind it, for each of the " + std::to_string(sizes.size()) +
                    " files");
    }
    const GilReleased released;
    return read_files(folder.c_str(), given, sizes, target.data());
}

}  // namespace
}  // namespace dataflow

// The documentation of these functions is in dataflow/_native.pyi.
NB_MODULE(_native, module) {
    // A thread that still holds a function at exit is no leak of ours to report on the user's terminal.
    nb::set_leak_warnings(false);
    nb::class_<dataflow::Buffer>(module, "Array").def("__init__", [](dataflow::Buffer* self, nb::handle memory) {
        new (self) dataflow::Buffer(memory, "memory");
    }, "memory"_a.none());
    module.def("gather_ragged", &dataflow::gather_ragged_binding, "values"_a, "offsets"_a, "block"_a, "row"_a, "out"_a,
               "lengths"_a, "fill"_a, "truncate"_a = false);
    module.def("gather_fixed", &dataflow::gather_fixed_binding, "values"_a, "width"_a, "block"_a, "row"_a, "out"_a);
    module.def("ragged_lengths", &dataflow::ragged_lengths_binding, "offsets"_a, "block"_a, "row"_a);
    module.def("gather_bytes", &dataflow::gather_bytes_binding, "values"_a, "offsets"_a, "block"_a, "row"_a);
    module.def("mix64", &dataflow::mix64, "value"_a);
    module.def("permute", &dataflow::permute_binding<dataflow::permute>, "positions"_a, "n"_a, "key"_a);
    module.def("unpermute", &dataflow::permute_binding<dataflow::unpermute>, "images"_a, "n"_a, "key"_a);
    module.def("row_permutation", &dataflow::row_permutation_binding, "n"_a, "key"_a);
    module.def("row_permutations", &dataflow::row_permutations_binding, "counts"_a, "keys"_a);
    module.def("receive", &dataflow::receive_binding, "descriptor"_a, "request"_a, "buffer"_a, "start"_a, "idle_seconds"_a);
    module.def("read_files", &dataflow::read_files_binding, "folder"_a, "names"_a, "ends"_a, "buffer"_a);
    dataflow::bind_images(module);
    module.def("reuse_freed_memory", &dataflow::reuse_freed_memory);
}
