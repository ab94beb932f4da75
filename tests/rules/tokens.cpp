#include "tests/rules/tokens.h"

#include <algorithm>

namespace moe::rules {
namespace {

class Text {
 public:
  explicit Text(std::string_view text) : left_(text) {}

  std::vector<std::string> tokens() {
    std::vector<std::string> found;
    while (!left_.empty())
      if (std::string token = next(); !token.empty()) found.push_back(std::move(token));
    return found;
  }

 private:
  // Empty: nothing that counts.
  std::string next() {
    if (left_.starts_with('\n')) line_begins_ = true;
    if (left_.front() == ' ' || left_.front() == '\n') return drop(1);
    if (left_.starts_with("//")) return drop(left_.find('\n'));
    if (left_.starts_with("/*")) return drop(left_.find("*/", 2) + 2);
    if (left_.starts_with('#') && line_begins_) return drop(end_of_directive());
    line_begins_ = false;
    if (left_.starts_with("R\"")) return literal(end_of_raw_string());
    if (left_.starts_with('"') || left_.starts_with('\'')) return literal(end_of_string(left_.front()));
    if (left_.starts_with("::")) return take(2);
    return take(is_word(left_.front()) ? end_of_word() : 1);
  }

  std::string take(size_t length) {
    const std::string token(left_.substr(0, length));
    drop(length);
    return token;
  }
  std::string drop(size_t length) {
    left_.remove_prefix(std::min(length, left_.size()));
    return {};
  }
  std::string literal(size_t length) {
    drop(length);
    return "\"\"";
  }

  // A number may hold a quote between digits.
  size_t end_of_word() const {
    const bool number = left_.front() >= '0' && left_.front() <= '9';
    size_t end = 1;
    while (end < left_.size() && (is_word(left_[end]) || (number && (left_[end] == '\'' || left_[end] == '.')))) ++end;
    return end;
  }
  size_t end_of_string(char quote) const {
    size_t end = 1;
    while (end < left_.size() && left_[end] != quote) end += left_[end] == '\\' ? 2 : 1;
    return end + 1;
  }
  size_t end_of_raw_string() const {
    const size_t open = left_.find('(');
    std::string close(left_.substr(1, open - 1));  // "name, to become )name"
    close.front() = ')';
    close += '"';
    return left_.find(close, open) + close.size();
  }
  size_t end_of_directive() const {
    size_t end = left_.find('\n');
    while (end < left_.size() && left_[end - 1] == '\\') end = left_.find('\n', end + 1);
    return end;
  }

  std::string_view left_;
  bool line_begins_ = true;
};

}  // namespace

std::vector<std::string> tokens_of(std::string_view text) { return Text(text).tokens(); }

}  // namespace moe::rules
