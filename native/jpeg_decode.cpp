#include "jpeg_decode.h"

#include <stdexcept>

#if defined(DATAFLOW_JPEG)

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>
// This one needs the declarations of the first.
#include <jerror.h>

#define DATAFLOW_TEXT_OF(value) #value
#define DATAFLOW_TEXT(value) DATAFLOW_TEXT_OF(value)

namespace dataflow {
namespace {

// Pillow refuses what is larger.
constexpr std::int64_t most_pixels = 178'956'970;
// Programs write about ten. Without a bound a small file could keep a thread for hours.
constexpr int most_scans = 100;
// Every block of every component takes a bit at the least: a larger picture is not in the file, and gets no memory.
constexpr std::int64_t most_blocks_a_byte = 8;
constexpr std::int64_t block_pixels = DCTSIZE2;

struct Errors {
    jpeg_error_mgr base;
    std::jmp_buf back;
    char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void give_up(j_common_ptr decoder) {
    auto* errors = reinterpret_cast<Errors*>(decoder->err);
    (*decoder->err->format_message)(decoder, errors->message);
    std::longjmp(errors->back, 1);
}

void on_message(j_common_ptr decoder, int level) {
    if (level < 0) give_up(decoder);  // a warning
}

void on_progress(j_common_ptr decoder) {
    if (reinterpret_cast<j_decompress_ptr>(decoder)->input_scan_number > most_scans) {
        auto* errors = reinterpret_cast<Errors*>(decoder->err);
        std::snprintf(errors->message, sizeof errors->message, "more than %d scans", most_scans);
        std::longjmp(errors->back, 1);
    }
}

boolean on_end_of_input(j_decompress_ptr decoder) {
    WARNMS(decoder, JWRN_JPEG_EOF);
    return FALSE;
}

void skip_input(j_decompress_ptr decoder, long count) {
    if (count <= 0) return;
    if (static_cast<std::size_t>(count) > decoder->src->bytes_in_buffer) on_end_of_input(decoder);
    decoder->src->next_input_byte += count;
    decoder->src->bytes_in_buffer -= static_cast<std::size_t>(count);
}

// Whether libjpeg's cropping is known to be right for the picture: it is tested for these ways to store colours.
bool can_crop(const jpeg_decompress_struct& decoder) {
    const auto is = [&](int component, int horizontal, int vertical) {
        const jpeg_component_info& info = decoder.comp_info[component];
        return info.h_samp_factor == horizontal && info.v_samp_factor == vertical;
    };
    if (decoder.num_components == 1) return is(0, 1, 1);
    return (is(0, 1, 1) || is(0, 2, 1) || is(0, 1, 2) || is(0, 2, 2)) && is(1, 1, 1) && is(2, 1, 1);
}

}  // namespace

const char* jpeg_library() { return "libjpeg-turbo " DATAFLOW_TEXT(LIBJPEG_TURBO_VERSION); }

struct JpegDecoder::State {
    ~State() { jpeg_destroy_decompress(&decoder); }

    // Calls libjpeg, which leaves by longjmp when something is wrong: `work` must own nothing that has to be destroyed.
    template <typename Work>
    [[gnu::noinline]] void guarded(Work work) {
        if (setjmp(errors.back) != 0) throw std::runtime_error(std::string("corrupt JPEG data: ") + errors.message);
        work();
    }

    jpeg_decompress_struct decoder{};
    Errors errors{};
    jpeg_source_mgr source{};
    jpeg_progress_mgr progress{};
};

// A new one for each file: libjpeg would decode a file that lacks its tables with those of the file before.
JpegDecoder::JpegDecoder(std::span<const std::byte> file) : state_(std::make_unique<State>()) {
    State& state = *state_;
    jpeg_decompress_struct& decoder = state.decoder;
    decoder.err = jpeg_std_error(&state.errors.base);
    state.errors.base.error_exit = give_up;
    state.errors.base.emit_message = on_message;
    state.source.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
    state.source.bytes_in_buffer = file.size();
    state.source.init_source = [](j_decompress_ptr) {};
    state.source.fill_input_buffer = on_end_of_input;
    state.source.skip_input_data = skip_input;
    state.source.resync_to_restart = jpeg_resync_to_restart;
    state.source.term_source = [](j_decompress_ptr) {};
    state.progress.progress_monitor = on_progress;
    state.guarded([&] {
        jpeg_create_decompress(&decoder);
        decoder.src = &state.source;
        decoder.progress = &state.progress;
        jpeg_read_header(&decoder, TRUE);
    });

    const std::int64_t pixels = std::int64_t{decoder.image_height} * decoder.image_width;
    const std::string size = std::to_string(decoder.image_height) + " x " + std::to_string(decoder.image_width);
    const int components = decoder.num_components;
    if (components != 1 && components != 3) {
        throw std::runtime_error("JPEG with " + std::to_string(components) + " components: only 1 and 3 are decoded here");
    }
    if (decoder.arith_code) throw std::runtime_error("arithmetic-coded JPEG: only Huffman coding is decoded here");
    if (pixels > most_pixels) {
        throw std::runtime_error("JPEG of " + size + " pixels: at most " + std::to_string(most_pixels) + " are decoded");
    }
    if (pixels / block_pixels > static_cast<std::int64_t>(file.size()) * most_blocks_a_byte) {
        throw std::runtime_error("corrupt JPEG data: " + std::to_string(file.size()) + " bytes cannot hold " + size +
                                 " pixels");
    }
}

JpegDecoder::~JpegDecoder() = default;

int JpegDecoder::height() const { return static_cast<int>(state_->decoder.image_height); }
int JpegDecoder::width() const { return static_cast<int>(state_->decoder.image_width); }

void JpegDecoder::reduce(int divisor) {
    state_->decoder.scale_num = 1;
    state_->decoder.scale_denom = static_cast<unsigned>(divisor);
}

Pixels JpegDecoder::decode(const Region& region, std::vector<std::uint8_t>& memory) {
    State& state = *state_;
    jpeg_decompress_struct& decoder = state.decoder;
    JDIMENSION left = 0, top = 0;
    state.guarded([&] {
        decoder.out_color_space = JCS_EXT_RGBX;
        decoder.dct_method = JDCT_ISLOW;
        decoder.do_fancy_upsampling = TRUE;
        decoder.do_block_smoothing = FALSE;
        jpeg_start_decompress(&decoder);
        if (!can_crop(decoder)) return;
        // Colours are interpolated between neighbours; at the ends of a crop there is none.
        constexpr int margin = 2;
        top = static_cast<JDIMENSION>(region.top);
        left = static_cast<JDIMENSION>(std::max(region.left - margin, 0));
        const auto right = std::min(static_cast<JDIMENSION>(region.left + region.width + margin), decoder.output_width);
        JDIMENSION width = right - left;
        jpeg_crop_scanline(&decoder, &left, &width);
    });

    const auto stride = static_cast<std::size_t>(decoder.output_width) * pixel_bytes;
    const auto bottom = static_cast<JDIMENSION>(region.top + region.height);
    memory.resize(std::max(memory.size(), (bottom - top) * stride));
    std::uint8_t* const data = memory.data();
    state.guarded([&] {
        constexpr int at_once = 16;
        if (top > 0) jpeg_skip_scanlines(&decoder, top);
        while (decoder.output_scanline < bottom) {
            std::array<JSAMPROW, at_once> rows;
            const JDIMENSION count = std::min<JDIMENSION>(bottom - decoder.output_scanline, at_once);
            for (JDIMENSION i = 0; i < count; ++i) rows[i] = data + (decoder.output_scanline - top + i) * stride;
            jpeg_read_scanlines(&decoder, rows.data(), count);
        }
    });
    return {data, static_cast<std::ptrdiff_t>(stride), static_cast<int>(top), static_cast<int>(left)};
}

}  // namespace dataflow

#else

namespace dataflow {

const char* jpeg_library() { return ""; }

struct JpegDecoder::State {};

JpegDecoder::JpegDecoder(std::span<const std::byte>) { throw std::runtime_error("dataflow was built without libjpeg-turbo"); }
JpegDecoder::~JpegDecoder() = default;
int JpegDecoder::height() const { return 0; }
int JpegDecoder::width() const { return 0; }
void JpegDecoder::reduce(int) {}
Pixels JpegDecoder::decode(const Region&, std::vector<std::uint8_t>&) { return {}; }

}  // namespace dataflow

#endif
