#include "image_batch.h"

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "resize.h"
#include "threads.h"

namespace dataflow {
namespace {

// What a thread keeps from picture to picture.
struct Workspace {
    Resizer resizer;
    std::vector<std::uint8_t> pixels;
};

constexpr std::size_t most_kept_bytes = 32 << 20;

// How many times smaller the decoder makes the picture: what it leaves is still so much larger than the target that the
// resizing decides how the result looks.
int reduction(const Region& window, const ImageLayout& layout) {
    constexpr double least_left = 2;
    for (const int divisor : {8, 4, 2}) {
        if (window.height >= least_left * divisor * static_cast<double>(layout.height) &&
            window.width >= least_left * divisor * static_cast<double>(layout.width)) {
            return divisor;
        }
    }
    return 1;
}

void decode_image(const ImageRequest& request, const ImageLayout& layout, const Levels& levels, Workspace& workspace) {
    JpegDecoder decoder(request.file);
    const Region& window = request.window;
    if (window.top < 0 || window.left < 0 || window.height < 1 || window.width < 1 ||
        window.height > decoder.height() - window.top || window.width > decoder.width() - window.left) {
        const auto text = [](int height, int width) { return std::to_string(height) + " x " + std::to_string(width); };
        throw std::runtime_error("the window of " + text(window.height, window.width) + " at " + text(window.top, window.left) +
                                 " is not within the " + text(decoder.height(), decoder.width()) + " pixels of the JPEG");
    }
    const int divisor = reduction(window, layout);
    decoder.reduce(divisor);
    const auto reduced = [&](int length) { return (length + divisor - 1) / divisor; };
    const auto scaled = [&](int length) { return static_cast<double>(length) / divisor; };

    Resizer& resizer = workspace.resizer;
    resizer.prepare(scaled(window.top), scaled(window.left), scaled(window.height), scaled(window.width),
                    reduced(decoder.height()), reduced(decoder.width()), static_cast<int>(layout.height),
                    static_cast<int>(layout.width), request.flip);
    const Filter &rows = resizer.rows(), &columns = resizer.columns();
    const Pixels pixels = decoder.decode({rows.first, columns.first, rows.end - rows.first, columns.end - columns.first},
                                         workspace.pixels);
    for (int y = 0; y < layout.height; ++y) write_row(resizer.row(pixels, y), y, layout, levels, request.picture);
}

}  // namespace

std::vector<std::string> decode_images(std::span<const ImageRequest> requests, const ImageLayout& layout, const Levels& levels,
                                       int threads) {
    std::vector<std::string> failures(requests.size());
    share_out(requests.size(), threads, [&](std::size_t i) {
        thread_local Workspace workspace;
        try {
            decode_image(requests[i], layout, levels, workspace);
        } catch (const std::bad_alloc&) {
            failures[i] = "out of memory";
        } catch (const std::exception& error) {
            failures[i] = error.what();
        }
        if (workspace.pixels.size() > most_kept_bytes) workspace.pixels = {};
    });
    return failures;
}

}  // namespace dataflow
