#include "jpeg_header.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace dataflow {
namespace {

using Bytes = std::span<const std::byte>;

namespace marker {
constexpr std::uint8_t tem = 0x01, sof0 = 0xC0, sof2 = 0xC2, dht = 0xC4, jpg = 0xC8, dac = 0xCC, sof15 = 0xCF, rst0 = 0xD0,
                       soi = 0xD8, eoi = 0xD9, sos = 0xDA, app1 = 0xE1, app14 = 0xEE;
}

std::uint8_t byte_at(Bytes bytes, std::size_t index) { return std::to_integer<std::uint8_t>(bytes[index]); }

std::uint32_t big_endian(Bytes bytes, std::size_t index, std::size_t size) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value = value << 8 | byte_at(bytes, index + i);
    return value;
}

bool starts_with(Bytes bytes, std::string_view text) {
    return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// The tag lies in the first directory of a TIFF file of either byte order.
std::int32_t exif_orientation(Bytes tiff) {
    constexpr std::uint32_t magic = 42, orientation_tag = 0x0112, short_type = 3, long_type = 4, entry_bytes = 12;
    const bool little = starts_with(tiff, "II");
    if (tiff.size() < 8 || (!little && !starts_with(tiff, "MM"))) return 1;
    const auto number = [&](std::size_t index, std::size_t size) {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < size; ++i) {
            value |= std::uint32_t{byte_at(tiff, index + i)} << 8 * (little ? i : size - 1 - i);
        }
        return value;
    };
    const std::size_t directory = number(4, 4);
    if (number(2, 2) != magic || directory > tiff.size() - 2) return 1;
    const std::size_t entries = std::min<std::size_t>(number(directory, 2), (tiff.size() - directory - 2) / entry_bytes);
    for (std::size_t i = 0; i < entries; ++i) {
        const std::size_t entry = directory + 2 + i * entry_bytes;
        if (number(entry, 2) != orientation_tag) continue;
        const std::uint32_t type = number(entry + 2, 2);
        if ((type != short_type && type != long_type) || number(entry + 4, 4) != 1) return 1;
        const std::uint32_t value = number(entry + 8, type == short_type ? 2 : 4);
        return value >= 1 && value <= 8 ? static_cast<std::int32_t>(value) : 1;
    }
    return 1;
}

// Some cameras append data of their own after the end.
bool ends(Bytes scans) {
    constexpr std::size_t appended_at_most = 64 << 10;
    const std::size_t first = scans.size() > appended_at_most ? scans.size() - appended_at_most : 0;
    for (std::size_t i = scans.size(); i >= first + 2; --i) {
        if (byte_at(scans, i - 1) == marker::eoi && byte_at(scans, i - 2) == 0xFF) return true;
    }
    return false;
}

bool is_frame(std::uint8_t code) {
    return code >= marker::sof0 && code <= marker::sof15 && code != marker::dht && code != marker::jpg && code != marker::dac;
}

// Huffman-coded, lossy, eight bits; grey, or three colours. Sets the size in any case.
bool read_frame(Bytes segment, std::uint8_t code, JpegHeader& header) {
    if (segment.size() < 6) return false;
    header.height = static_cast<std::int32_t>(big_endian(segment, 1, 2));
    header.width = static_cast<std::int32_t>(big_endian(segment, 3, 2));
    const std::uint8_t bits = byte_at(segment, 0);
    const std::uint8_t components = byte_at(segment, 5);
    return code <= marker::sof2 && bits == 8 && (components == 1 || components == 3) && header.height > 0 && header.width > 0;
}

}  // namespace

JpegHeader read_jpeg_header(Bytes file) {
    JpegHeader header;
    if (file.size() < 4 || byte_at(file, 0) != 0xFF || byte_at(file, 1) != marker::soi) return header;
    bool frame_seen = false, frame_good = false, exif_seen = false, colours_known = true;
    for (std::size_t at = 2; at + 1 < file.size();) {
        if (byte_at(file, at) != 0xFF) return header;
        const std::uint8_t code = byte_at(file, at + 1);
        if (code == 0xFF) {  // any marker may have more of these before it
            ++at;
            continue;
        }
        at += 2;
        if (code == marker::tem) continue;
        if ((code >= marker::rst0 && code <= marker::eoi) || code == 0) return header;
        if (file.size() - at < 2) return header;
        const std::size_t length = big_endian(file, at, 2);
        if (length < 2 || length > file.size() - at) return header;
        const Bytes segment = file.subspan(at + 2, length - 2);
        at += length;
        if (is_frame(code)) {
            if (frame_seen) return header;
            frame_seen = true;
            frame_good = read_frame(segment, code, header);
        } else if (code == marker::app1 && !exif_seen && starts_with(segment, std::string_view("Exif\0\0", 6))) {
            exif_seen = true;
            header.orientation = exif_orientation(segment.subspan(6));
        } else if (code == marker::app14 && segment.size() >= 12 && starts_with(segment, "Adobe")) {
            colours_known = byte_at(segment, 11) <= 1;  // 0 is RGB or CMYK, 1 YCbCr
        } else if (code == marker::sos) {
            header.decodable = frame_good && colours_known && ends(file.subspan(at));
            return header;
        }
    }
    return header;
}

}  // namespace dataflow
