#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// One range read over plain HTTP/1.1, as one call: for bodies that go from the socket into their buffer and nowhere else.
namespace dataflow {

// Statuses of `Reply` that no server sends.
constexpr int reply_not_understood = 0;

struct Reply {
    // 206: the body is in the buffer. 400 to 599: an error of the server. `reply_not_understood`: anything else that it
    // may send. Negative: an errno; ETIMEDOUT after a silence, ENODATA when the server closed before the end.
    int status = reply_not_understood;
    std::int64_t length = 0;    // bytes in the buffer, of a 206
    std::int64_t received = 0;  // bytes of the reply, head and body, that have arrived
    bool kept = false;          // whether the connection is good for another request
    std::string said{};         // of an error: the reason, a line break, the start of the body as it was sent
};

// Sends `request` on a connected socket and receives the reply. A 206 is understood when it announces its length, which
// is at most the buffer's, and when its range begins at `start`. After `idle_seconds` without a byte the exchange ends.
// `interrupted` is asked after a signal; when it says so, the exchange ends with EINTR.
Reply receive(int descriptor, std::string_view request, std::span<std::byte> buffer, std::int64_t start,
              double idle_seconds, bool (*interrupted)());

}  // namespace dataflow
