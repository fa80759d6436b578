#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace dataflow {

// Fills `target` with the first bytes of one file after another: file i goes up to ends[i]. `names` are paths below
// `folder`, each with a zero byte behind it. Returns how many files were read whole; the next one is missing or too short.
std::size_t read_files(const char* folder, std::string_view names, std::span<const std::int64_t> ends, std::byte* target);

}  // namespace dataflow
