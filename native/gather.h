#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// Rows of columns that lie in several Arrow blocks, gathered into one batch. Nothing here trusts the data: every offset
// is checked against its buffer before it is followed, and std::invalid_argument says which one is wrong.
namespace dataflow {

enum class Kind : std::uint8_t { signed_integer, unsigned_integer, real, boolean };

struct Element {
    Kind kind;
    std::uint8_t size;  // in bytes

    bool operator==(const Element&) const = default;
    std::string name() const;  // as NumPy calls it: "uint16"
};

// Elements in memory, at any alignment.
struct Array {
    const std::byte* data;
    std::int64_t length;  // in elements
};

// The offsets of a list or binary column: row i is values[offsets[i]] to values[offsets[i + 1]].
struct Offsets {
    Array array;
    bool wide;  // int64, else int32
};

// Which rows: row `row[i]` of block `block[i]` goes to position i of the batch.
struct Selection {
    Array block;  // int32
    Array row;    // int64

    std::int64_t size() const { return block.length; }
};

// The batch: one row of `width` elements a position, densely packed.
struct Batch {
    std::byte* data;
    std::int64_t width;
    Element element;
};

// One element of the batch as bytes.
using Scalar = std::array<std::byte, 8>;

// Whether elements of one type can be copied or widened into another.
bool can_gather(Element source, Element target);

// `lengths` receives, for each position, the number of elements written; the rest of the row is `fill`. A row longer
// than the batch is wide is refused, or cut if `truncate`.
void gather_ragged(std::span<const Array> values, std::span<const Offsets> offsets, Element source, const Selection& selection,
                   const Batch& batch, std::byte* lengths, const Scalar& fill, bool truncate);

// As above for rows that all have the batch's width: row i of a block starts at element i * width.
void gather_fixed(std::span<const Array> values, Element source, const Selection& selection, const Batch& batch);

// The length of each row, in elements, as int64.
void ragged_lengths(std::span<const Offsets> offsets, const Selection& selection, std::byte* lengths);

// Where each row's bytes lie.
std::vector<std::span<const std::byte>> locate_bytes(std::span<const Array> values, std::span<const Offsets> offsets,
                                                     const Selection& selection);

}  // namespace dataflow
