#pragma once

#include <cstdint>
#include <span>

// The permutations of the sample order. Every value is part of the stream's definition: a change here changes which
// sample comes when, for every saved state.
namespace dataflow {

// Finaliser of splitmix64: a bijection of the 64-bit integers.
std::uint64_t mix64(std::uint64_t value);

// Image of each position under the keyed permutation of 0..n-1 (balanced Feistel network with cycle walking), or its
// inverse. `n` is 1 to 2^63. Throws std::invalid_argument for a position that is not below n.
void permute(std::span<const std::uint64_t> positions, std::uint64_t n, std::uint64_t key, std::int64_t* images);
void unpermute(std::span<const std::uint64_t> images, std::uint64_t n, std::uint64_t key, std::int64_t* positions);

// For each count k and its key: 0..k-1 sorted by the hashes mix64(key + (r + 1) * golden ratio), laid end to end.
void row_permutations(std::span<const std::int64_t> counts, std::span<const std::uint64_t> keys, std::int32_t* rows);

// The number of rows that `row_permutations` writes. Throws std::invalid_argument for a count outside 0..2^31-1.
std::int64_t total_rows(std::span<const std::int64_t> counts);

}  // namespace dataflow
