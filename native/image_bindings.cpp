#include "image_bindings.h"

#include <nanobind/ndarray.h>

#include <cstring>
#include <memory>

#include "columns.h"
#include "gil.h"
#include "image_batch.h"
#include "jpeg_header.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace dataflow {
namespace {

constexpr Element uint8{Kind::unsigned_integer, 1};
constexpr Element boolean{Kind::boolean, 1};
constexpr Element float32{Kind::real, 4};
constexpr Element float16{Kind::real, 2};
constexpr int window_sides = 4;

template <typename T>
T item(const Buffer& buffer, std::int64_t index) {
    T value;
    std::memcpy(&value, buffer.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
}

using Headers = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>, nb::c_contig>;

Headers jpeg_headers_binding(nb::handle values, nb::handle offsets, nb::handle block, nb::handle row) {
    const BytesColumns columns(values, offsets, block, row);
    const auto size = static_cast<std::size_t>(columns.selected.selection().size());
    auto headers = std::make_unique_for_overwrite<std::int32_t[]>(size * 4);
    {
        const GilReleased released;
        std::int32_t* target = headers.get();
        for (const auto& file : columns.locate()) {
            const JpegHeader header = read_jpeg_header(file);
            *target++ = header.height;
            *target++ = header.width;
            *target++ = header.decodable ? 1 : 0;
            *target++ = header.orientation;
        }
    }
    nb::capsule owner(headers.get(), [](void* pointer) noexcept { delete[] static_cast<std::int32_t*>(pointer); });
    return Headers(headers.release(), {size, 4}, owner);
}

ImageLayout layout_of(const Buffer& out, std::int64_t positions, bool channels_last) {
    const Element element = out.element();
    if (element != uint8 && element != float32 && element != float16) {
        type_error("out must be uint8, float32 or float16, not " + element.name());
    }
    if (out.dimensions() != 4 || out.extent(0) != positions || out.extent(channels_last ? 3 : 1) != 3) {
        const char* const rest = channels_last ? " x height x width x 3" : " x 3 x height x width";
        value_error("out must be " + std::to_string(positions) + rest);
    }
    const ImageLayout layout{out.extent(channels_last ? 1 : 2), out.extent(channels_last ? 2 : 3), element, channels_last};
    constexpr std::int64_t largest = 65535;
    if (layout.height < 1 || layout.width < 1 || layout.height > largest || layout.width > largest) {
        value_error("the height and width of out must be 1 to " + std::to_string(largest));
    }
    return layout;
}

std::array<float, 3> colours_of(nb::handle object, const char* name, float missing) {
    if (object.is_none()) return {missing, missing, missing};
    const Buffer buffer = vector_of(float32, object, name);
    if (buffer.length() != 3) value_error(std::string(name) + " must have 3 items");
    return {item<float>(buffer, 0), item<float>(buffer, 1), item<float>(buffer, 2)};
}

nb::list decode_jpegs_binding(nb::handle values, nb::handle offsets, nb::handle block, nb::handle row, nb::handle positions,
                              nb::handle windows, nb::handle flip, nb::handle out, nb::handle mean,
                              nb::handle std, bool channels_last, int threads) {
    if (*jpeg_library() == '\0') {
        throw std::runtime_error("this build has no JPEG decoder: install libjpeg-dev (libjpeg-turbo), and build again");
    }
    const BytesColumns columns(values, offsets, block, row);
    const std::int64_t size = columns.selected.selection().size();
    const Buffer places = vector_of(int64, positions, "positions");
    const Buffer cuts(windows, "windows");
    const Buffer flips = vector_of(boolean, flip, "flip");
    const Buffer target(out, "out", Buffer::Access::write);
    const std::int64_t count = places.length();
    if (cuts.element() != int32 || cuts.dimensions() != 2 || cuts.extent(0) != count || cuts.extent(1) != window_sides) {
        value_error("windows must be int32 of " + std::to_string(count) + " x 4, one for each of the positions");
    }
    if (flips.length() != count) value_error("flip must have one item for each of the positions");
    if (threads < 1) value_error("threads must be at least 1");
    const ImageLayout layout = layout_of(target, size, channels_last);
    const std::array<float, 3> means = colours_of(mean, "mean", 0), deviations = colours_of(std, "std", 1);
    for (const float deviation : deviations) {
        if (!(deviation > 0)) value_error("std must be above 0");
    }

    std::vector<std::string> failures;
    {
        const GilReleased released;
        const auto files = columns.locate();
        std::vector<ImageRequest> requests;
        requests.reserve(static_cast<std::size_t>(count));
        std::vector<bool> taken(static_cast<std::size_t>(size));
        for (std::int64_t i = 0; i < count; ++i) {
            const auto position = item<std::int64_t>(places, i);
            if (position < 0 || position >= size) {
                throw std::invalid_argument("positions[" + std::to_string(i) + "] is " + std::to_string(position) +
                                            ", but there are " + std::to_string(size) + " positions");
            }
            // Two threads would write to the same memory.
            if (taken[position]) throw std::invalid_argument("position " + std::to_string(position) + " is given twice");
            taken[position] = true;
            const auto side = [&](int which) { return item<std::int32_t>(cuts, i * window_sides + which); };
            requests.push_back({files[position], {side(0), side(1), side(2), side(3)}, item<std::uint8_t>(flips, i) != 0,
                                target.data() + position * layout.bytes()});
        }
        const Levels levels = layout.element == uint8 ? Levels{} : normalised_levels(layout.element, means, deviations);
        failures = decode_images(requests, layout, levels, threads);
    }
    nb::list failed;
    for (std::size_t i = 0; i < failures.size(); ++i) {
        if (!failures[i].empty()) {
            failed.append(nb::make_tuple(item<std::int64_t>(places, static_cast<std::int64_t>(i)), failures[i].c_str()));
        }
    }
    return failed;
}

}  // namespace

void bind_images(nb::module_& module) {
    module.def("jpeg_headers", &jpeg_headers_binding, "values"_a, "offsets"_a, "block"_a, "row"_a);
    module.def("decode_jpegs", &decode_jpegs_binding, "values"_a, "offsets"_a, "block"_a, "row"_a, "positions"_a, "windows"_a,
               "flip"_a, "out"_a, "mean"_a.none(), "std"_a.none(), "channels_last"_a, "threads"_a);
    module.def("decode_available", &jpeg_library);
}

}  // namespace dataflow
