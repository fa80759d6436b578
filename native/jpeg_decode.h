#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "resize.h"

namespace dataflow {

// "libjpeg-turbo 2.1.5", or "" where this was built without it.
const char* jpeg_library();

struct Region {
    int top, left, height, width;
};

// Decodes parts of one JPEG file. What is wrong throws std::runtime_error, which says what; damage that libjpeg would only
// warn of counts as wrong.
class JpegDecoder {
  public:
    // Reads the header. `file` must outlive this.
    explicit JpegDecoder(std::span<const std::byte> file);
    ~JpegDecoder();
    JpegDecoder(const JpegDecoder&) = delete;
    JpegDecoder& operator=(const JpegDecoder&) = delete;

    int height() const;
    int width() const;

    // Makes `decode` give a picture that is 1, 2, 4 or 8 times smaller, sizes rounded up; costs less than decoding it in full.
    void reduce(int divisor);

    // Decodes a part of the picture, once, into `memory`, which grows as needed. The result holds the region and maybe more.
    Pixels decode(const Region& region, std::vector<std::uint8_t>& memory);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace dataflow
