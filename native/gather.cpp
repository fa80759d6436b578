#include "gather.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "dispatch.h"

namespace dataflow {
namespace {

using Copy = void (*)(const std::byte* source, std::int64_t count, std::byte* target);
using Fill = void (*)(const Scalar& scalar, std::int64_t count, std::byte* target);

constexpr Element int32{Kind::signed_integer, 4};
constexpr Element int64{Kind::signed_integer, 8};
constexpr Element uint8{Kind::unsigned_integer, 1};
constexpr Element uint16{Kind::unsigned_integer, 2};
constexpr Element uint32{Kind::unsigned_integer, 4};

// Arrow promises eight bytes of alignment at most, and a slice of a file not even that.
template <typename T>
[[gnu::always_inline]] inline T load(const std::byte* data, std::int64_t index) {
    T value;
    std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
}

template <typename T>
[[gnu::always_inline]] inline void store(std::byte* data, std::int64_t index, T value) {
    std::memcpy(data + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename From, typename To>
[[gnu::always_inline]] inline void widen(const std::byte* source, std::int64_t count, std::byte* target) {
    for (std::int64_t i = 0; i < count; ++i) store<To>(target, i, static_cast<To>(load<From>(source, i)));
}

// Not templates, since only plain functions can be compiled for several processors.
DATAFLOW_DISPATCH void uint8_to_int32(const std::byte* source, std::int64_t count, std::byte* target) {
    widen<std::uint8_t, std::int32_t>(source, count, target);
}
DATAFLOW_DISPATCH void uint8_to_int64(const std::byte* source, std::int64_t count, std::byte* target) {
    widen<std::uint8_t, std::int64_t>(source, count, target);
}
DATAFLOW_DISPATCH void uint16_to_int32(const std::byte* source, std::int64_t count, std::byte* target) {
    widen<std::uint16_t, std::int32_t>(source, count, target);
}
DATAFLOW_DISPATCH void uint16_to_int64(const std::byte* source, std::int64_t count, std::byte* target) {
    widen<std::uint16_t, std::int64_t>(source, count, target);
}
DATAFLOW_DISPATCH void int32_to_int64(const std::byte* source, std::int64_t count, std::byte* target) {
    widen<std::int32_t, std::int64_t>(source, count, target);
}
DATAFLOW_DISPATCH void uint32_to_int64(const std::byte* source, std::int64_t count, std::byte* target) {
    widen<std::uint32_t, std::int64_t>(source, count, target);
}

template <int size>
void copy(const std::byte* source, std::int64_t count, std::byte* target) {
    if (count > 0) std::memcpy(target, source, static_cast<std::size_t>(count * size));
}

template <int size>
void fill_with(const Scalar& scalar, std::int64_t count, std::byte* target) {
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(target + i * size, scalar.data(), size);
}

Copy copy_for(Element source, Element target) {
    if (source == target) {
        switch (source.size) {
            case 1: return copy<1>;
            case 2: return copy<2>;
            case 4: return copy<4>;
            case 8: return copy<8>;
            default: return nullptr;
        }
    }
    if (target == int32) {
        if (source == uint8) return uint8_to_int32;
        if (source == uint16) return uint16_to_int32;
    }
    if (target == int64) {
        if (source == uint8) return uint8_to_int64;
        if (source == uint16) return uint16_to_int64;
        if (source == int32) return int32_to_int64;
        if (source == uint32) return uint32_to_int64;
    }
    return nullptr;
}

Fill fill_for(Element target) {
    switch (target.size) {
        case 1: return fill_with<1>;
        case 2: return fill_with<2>;
        case 4: return fill_with<4>;
        default: return fill_with<8>;
    }
}

// A row that was asked for: where it goes, and where it is said to lie.
struct Request {
    std::int64_t position;
    std::int64_t block;
    std::int64_t row;

    [[noreturn]] void refuse(const std::string& what) const {
        throw std::invalid_argument("position " + std::to_string(position) + ": block " + std::to_string(block) + ", row " +
                                    std::to_string(row) + ": " + what);
    }
};

Request request(const Selection& selection, std::int64_t position, std::size_t blocks) {
    const Request request{position, load<std::int32_t>(selection.block.data, position),
                          load<std::int64_t>(selection.row.data, position)};
    if (request.block < 0 || request.block >= static_cast<std::int64_t>(blocks)) {
        request.refuse("there are " + std::to_string(blocks) + " blocks");
    }
    return request;
}

struct Extent {
    std::int64_t start;
    std::int64_t length;
};

Extent locate(const Request& request, const Offsets& offsets, std::int64_t limit) {
    const std::int64_t rows = offsets.array.length - 1;
    if (request.row < 0 || request.row >= rows) {
        request.refuse("the block has " + std::to_string(std::max<std::int64_t>(rows, 0)) + " rows");
    }
    // Each offset is read once: what was checked is what is used.
    const std::byte* data = offsets.array.data;
    const std::int64_t start = offsets.wide ? load<std::int64_t>(data, request.row) : load<std::int32_t>(data, request.row);
    const std::int64_t end = offsets.wide ? load<std::int64_t>(data, request.row + 1) : load<std::int32_t>(data, request.row + 1);
    if (start < 0 || end < start || end > limit) {
        std::string what = "offsets " + std::to_string(start) + " to " + std::to_string(end) + " are not a range";
        if (limit != std::numeric_limits<std::int64_t>::max()) what += " of its " + std::to_string(limit) + " values";
        request.refuse(what);
    }
    return {start, end - start};
}

}  // namespace

std::string Element::name() const {
    const std::string bits = std::to_string(size * 8);
    switch (kind) {
        case Kind::signed_integer: return "int" + bits;
        case Kind::unsigned_integer: return "uint" + bits;
        case Kind::real: return "float" + bits;
        default: return "bool";
    }
}

bool can_gather(Element source, Element target) { return copy_for(source, target) != nullptr; }

void gather_ragged(std::span<const Array> values, std::span<const Offsets> offsets, Element source, const Selection& selection,
                   const Batch& batch, std::byte* lengths, const Scalar& fill, bool truncate) {
    const Copy copy_row = copy_for(source, batch.element);
    const Fill fill_row = fill_for(batch.element);
    for (std::int64_t i = 0; i < selection.size(); ++i) {
        const Request wanted = request(selection, i, values.size());
        const Array& column = values[wanted.block];
        auto [start, length] = locate(wanted, offsets[wanted.block], column.length);
        if (length > batch.width) {
            if (!truncate) {
                wanted.refuse("has " + std::to_string(length) + " elements, but the batch is " + std::to_string(batch.width) +
                              " wide");
            }
            length = batch.width;
        }
        std::byte* target = batch.data + i * batch.width * batch.element.size;
        copy_row(column.data + start * source.size, length, target);
        fill_row(fill, batch.width - length, target + length * batch.element.size);
        store<std::int64_t>(lengths, i, length);
    }
}

void gather_fixed(std::span<const Array> values, Element source, const Selection& selection, const Batch& batch) {
    const Copy copy_row = copy_for(source, batch.element);
    for (std::int64_t i = 0; i < selection.size(); ++i) {
        const Request wanted = request(selection, i, values.size());
        const Array& column = values[wanted.block];
        const std::int64_t rows = column.length / batch.width;
        if (wanted.row < 0 || wanted.row >= rows) wanted.refuse("the block has " + std::to_string(rows) + " rows");
        copy_row(column.data + wanted.row * batch.width * source.size, batch.width,
                 batch.data + i * batch.width * batch.element.size);
    }
}

void ragged_lengths(std::span<const Offsets> offsets, const Selection& selection, std::byte* lengths) {
    for (std::int64_t i = 0; i < selection.size(); ++i) {
        const Request wanted = request(selection, i, offsets.size());
        store<std::int64_t>(lengths, i,
                            locate(wanted, offsets[wanted.block], std::numeric_limits<std::int64_t>::max()).length);
    }
}

std::vector<std::span<const std::byte>> locate_bytes(std::span<const Array> values, std::span<const Offsets> offsets,
                                                     const Selection& selection) {
    std::vector<std::span<const std::byte>> located;
    located.reserve(static_cast<std::size_t>(selection.size()));
    for (std::int64_t i = 0; i < selection.size(); ++i) {
        const Request wanted = request(selection, i, values.size());
        const Array& column = values[wanted.block];
        const Extent extent = locate(wanted, offsets[wanted.block], column.length);
        located.emplace_back(column.data + extent.start, static_cast<std::size_t>(extent.length));
    }
    return located;
}

}  // namespace dataflow
