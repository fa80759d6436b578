#include "image_layout.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "dispatch.h"
#include "resize.h"

namespace dataflow {
namespace {

constexpr int colours = 3;

// Rounds to the nearest, ties to even, as NumPy does.
std::uint16_t to_half(double value) {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::abs(value);
    constexpr std::uint16_t infinity = 0x7C00;
    if (std::isnan(value)) return sign | infinity | 0x200;
    if (magnitude >= 65520) return sign | infinity;
    // The unit of the last place: subnormal numbers share that of the smallest normal ones.
    const int exponent = magnitude < 0x1p-14 ? -14 : std::ilogb(magnitude);
    const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
    // A carry goes into the exponent by itself.
    return static_cast<std::uint16_t>(sign | ((static_cast<std::uint32_t>(exponent + 14) << 10) + units));
}

DATAFLOW_DISPATCH void split(const std::uint8_t* row, std::int64_t width, std::uint8_t* red, std::uint8_t* green,
                             std::uint8_t* blue) {
    for (std::int64_t x = 0; x < width; ++x) {
        red[x] = row[x * pixel_bytes];
        green[x] = row[x * pixel_bytes + 1];
        blue[x] = row[x * pixel_bytes + 2];
    }
}

void write_bytes(const std::uint8_t* row, std::int64_t y, const ImageLayout& layout, std::uint8_t* picture) {
    const std::int64_t width = layout.width, plane = layout.height * width;
    if (!layout.channels_last) {
        std::uint8_t* red = picture + y * width;
        split(row, width, red, red + plane, red + 2 * plane);
        return;
    }
    std::uint8_t* target = picture + y * width * colours;
    // Each copy is one byte too long, which the next one mends.
    for (std::int64_t x = 0; x + 1 < width; ++x) std::memcpy(target + x * colours, row + x * pixel_bytes, pixel_bytes);
    std::memcpy(target + (width - 1) * colours, row + (width - 1) * pixel_bytes, colours);
}

template <typename T>
void write_levels(const std::uint8_t* row, std::int64_t y, const ImageLayout& layout, const Levels& levels,
                  std::byte* picture) {
    const std::int64_t width = layout.width;
    const std::int64_t step = layout.channels_last ? colours : 1;
    const std::int64_t apart = layout.channels_last ? 1 : layout.height * width;
    for (int c = 0; c < colours; ++c) {
        std::byte* target = picture + (y * width * step + c * apart) * static_cast<std::int64_t>(sizeof(T));
        for (std::int64_t x = 0; x < width; ++x) {
            const T value = static_cast<T>(levels[c][row[x * pixel_bytes + c]]);
            std::memcpy(target + x * step * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
        }
    }
}

}  // namespace

Levels normalised_levels(Element element, const std::array<float, 3>& mean, const std::array<float, 3>& deviation) {
    Levels levels;
    for (int c = 0; c < colours; ++c) {
        for (int level = 0; level < 256; ++level) {
            const double value = (level / 255.0 - mean[c]) / deviation[c];
            levels[c][level] = element.size == 2 ? to_half(value) : std::bit_cast<std::uint32_t>(static_cast<float>(value));
        }
    }
    return levels;
}

void write_row(const std::uint8_t* row, std::int64_t y, const ImageLayout& layout, const Levels& levels, std::byte* picture) {
    switch (layout.element.size) {
        case 1: return write_bytes(row, y, layout, reinterpret_cast<std::uint8_t*>(picture));
        case 2: return write_levels<std::uint16_t>(row, y, layout, levels, picture);
        default: return write_levels<std::uint32_t>(row, y, layout, levels, picture);
    }
}

}  // namespace dataflow
