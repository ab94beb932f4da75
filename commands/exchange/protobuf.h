#pragma once
// Messages of Protocol Buffers as bytes: tags, varints and length-delimited fields
// (https://protobuf.dev/programming-guides/encoding).
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace moe::exchange {

class Message {
 public:
  static void append_varint(std::string& bytes, uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
  }

  /// Appends a field of type uint64, enum or bool, or a non-negative int64.
  Message& number(int field, uint64_t value) {
    tag(field, 0);
    append_varint(bytes_, value);
    return *this;
  }
  Message& real(int field, double value) {
    tag(field, 1);
    const auto bits = std::bit_cast<uint64_t>(value);
    for (int byte = 0; byte < 8; ++byte) bytes_ += static_cast<char>(bits >> (8 * byte));
    return *this;
  }
  Message& text(int field, std::string_view value) {
    tag(field, 2);
    append_varint(bytes_, value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  /// Appends a packed repeated number; nothing if there are no values.
  template <class Numbers>
  Message& numbers(int field, const Numbers& values) {
    std::string packed;
    for (const auto value : values) append_varint(packed, static_cast<uint64_t>(value));
    return packed.empty() ? *this : text(field, packed);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int wire_type) {
    append_varint(bytes_, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type));
  }

  std::string bytes_;
};

}  // namespace moe::exchange
