#include "resize.h"

#include <algorithm>
#include <cmath>

#include "dispatch.h"

#if defined(__x86_64__) && !defined(DATAFLOW_NO_DISPATCH)
#include <immintrin.h>
#define DATAFLOW_AVX2
#endif

namespace dataflow {
namespace {

constexpr int group = 4;  // taps, and target pixels along a row, are taken four at a time

int rounded_up(int count) { return (count + group - 1) / group * group; }

// Rows are blended into 15 bits, of which 7 are a fraction, and these along the row into the 8 bits of the target.
constexpr std::int32_t row_weight_sum = (1 << 15) - 1;
constexpr std::int32_t column_weight_sum = 1 << 14;
constexpr int column_shift = 7 + 14;

[[gnu::always_inline]] inline std::int16_t blend_pixel(const std::uint8_t* const* rows, const std::uint16_t* weights, int i) {
    std::uint16_t sum = 0;
    for (int k = 0; k < group; ++k) {
        const auto scaled = static_cast<std::uint16_t>(rows[k][i] << 8);
        sum = static_cast<std::uint16_t>(sum + (std::uint32_t{scaled} * weights[k] >> 16));
    }
    return static_cast<std::int16_t>(sum + group / 2);  // half a unit for what each product was cut by
}

// Sets blended[i] to the weighted sum of rows[0..3][i].
DATAFLOW_DISPATCH void blend(const std::uint8_t* const* rows, const std::uint16_t* weights, int count, std::int16_t* blended) {
    const std::uint8_t* const kept[group]{rows[0], rows[1], rows[2], rows[3]};
    const std::uint16_t w[group]{weights[0], weights[1], weights[2], weights[3]};
    for (int i = 0; i < count; ++i) blended[i] = blend_pixel(kept, w, i);
}

// Adds to it instead.
DATAFLOW_DISPATCH void blend_more(const std::uint8_t* const* rows, const std::uint16_t* weights, int count,
                                  std::int16_t* blended) {
    const std::uint8_t* const kept[group]{rows[0], rows[1], rows[2], rows[3]};
    const std::uint16_t w[group]{weights[0], weights[1], weights[2], weights[3]};
    for (int i = 0; i < count; ++i) blended[i] = static_cast<std::int16_t>(blended[i] + blend_pixel(kept, w, i));
}

// Of many small products nothing would be left. These sums are exact.
constexpr int most_cut_taps = 16;

DATAFLOW_DISPATCH void add_exactly(const std::uint8_t* row, std::int32_t weight, int count, std::int32_t* sums) {
    for (int i = 0; i < count; ++i) sums[i] += row[i] * weight;
}

DATAFLOW_DISPATCH void round_sums(const std::int32_t* sums, int count, std::int16_t* blended) {
    for (int i = 0; i < count; ++i) blended[i] = static_cast<std::int16_t>((sums[i] + 128) >> 8);
}

void narrow_plain(const Filter& columns, const std::int16_t* blended, int target, std::uint8_t* row) {
    for (int x = 0; x < target; ++x) {
        const std::int16_t* pixel = blended + (columns.starts[x] - columns.first) * pixel_bytes;
        const std::int32_t* weight = columns.weights.data() + x * columns.taps;
        std::int32_t sums[pixel_bytes]{};
        for (int k = 0; k < columns.taps; ++k, pixel += pixel_bytes) {
            for (int c = 0; c < pixel_bytes; ++c) sums[c] += pixel[c] * weight[k];
        }
        for (int c = 0; c < pixel_bytes; ++c) {
            row[x * pixel_bytes + c] = static_cast<std::uint8_t>((sums[c] + (1 << (column_shift - 1))) >> column_shift);
        }
    }
}

#if defined(DATAFLOW_AVX2)

constexpr int spread_size = 16;  // one vector for each four weights

// The weighted sums of one target pixel: four taps a step, since a vector holds four source pixels; each half sums two.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i narrow_pixel(const std::int16_t* pixels, const std::int16_t* weights,
                                                                       int steps) {
    const __m256i paired = _mm256_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,  //
                                            0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    const auto products = [&](int step) __attribute__((target("avx2"), always_inline)) {
        const __m256i four = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(pixels + step * group * pixel_bytes));
        const __m256i weight = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + step * spread_size));
        return _mm256_madd_epi16(_mm256_shuffle_epi8(four, paired), weight);
    };
    __m256i sum = products(0);
    for (int step = 1; step < steps; ++step) sum = _mm256_add_epi32(sum, products(step));
    return sum;
}

// Joins the halves of two target pixels.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i join(__m256i a, __m256i b) {
    const __m256i sum = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
    return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (column_shift - 1))), column_shift);
}

[[gnu::target("avx2"), gnu::always_inline]] inline void narrow_row(const Filter& columns, const std::int16_t* weights,
                                                                  const std::int16_t* blended, int target, int steps,
                                                                  std::uint8_t* row) {
    const std::int32_t* starts = columns.starts.data();
    const std::int16_t* origin = blended - static_cast<std::ptrdiff_t>(columns.first) * pixel_bytes;
    const std::ptrdiff_t apart = steps * spread_size;
    for (int x = 0; x < target; x += group, starts += group, weights += group * apart, row += group * pixel_bytes) {
        const __m256i a = narrow_pixel(origin + starts[0] * pixel_bytes, weights, steps);
        const __m256i b = narrow_pixel(origin + starts[1] * pixel_bytes, weights + apart, steps);
        const __m256i c = narrow_pixel(origin + starts[2] * pixel_bytes, weights + 2 * apart, steps);
        const __m256i d = narrow_pixel(origin + starts[3] * pixel_bytes, weights + 3 * apart, steps);
        // Packing works on halves: a and b are in the first, c and d in the second.
        const __m256i words = _mm256_packs_epi32(join(a, c), join(b, d));
        const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0b00'00'10'00);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(row), _mm256_castsi256_si128(bytes));
    }
}

[[gnu::target("avx2")]] void narrow_avx2(const Filter& columns, const std::int16_t* weights, const std::int16_t* blended,
                                         int target, std::uint8_t* row) {
    const int steps = columns.taps / group;
    // Reductions by less than two need one step.
    if (steps == 1) return narrow_row(columns, weights, blended, target, 1, row);
    narrow_row(columns, weights, blended, target, steps, row);
}

const bool have_avx2 = __builtin_cpu_supports("avx2");

void spread(const Filter& columns, std::vector<std::int16_t>& spread_weights) {
    const std::size_t count = columns.weights.size();
    spread_weights.resize(count * (spread_size / group));
    for (std::size_t i = 0; i < count; i += 2) {
        std::int16_t* pairs = spread_weights.data() + i * (spread_size / group);
        for (int c = 0; c < pixel_bytes; ++c) {
            pairs[2 * c] = static_cast<std::int16_t>(columns.weights[i]);
            pairs[2 * c + 1] = static_cast<std::int16_t>(columns.weights[i + 1]);
        }
    }
}

#endif

}  // namespace

void Filter::prepare(double start, double length, int source, int target, bool reversed, std::int32_t weight_sum) {
    const double scale = length / target;
    const double support = std::max(scale, 1.0);
    taps = rounded_up(static_cast<int>(2 * support) + 1);
    starts.assign(rounded_up(target), 0);
    weights.assign(starts.size() * static_cast<std::size_t>(taps), 0);
    first = source;
    end = 0;
    for (int i = 0; i < target; ++i) {
        const double centre = start + (i + 0.5) * scale;
        const int low = std::clamp(static_cast<int>(std::floor(centre - support + 0.5)), 0, source - 1);
        const int reach = static_cast<int>(std::floor(centre + support + 0.5));
        const int high = std::clamp(reach, low + 1, std::min(source, low + taps));
        const int place = reversed ? target - 1 - i : i;
        std::int32_t* weight = weights.data() + static_cast<std::size_t>(place) * taps;
        const auto height = [&](int pixel) { return std::max(0.0, support - std::abs(pixel + 0.5 - centre)); };
        double area = 0;
        for (int pixel = low; pixel < high; ++pixel) area += height(pixel);
        // The sums are rounded, not the weights: a plain colour stays what it is, however many weights there are.
        double sum = 0;
        std::int32_t given = 0;
        for (int k = 0; k < high - low; ++k) {
            sum += height(low + k);
            weight[k] = static_cast<std::int32_t>(sum / area * weight_sum + 0.5) - given;
            given += weight[k];
        }
        starts[place] = low;
        first = std::min(first, low);
        end = std::max(end, high);
    }
    // Those that fill up must lie within the row as well.
    for (int place = target; place < static_cast<int>(starts.size()); ++place) starts[place] = first;
}

void Resizer::prepare(double top, double left, double height, double width, int source_height, int source_width,
                      int target_height, int target_width, bool flip) {
    rows_.prepare(top, height, source_height, target_height, false, row_weight_sum);
    columns_.prepare(left, width, source_width, target_width, flip, column_weight_sum);
    // The last steps of a row may read beyond its end, with weights of 0.
    blended_.resize(static_cast<std::size_t>(columns_.end - columns_.first + columns_.taps) * pixel_bytes);
    row_.resize(columns_.starts.size() * pixel_bytes);
#if defined(DATAFLOW_AVX2)
    if (have_avx2) spread(columns_, spread_weights_);
#endif
}

void Resizer::blend_rows(const Pixels& pixels, int y) {
    const std::int32_t* weights = rows_.weights.data() + static_cast<std::size_t>(y) * rows_.taps;
    const int count = (columns_.end - columns_.first) * pixel_bytes;
    const auto source = [&](int k) {
        const int row = std::min(rows_.starts[y] + k, rows_.end - 1);  // beyond it weights are 0
        return pixels.data + (row - pixels.top) * pixels.stride + (columns_.first - pixels.left) * pixel_bytes;
    };
    if (rows_.taps > most_cut_taps) {
        sums_.assign(static_cast<std::size_t>(count), 0);
        for (int k = 0; k < rows_.taps; ++k) {
            if (weights[k] != 0) add_exactly(source(k), weights[k], count, sums_.data());
        }
        return round_sums(sums_.data(), count, blended_.data());
    }
    for (int k = 0; k < rows_.taps; k += group) {
        const std::uint8_t* const rows[group]{source(k), source(k + 1), source(k + 2), source(k + 3)};
        std::uint16_t four[group];
        std::copy_n(weights + k, group, four);
        if (k == 0) {
            blend(rows, four, count, blended_.data());
        } else {
            blend_more(rows, four, count, blended_.data());
        }
    }
}

const std::uint8_t* Resizer::row(const Pixels& pixels, int y) {
    blend_rows(pixels, y);
    const auto target = static_cast<int>(columns_.starts.size());
#if defined(DATAFLOW_AVX2)
    if (have_avx2) {
        narrow_avx2(columns_, spread_weights_.data(), blended_.data(), target, row_.data());
        return row_.data();
    }
#endif
    narrow_plain(columns_, blended_.data(), target, row_.data());
    return row_.data();
}

}  // namespace dataflow
