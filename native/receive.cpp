#include "receive.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstring>
#include <optional>

namespace dataflow {
namespace {

constexpr std::size_t most_of_head = 16 << 10;
constexpr std::size_t most_of_error = 4 << 10;
// A head is shorter; what it brings along of the body has to be copied.
constexpr std::size_t head_stretch = 2 << 10;
// To wake up for less of a body costs more than it brings.
constexpr std::size_t worth_waking = 256 << 10;

// A socket on which a silence ends the wait. Results are counts of bytes, or negative errnos.
class Connection {
  public:
    Connection(int descriptor, double idle_seconds, bool (*interrupted)())
        : descriptor_(descriptor),
          idle_milliseconds_(static_cast<int>(std::clamp(std::ceil(idle_seconds * 1e3), 1.0, double{INT_MAX}))),
          interrupted_(interrupted) {}

    int send(std::string_view data) {
        while (!data.empty()) {
            const ssize_t count = ::send(descriptor_, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (count >= 0) {
                data.remove_prefix(static_cast<std::size_t>(count));
            } else if (const int failure = go_on(POLLOUT)) {
                return failure;
            }
        }
        return 0;
    }

    // 0 when the peer has closed. Waits until `enough` bytes are there, or the end, or for as long as a silence may last.
    ssize_t receive(void* target, std::size_t most, std::size_t enough = 1) {
        while (true) {
            const ssize_t count = ::recv(descriptor_, target, most, MSG_DONTWAIT);
            if (count >= 0) return count;
            const int failure = go_on(POLLIN, enough);
            if (failure == -ETIMEDOUT) {
                // Fewer bytes may have come: slow is not silent.
                const ssize_t late = ::recv(descriptor_, target, most, MSG_DONTWAIT);
                return late >= 0 ? late : failure;
            }
            if (failure) return failure;
        }
    }

    // From how many bytes on a wait ends; the socket keeps it for whoever uses it next.
    void wake_at(std::size_t bytes) {
        if (bytes == wakes_at_) return;
        const int value = static_cast<int>(bytes);
        // Where it is refused, a wait ends with every byte.
        ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value);
        wakes_at_ = bytes;
    }

  private:
    // Whether a call that failed is worth another try, after a wait where it needs one.
    int go_on(short event, std::size_t enough = 1) {
        int failure = errno;
        if (failure == EAGAIN || failure == EWOULDBLOCK) {
            wake_at(enough);
            pollfd polled{descriptor_, event, 0};
            const int ready = ::poll(&polled, 1, idle_milliseconds_);
            if (ready > 0) return 0;
            failure = ready == 0 ? ETIMEDOUT : errno;
        }
        return failure == EINTR && !interrupted_() ? 0 : -failure;
    }

    int descriptor_;
    std::size_t wakes_at_ = 1;
    int idle_milliseconds_;
    bool (*interrupted_)();
};

bool same_letters(std::string_view text, std::string_view lower) {
    return std::ranges::equal(text, lower, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b; });
}

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Digits only, and few enough for the type.
std::optional<std::int64_t> number_of(std::string_view digits) {
    if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != digits.npos) return {};
    std::int64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
}

struct Head {
    int status = 0;
    std::string_view reason{};
    std::optional<std::int64_t> length{};
    std::optional<std::int64_t> start{};
    bool encoded = false;  // for the transfer: chunked, or worse
    bool closes = false;
};

bool says_close(std::string_view list) {
    while (!list.empty()) {
        const auto comma = list.find(',');
        if (same_letters(trimmed(list.substr(0, comma)), "close")) return true;
        list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
    }
    return false;
}

// Whether the line was understood.
bool read_field(std::string_view line, Head& head) {
    const auto colon = line.find(':');
    if (colon == line.npos || colon == 0 || line.find_first_of(" \t") < colon) return false;
    const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
    if (same_letters(name, "content-length")) {
        if (head.length) return false;
        head.length = number_of(value);
        return head.length.has_value();
    }
    if (same_letters(name, "content-range")) {
        constexpr std::string_view unit = "bytes ";
        if (head.start || !same_letters(value.substr(0, unit.size()), unit)) return false;
        const std::string_view range = value.substr(unit.size());
        head.start = number_of(range.substr(0, range.find('-')));
        // An error says "*", as it has no range.
        return head.start.has_value() || head.status != 206;
    }
    if (same_letters(name, "transfer-encoding")) head.encoded = true;
    if (same_letters(name, "connection")) head.closes = head.closes || says_close(value);
    return true;
}

// `text` ends with the line break of the last line. Nothing comes back for what is not strictly HTTP/1.1.
std::optional<Head> read_head(std::string_view text) {
    constexpr std::string_view version = "HTTP/1.1 ", line_break = "\r\n";
    Head head;
    for (bool first = true; !text.empty(); first = false) {
        const auto end = text.find(line_break);
        const std::string_view line = text.substr(0, end);
        if (line.find_first_of(std::string_view("\r\n\0", 3)) != line.npos) return {};
        if (!first) {
            if (!read_field(line, head)) return {};
        } else {
            const auto code = line.starts_with(version) ? number_of(line.substr(version.size(), 3)) : std::nullopt;
            const auto after = line.substr(std::min(line.size(), version.size() + 3));
            if (!code || *code < 100 || *code > 599 || !(after.empty() || after.front() == ' ')) return {};
            head.status = static_cast<int>(*code);
            head.reason = trimmed(after);
        }
        text.remove_prefix(end + line_break.size());
    }
    return head;
}

// Everything that is known of an error; a body that breaks off changes nothing about it.
std::string error_text(const Head& head, std::string_view arrived, Connection& connection, std::int64_t& received) {
    std::size_t most = most_of_error;
    if (head.length && !head.encoded) most = std::min(most, static_cast<std::size_t>(*head.length));
    std::string body(arrived.substr(0, most));
    // Chunks are left as they are: the text in them is legible, and the last one is easily told.
    while (body.size() < most && !(head.encoded && body.ends_with("0\r\n\r\n"))) {
        std::array<char, most_of_error> piece;
        const ssize_t count = connection.receive(piece.data(), most - body.size());
        if (count <= 0) break;
        received += count;
        body.append(piece.data(), static_cast<std::size_t>(count));
    }
    return std::string(head.reason) + '\n' + body;
}

}  // namespace

Reply receive(int descriptor, std::string_view request, std::span<std::byte> buffer, std::int64_t start,
              double idle_seconds, bool (*interrupted)()) {
    Connection connection(descriptor, idle_seconds, interrupted);
    if (const int failure = connection.send(request)) return {.status = failure};

    constexpr std::string_view head_end = "\r\n\r\n";
    std::array<char, most_of_head> bytes;
    std::size_t have = 0, end = std::string_view::npos;
    while (end == std::string_view::npos) {
        if (have == bytes.size()) return {.received = static_cast<std::int64_t>(have)};
        const ssize_t count = connection.receive(bytes.data() + have, std::min(head_stretch, bytes.size() - have));
        if (count <= 0) {
            return {.status = count == 0 ? -ENODATA : static_cast<int>(count), .received = static_cast<std::int64_t>(have)};
        }
        const std::size_t from = have < head_end.size() ? 0 : have - (head_end.size() - 1);
        have += static_cast<std::size_t>(count);
        end = std::string_view(bytes.data(), have).find(head_end, from);
    }
    const std::optional<Head> head = read_head({bytes.data(), end + 2});
    const std::string_view arrived(bytes.data() + end + head_end.size(), have - end - head_end.size());
    Reply reply{.received = static_cast<std::int64_t>(have)};
    if (!head) return reply;
    if (head->status >= 400) {
        reply.status = head->status;
        reply.said = error_text(*head, arrived, connection, reply.received);
        return reply;
    }
    if (head->status != 206 || head->encoded || !head->length || head->start != start ||
        static_cast<std::size_t>(*head->length) > buffer.size()) {
        return reply;
    }

    const auto length = static_cast<std::size_t>(*head->length);
    std::size_t filled = std::min(arrived.size(), length);
    if (filled > 0) std::memcpy(buffer.data(), arrived.data(), filled);
    while (filled < length) {
        const ssize_t count = connection.receive(buffer.data() + filled, length - filled, std::min(length - filled, worth_waking));
        if (count <= 0) {
            reply.status = count == 0 ? -ENODATA : static_cast<int>(count);
            return reply;
        }
        filled += static_cast<std::size_t>(count);
        reply.received += count;
    }
    connection.wake_at(1);
    reply.status = head->status;
    reply.length = *head->length;
    // More than was announced belongs to no request of ours.
    reply.kept = !head->closes && arrived.size() <= length;
    return reply;
}

}  // namespace dataflow
