#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Antialiased bilinear resizing as Pillow does it: a triangle whose support grows with the reduction, in two passes. All in
// integers, so that every processor gives the same bits.
namespace dataflow {

constexpr int pixel_bytes = 4;  // red, green, blue and one that is not used: this suits vectors

// How the pixels along one axis of the target are made: each is a weighted sum of `taps` neighbouring source pixels.
struct Filter {
    std::vector<std::int32_t> starts;   // the first of these, for each target pixel
    std::vector<std::int32_t> weights;  // `taps` for each target pixel; those that fill up are 0
    int taps = 0;                       // a multiple of 4
    int first = 0, end = 0;             // the source pixels that have any weight

    // Resizes [start, start + length) of an axis of `source` pixels to `target` pixels. As far as the triangle reaches, pixels
    // beyond that range count too, as long as the axis has them. The last target pixel comes first if `reversed`.
    void prepare(double start, double length, int source, int target, bool reversed, std::int32_t weight_sum);
};

// A rectangle of a picture in memory.
struct Pixels {
    const std::uint8_t* data;
    std::ptrdiff_t stride;  // bytes from row to row
    int top, left;          // where it lies in the picture
};

// Makes a target row by row; the memory that it needs is kept from one picture to the next.
class Resizer {
  public:
    // Says what of a picture goes into a target, in the picture's pixels; `flip` swaps left and right.
    void prepare(double top, double left, double height, double width, int source_height, int source_width, int target_height,
                 int target_width, bool flip);
    // Which rows and columns of the picture are used.
    const Filter& rows() const { return rows_; }
    const Filter& columns() const { return columns_; }

    // Row `y` of the target, until the next call. `pixels` must hold all rows and columns that are used.
    const std::uint8_t* row(const Pixels& pixels, int y);

  private:
    void blend_rows(const Pixels& pixels, int y);

    Filter rows_, columns_;
    std::vector<std::int16_t> spread_weights_;  // the columns' weights as vectors want them
    std::vector<std::int32_t> sums_;            // one row of the source's width,
    std::vector<std::int16_t> blended_;         // and the same
    std::vector<std::uint8_t> row_;
};

}  // namespace dataflow
