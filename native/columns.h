#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "buffer.h"
#include "gather.h"

// The columns and rows that a call names, as Python gives them.
namespace dataflow {

constexpr Element int32{Kind::signed_integer, 4};
constexpr Element int64{Kind::signed_integer, 8};

[[noreturn]] inline void type_error(const std::string& message) { throw nanobind::type_error(message.c_str()); }
[[noreturn]] inline void value_error(const std::string& message) { throw nanobind::value_error(message.c_str()); }

struct SelectedRows {
    SelectedRows(nanobind::handle block, nanobind::handle row)
        : block(vector_of(int32, block, "block")), row(vector_of(int64, row, "row")) {
        if (this->block.length() != this->row.length()) {
            value_error("block has " + std::to_string(this->block.length()) + " items, but row has " +
                        std::to_string(this->row.length()));
        }
    }
    Selection selection() const { return {block.array(), row.array()}; }

    Buffer block;
    Buffer row;
};

// The child values of a column, one array a block, all of one type.
struct Values {
    explicit Values(nanobind::handle sequence) : buffers(buffers_of(sequence, "values")) {
        arrays.reserve(buffers.size());
        for (const Buffer& buffer : buffers) {
            if (buffer.element() != element()) {
                type_error("values must all have one type, not both " + element().name() + " and " + buffer.element().name());
            }
            arrays.push_back(buffer.array());
        }
    }
    Element element() const { return buffers.front().element(); }

    std::vector<Buffer> buffers;
    std::vector<Array> arrays;
};

struct OffsetLists {
    explicit OffsetLists(nanobind::handle sequence) : buffers(buffers_of(sequence, "offsets")) {
        offsets.reserve(buffers.size());
        for (const Buffer& buffer : buffers) {
            const bool wide = buffer.element() == int64;
            if (!wide && buffer.element() != int32) type_error("offsets must be int32 or int64, not " + buffer.element().name());
            offsets.push_back({buffer.array(), wide});
        }
    }

    std::vector<Buffer> buffers;
    std::vector<Offsets> offsets;
};

inline void check_paired(const Values& values, const OffsetLists& offsets) {
    if (values.arrays.size() != offsets.offsets.size()) {
        value_error("there are " + std::to_string(values.arrays.size()) + " arrays of values, but " +
                    std::to_string(offsets.offsets.size()) + " of offsets");
    }
}

// Rows of binary or string columns.
struct BytesColumns {
    BytesColumns(nanobind::handle values, nanobind::handle offsets, nanobind::handle block, nanobind::handle row)
        : columns(values), lists(offsets), selected(block, row) {
        check_paired(columns, lists);
        if (!columns.buffers.empty() && columns.element().size != 1) {
            type_error("values must be bytes, not " + columns.element().name());
        }
    }
    std::vector<std::span<const std::byte>> locate() const {
        return locate_bytes(columns.arrays, lists.offsets, selected.selection());
    }

    Values columns;
    OffsetLists lists;
    SelectedRows selected;
};

}  // namespace dataflow
