#include "moe/base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <fmt/ranges.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moe {
namespace {

struct LeadByte {
  unsigned char mask, bits;
  size_t size;
  uint32_t least;  // least code point of this length; a smaller one is an overlong encoding
};
constexpr std::array<LeadByte, 4> kLeadBytes{
    {{0x80, 0x00, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800}, {0xf8, 0xf0, 4, 0x10000}}};

struct Character {
  uint32_t code = 0;
  size_t size = 0;  // 0: not UTF-8
};

Character first_character(std::string_view text) {
  if (text.empty()) return {};
  const auto first = static_cast<unsigned char>(text[0]);
  for (const LeadByte& lead : kLeadBytes) {
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

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

namespace {

constexpr size_t kMaxSuggested = 3;  // names suggested at most
constexpr size_t kTellingPart = 3;   // least letters of a part of a name; shorter parts occur in too many names
constexpr size_t kTellingStart = 2;  // least letters of a name's start that is compared

using Names = std::vector<std::string_view>;
using Words = std::vector<std::string>;

// Returns the optimal string alignment distance.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) now[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, now);
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
  }
  return now.back();
}

Names closest_by_edits(std::string_view name, std::span<const std::string_view> known) {
  size_t least = std::max<size_t>(1, name.size() / 3);
  Names nearest;
  for (const std::string_view other : known) {
    const size_t count = edits(name, other);
    if (count > least) continue;
    if (count < least) nearest.clear();
    least = count;
    nearest.push_back(other);
  }
  return nearest;
}

// Returns a name's words in lower case: "--h100-deepep@X" has h100, deepep and x.
Words words_of(std::string_view name) {
  Words words;
  bool inside = false;
  for (const unsigned char letter : name) {
    const bool part = std::isalnum(letter) != 0;
    if (part && !inside) words.emplace_back();
    if (part) words.back() += static_cast<char>(std::tolower(letter));
    inside = part;
  }
  return words;
}

// Returns whether each of `words` begins a word of `other`, in the same order; `at_start`: the first begins the first.
bool begin_words(const Words& words, const Words& other, bool at_start) {
  auto next = other.begin();
  for (const std::string& word : words) {
    next = std::find_if(next, other.end(), [&](const std::string& o) { return o.starts_with(word); });
    if (next == other.end() || (at_start && &word == words.data() && next != other.begin())) return false;
    ++next;
  }
  return true;
}

bool begins(const Words& words, const Words& other) {
  const std::string letters = fmt::format("{}", fmt::join(words, ""));
  return letters.size() >= kTellingStart &&
         (begin_words(words, other, true) || fmt::format("{}", fmt::join(other, "")).starts_with(letters));
}

bool is_within(const Words& words, const Words& other) {
  const std::string letters = fmt::format("{}", fmt::join(words, ""));
  return letters.size() >= kTellingPart && (begin_words(words, other, false) ||
                                            fmt::format("{}", fmt::join(other, "")).find(letters) != std::string::npos);
}

bool begins_with_same_word(const Words& words, const Words& other) {
  return words.front().size() >= kTellingPart && begin_words({words.front()}, other, true);
}

// Returns whether both are single words with the same first letter and final number: bf16 and bfloat16.
bool abbreviates(const Words& words, const Words& other) {
  const auto number_of = [](const std::string& word) { return word.substr(word.find_last_not_of("0123456789") + 1); };
  const std::string number = number_of(words.back());
  return words.size() == 1 && other.size() == 1 && !number.empty() && number != words.back() &&
         words.back().front() == other.back().front() && number == number_of(other.back());
}

Names matching_parts(std::string_view name, std::span<const std::string_view> known) {
  Names found;
  const Words words = words_of(name);
  if (words.empty()) return found;
  for (const auto alike : {begins, is_within, begins_with_same_word, abbreviates}) {
    std::ranges::copy_if(known, std::back_inserter(found), [&](auto other) { return alike(words, words_of(other)); });
    if (!found.empty()) break;
  }
  std::ranges::stable_sort(found, {}, &std::string_view::size);  // puts a plain name before its variants
  return found;
}

}  // namespace

std::string suggestion(std::string_view name, std::span<const std::string_view> known) {
  Names meant = closest_by_edits(name, known);
  if (meant.empty()) meant = matching_parts(name, known);
  meant.resize(std::min(meant.size(), kMaxSuggested));
  std::string text;
  for (size_t i = 0; i < meant.size(); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == meant.size() ? " or " : ", ", meant[i]);
  return text.empty() ? "" : fmt::format("; did you mean {}?", text);
}

}  // namespace moe
