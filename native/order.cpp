#include "order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dispatch.h"

namespace dataflow {
namespace {

constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u;
constexpr int rounds = 8;

[[gnu::always_inline]] inline std::uint64_t finalise(std::uint64_t z) {
    z ^= z >> 30;
    z *= 0xBF58476D1CE4E5B9u;
    z ^= z >> 27;
    z *= 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// A Feistel network over the smallest power of four that holds n.
struct Network {
    Network(std::uint64_t n, std::uint64_t key, bool inverse) : inverse(inverse) {
        // The smallest half with 4^half >= n.
        half = (std::bit_width(n - 1) + 1) / 2;
        mask = (std::uint64_t{1} << half) - 1;
        for (int i = 0; i < rounds; ++i) round_keys[i] = finalise(key + static_cast<std::uint64_t>(i + 1) * golden_ratio);
        if (inverse) std::ranges::reverse(round_keys);
    }

    std::array<std::uint64_t, rounds> round_keys{};
    std::uint64_t mask;
    int half;
    bool inverse;
};

// One pass of the network over all values, in place. The inverse is the same loop with the halves swapped and the
// round keys reversed. Values go in groups, so that a round is one operation on a vector of halves.
DATAFLOW_DISPATCH void pass(const Network& network, std::uint64_t* values, std::size_t count) {
    constexpr std::size_t group = 16;
    const std::uint64_t mask = network.mask;
    const int half = network.half;
    const bool inverse = network.inverse;
    for (std::size_t start = 0; start < count; start += group) {
        std::uint64_t left[group], right[group];
        for (std::size_t i = 0; i < group; ++i) {
            left[i] = inverse ? values[start + i] & mask : values[start + i] >> half;
            right[i] = inverse ? values[start + i] >> half : values[start + i] & mask;
        }
        for (const std::uint64_t round_key : network.round_keys) {
#pragma GCC unroll 1  // unrolled first, it would not become vectors
            for (std::size_t i = 0; i < group; ++i) {
                const std::uint64_t next = left[i] ^ ((finalise(right[i] + round_key) >> 17) & mask);
                left[i] = right[i];
                right[i] = next;
            }
        }
        for (std::size_t i = 0; i < group; ++i) {
            values[start + i] = inverse ? (right[i] << half) | left[i] : (left[i] << half) | right[i];
        }
    }
}

void walk(std::span<const std::uint64_t> inputs, std::uint64_t n, const Network& network, std::int64_t* outputs) {
    // Values that leave 0..n-1 go through the network again. They are packed, so that each pass is one dense loop.
    constexpr std::size_t chunk = 512;
    std::array<std::uint64_t, chunk> values{};
    std::array<std::uint32_t, chunk> places;
    for (std::size_t start = 0; start < inputs.size(); start += chunk) {
        std::size_t pending = std::min(chunk, inputs.size() - start);
        for (std::size_t i = 0; i < pending; ++i) {
            values[i] = inputs[start + i];
            places[i] = static_cast<std::uint32_t>(i);
            if (values[i] >= n) {
                throw std::invalid_argument("position " + std::to_string(static_cast<std::int64_t>(values[i])) + " at index " +
                                            std::to_string(start + i) + " is outside 0.." + std::to_string(n - 1));
            }
        }
        while (pending > 0) {
            pass(network, values.data(), pending);
            std::size_t kept = 0;
            for (std::size_t i = 0; i < pending; ++i) {
                const std::uint64_t value = values[i];
                const std::uint32_t place = places[i];
                if (value < n) {
                    outputs[start + place] = static_cast<std::int64_t>(value);
                } else {
                    values[kept] = value;
                    places[kept++] = place;
                }
            }
            pending = kept;
        }
    }
}

struct HashedRow {
    std::uint64_t hash;
    std::int32_t row;
};

DATAFLOW_DISPATCH void hash_rows(std::uint64_t key, std::uint64_t* hashes, std::size_t count) {
    for (std::size_t row = 0; row < count; ++row) hashes[row] = finalise(key + (row + 1) * golden_ratio);
}

void insertion_sort(std::span<HashedRow> rows) {
    for (std::size_t i = 1; i < rows.size(); ++i) {
        const HashedRow moving = rows[i];
        std::size_t place = i;
        for (; place > 0 && rows[place - 1].hash > moving.hash; --place) rows[place] = rows[place - 1];
        rows[place] = moving;
    }
}

// Memory that all blocks of one call share.
struct Scratch {
    std::vector<std::uint64_t> hashes;
    std::vector<HashedRow> sorted;
    std::vector<std::uint32_t> ends;
};

// Hashes are uniform and distinct, so a bucket by the top bits holds about one row: scatter, then one insertion sort
// over the whole, in which rows move within their bucket only.
void sort_rows(std::size_t count, std::uint64_t key, Scratch& scratch, std::int32_t* rows) {
    if (count == 0) return;
    if (scratch.hashes.size() < count) {
        scratch.hashes.resize(count);
        scratch.sorted.resize(count);
    }
    hash_rows(key, scratch.hashes.data(), count);
    const std::span<HashedRow> sorted(scratch.sorted.data(), count);
    const int bits = std::max(1, static_cast<int>(std::bit_width(count - 1)));
    const int shift = 64 - bits;
    scratch.ends.assign(std::size_t{1} << bits, 0);
    for (std::size_t row = 0; row < count; ++row) ++scratch.ends[scratch.hashes[row] >> shift];
    std::uint32_t start = 0;
    for (std::uint32_t& end : scratch.ends) start += std::exchange(end, start);
    for (std::size_t row = 0; row < count; ++row) {
        const std::uint64_t hash = scratch.hashes[row];
        sorted[scratch.ends[hash >> shift]++] = {hash, static_cast<std::int32_t>(row)};
    }
    insertion_sort(sorted);
    for (std::size_t place = 0; place < count; ++place) rows[place] = sorted[place].row;
}

}  // namespace

std::uint64_t mix64(std::uint64_t value) { return finalise(value); }

void permute(std::span<const std::uint64_t> positions, std::uint64_t n, std::uint64_t key, std::int64_t* images) {
    walk(positions, n, Network(n, key, false), images);
}

void unpermute(std::span<const std::uint64_t> images, std::uint64_t n, std::uint64_t key, std::int64_t* positions) {
    walk(images, n, Network(n, key, true), positions);
}

std::int64_t total_rows(std::span<const std::int64_t> counts) {
    std::int64_t total = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] < 0 || counts[i] > std::numeric_limits<std::int32_t>::max()) {
            throw std::invalid_argument("count " + std::to_string(counts[i]) + " at index " + std::to_string(i) +
                                        " is outside 0..2147483647");
        }
        total += counts[i];  // cannot overflow: 2^31 counts of 2^31 rows would be needed for 2^62
    }
    return total;
}

void row_permutations(std::span<const std::int64_t> counts, std::span<const std::uint64_t> keys, std::int32_t* rows) {
    Scratch scratch;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        const auto count = static_cast<std::size_t>(counts[i]);
        sort_rows(count, keys[i], scratch, rows);
        rows += count;
    }
}

}  // namespace dataflow
