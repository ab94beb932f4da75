#include "moe/base/suggestion.h"

#include <algorithm>
#include <cctype>
#include <fmt/ranges.h>
#include <string>
#include <utility>
#include <vector>

namespace moe {
namespace {

constexpr size_t kMostSuggested = 3;  // names that are suggested at most
constexpr size_t kTellingPart = 3;    // letters that a part of a name has at least: fewer are in many
constexpr size_t kTellingStart = 2;   // letters of a name's start

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

Names of_fewest_edits(std::string_view name, std::span<const std::string_view> known) {
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

// Returns a name's words: "--h100-deepep@X" has h100, deepep and x.
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

// Says whether each of `words` begins a word of `other`, in its order; `at_start`: the first one begins the first.
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

bool begins_alike(const Words& words, const Words& other) {
  return words.front().size() >= kTellingPart && begin_words({words.front()}, other, true);
}

// Returns whether a word abbreviates another one that ends in the same number: bf16 is bfloat16, fp32 is float32.
bool abbreviates(const Words& words, const Words& other) {
  const auto number_of = [](const std::string& word) { return word.substr(word.find_last_not_of("0123456789") + 1); };
  const std::string number = number_of(words.back());
  return words.size() == 1 && other.size() == 1 && !number.empty() && number != words.back() &&
         words.back().front() == other.back().front() && number == number_of(other.back());
}

Names of_parts(std::string_view name, std::span<const std::string_view> known) {
  Names found;
  const Words words = words_of(name);
  if (words.empty()) return found;
  for (const auto alike : {begins, is_within, begins_alike, abbreviates}) {
    std::ranges::copy_if(known, std::back_inserter(found), [&](auto other) { return alike(words, words_of(other)); });
    if (!found.empty()) break;
  }
  std::ranges::stable_sort(found, {}, &std::string_view::size);  // the plain one before its variants
  return found;
}

}  // namespace

std::string suggestion(std::string_view name, std::span<const std::string_view> known) {
  Names meant = of_fewest_edits(name, known);
  if (meant.empty()) meant = of_parts(name, known);
  meant.resize(std::min(meant.size(), kMostSuggested));
  std::string text;
  for (size_t i = 0; i < meant.size(); ++i)
    text += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == meant.size() ? " or " : ", ", meant[i]);
  return text.empty() ? "" : fmt::format("; did you mean {}?", text);
}

}  // namespace moe
