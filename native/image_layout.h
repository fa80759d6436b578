#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gather.h"

namespace dataflow {

// Where one picture goes and what becomes of its pixels.
struct ImageLayout {
    std::int64_t height, width;
    Element element;     // uint8, float32 or float16
    bool channels_last;  // height x width x 3, else 3 x height x width

    std::int64_t bytes() const { return 3 * height * width * element.size; }
};

// What each of the 256 levels of red, green and blue becomes: a float32 or float16 in the low bits.
using Levels = std::array<std::array<std::uint32_t, 256>, 3>;

// (level / 255 - mean) / deviation, rounded once to the element's type. Not used for uint8.
Levels normalised_levels(Element element, const std::array<float, 3>& mean, const std::array<float, 3>& deviation);

// Writes row `y` of a picture that starts at `picture`; `row` has `pixel_bytes` bytes a pixel.
void write_row(const std::uint8_t* row, std::int64_t y, const ImageLayout& layout, const Levels& levels, std::byte* picture);

}  // namespace dataflow
