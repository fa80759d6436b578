#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "image_layout.h"
#include "jpeg_decode.h"

namespace dataflow {

// A picture that is wanted: what of it, and where it goes.
struct ImageRequest {
    std::span<const std::byte> file;
    Region window;  // in pixels as stored
    bool flip;
    std::byte* picture;
};

// Decodes, resizes and writes each picture, on up to `threads` threads. Returns for each request why it failed, "" where it
// did not; of a picture that failed the target is undefined, and others are not affected.
std::vector<std::string> decode_images(std::span<const ImageRequest> requests, const ImageLayout& layout, const Levels& levels,
                                       int threads);

}  // namespace dataflow
