#include "moe/base/utf8.h"

#include <array>
#include <cstdint>

namespace moe {
namespace {

struct Lead {
  unsigned char mask, bits;
  size_t size;
  uint32_t least;  // a smaller character has fewer bytes
};
constexpr std::array<Lead, 4> kLeads{
    {{0x80, 0x00, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800}, {0xf8, 0xf0, 4, 0x10000}}};

struct Character {
  uint32_t code = 0;
  size_t size = 0;  // 0: no UTF-8
};

Character first_character(std::string_view text) {
  if (text.empty()) return {};
  const auto first = static_cast<unsigned char>(text[0]);
  for (const Lead& lead : kLeads) {
    if ((first & lead.mask) != lead.bits) continue;
    if (text.size() < lead.size) return {};
    uint32_t code = first & static_cast<unsigned char>(~lead.mask);
    for (size_t i = 1; i < lead.size; ++i) {
      const auto next = static_cast<unsigned char>(text[i]);
      if ((next & 0xc0) != 0x80) return {};
      code = code << 6 | (next & 0x3f);
    }
    const bool surrogate = code >= 0xd800 && code <= 0xdfff;
    if (code < lead.least || code > 0x10ffff || surrogate) return {};
    return {code, lead.size};
  }
  return {};
}

bool controls(uint32_t code) {
  const bool turns =
      (code >= 0x200e && code <= 0x200f) || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  const bool breaks = code == 0x2028 || code == 0x2029;
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || turns || breaks;
}

}  // namespace

size_t utf8_size(std::string_view text) { return first_character(text).size; }

std::string printable(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const Character c = first_character(text);
    if (c.size == 0 || controls(c.code))
      line += '?';
    else
      line += text.substr(0, c.size);
    text.remove_prefix(c.size == 0 ? 1 : c.size);
  }
  return line;
}

}  // namespace moe
