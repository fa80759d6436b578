#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dataflow {

// What the markers before the first scan say. Needs no JPEG library.
struct JpegHeader {
    std::int32_t height = 0;  // as stored; 0 where it is unknown
    std::int32_t width = 0;
    bool decodable = false;        // of a kind that `JpegDecoder` takes, and not cut off
    std::int32_t orientation = 1;  // EXIF, 1 to 8
};

// Reads nothing outside `file`, whatever the markers say.
JpegHeader read_jpeg_header(std::span<const std::byte> file);

}  // namespace dataflow
