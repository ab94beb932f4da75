#include "tests/rules/definitions.h"

#include <algorithm>
#include <array>
#include <span>

#include "tests/rules/tokens.h"

namespace moe::rules {
namespace {

using Tokens = std::span<const std::string>;
using Words = std::span<const std::string_view>;

constexpr std::array<std::string_view, 4> kTypes = {"class", "struct", "union", "enum"};
constexpr std::array<std::string_view, 2> kStandIns = {"/absent.cpp", "tests/layer/cuda/emulated"};
// A parenthesis after one of these holds no parameters.
constexpr std::array<std::string_view, 4> kNoFunctions = {"noexcept", "decltype", "requires", "alignas"};
// Words that end a type: none of them is a parameter's name.
constexpr std::array<std::string_view, 9> kTypeWords = {"int",    "long", "short", "char",    "float",
                                                        "double", "bool", "auto",  "unsigned"};
constexpr std::array<std::string_view, 4> kOpening = {"(", "<", "[", "{"}, kClosing = {")", ">", "]", "}"};
constexpr std::string_view kUnnamed = "(unnamed)";

bool is_one_of(std::string_view token, Words words) { return std::ranges::find(words, token) != words.end(); }

size_t find(Tokens tokens, std::string_view token) {
  return static_cast<size_t>(std::ranges::find(tokens, token) - tokens.begin());
}
bool has(Tokens tokens, std::string_view token) { return find(tokens, token) < tokens.size(); }

std::string joined(Tokens tokens) {
  std::string text;
  for (const std::string& token : tokens) {
    if (!text.empty() && is_word(text.back()) && is_word(token.front())) text += ' ';
    text += token;
  }
  return text;
}

// Where the bracket that opens at `from` is closed.
size_t closing(Tokens tokens, size_t from, std::string_view open, std::string_view close) {
  int depth = 0;
  for (size_t i = from; i < tokens.size(); ++i) {
    if (tokens[i] == open) ++depth;
    if (tokens[i] == close && --depth == 0) return i;
  }
  return tokens.size();
}

Tokens without_template(Tokens head) {
  while (!head.empty() && head.front() == "template")
    head = head.subspan(std::min(closing(head, 1, "<", ">") + 1, head.size()));
  return head;
}

// Without name and default.
std::string type_of(Tokens parameter) {
  parameter = parameter.first(find(parameter, "="));
  const size_t n = parameter.size();
  const bool named = n > 1 && is_word(parameter[n - 1].front()) && !is_one_of(parameter[n - 1], kTypeWords) &&
                     parameter[n - 2] != "::" && parameter[n - 2] != "const";
  return joined(parameter.first(named ? n - 1 : n));
}

std::string types_of(Tokens parameters) {
  std::string types;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= parameters.size(); ++i) {
    if (i == parameters.size() || (depth == 0 && parameters[i] == ",")) {
      if (begin > 0) types += ", ";
      types += type_of(parameters.subspan(begin, i - begin));
      begin = i + 1;
    } else {
      depth += is_one_of(parameters[i], kOpening) ? 1 : is_one_of(parameters[i], kClosing) ? -1 : 0;
    }
  }
  return types;
}

// "Layer::run", "Layer::operator==": what stands before `end`.
std::string name_before(Tokens head, size_t end) {
  const size_t sign = find(head.first(end), "operator");
  size_t begin = std::min(sign, end - 1);
  while (begin >= 2 && head[begin - 1] == "::") begin -= 2;
  return joined(head.subspan(begin, end - begin));
}

struct Parameters {
  size_t open = 0, close = 0;  // close 0: the head is no function's
};

// In the last parenthesis outside of others, before a constructor's initialisers.
Parameters parameters_of(Tokens head) {
  Parameters found;
  const bool is_operator = has(head, "operator");
  for (size_t i = 0; i < head.size() && head[i] != ":" && (head[i] != "=" || is_operator); ++i) {
    if (head[i] != "(") continue;
    const size_t close = closing(head, i, "(", ")");
    if (i > 0 && (is_word(head[i - 1].back()) || is_operator) && !is_one_of(head[i - 1], kNoFunctions))
      found = {i, close};
    i = close;
  }
  return found;
}

std::string type_name(Tokens head) {
  head = head.subspan(head.size() > 1 && is_one_of(head[1], kTypes) ? 2 : 1);  // enum class
  return joined(head.first(std::min(find(head, ":"), find(head, "final"))));
}

class Scan {
 public:
  explicit Scan(Tokens tokens) : tokens_(tokens) {}

  std::vector<std::string> definitions() {
    for (size_t at = 0; at < tokens_.size();) at = statement(at);
    return std::move(found_);
  }

 private:
  // Reads the statement that begins there, at the scope of a namespace; returns where the next one begins.
  size_t statement(size_t begin) {
    if (tokens_[begin] == "}" && !scopes_.empty()) scopes_.pop_back();
    if (tokens_[begin] == "}" || tokens_[begin] == ";") return begin + 1;
    const size_t end = end_of_head(begin);
    if (end == tokens_.size()) return end;
    const bool opens = tokens_[end] == "{";
    const Tokens whole = tokens_.subspan(begin, end - begin), head = without_template(whole);
    if (opens && has(whole.first(std::min<size_t>(2, whole.size())), "namespace")) {
      const std::string name = joined(whole.subspan(find(whole, "namespace") + 1));
      scopes_.push_back(name.empty() ? std::string(kUnnamed) : name);
      return end + 1;
    }
    if (opens && whole.size() == 2 && whole.front() == "extern") {
      scopes_.push_back("");
      return end + 1;
    }
    if (opens && !head.empty() && is_one_of(head.front(), kTypes)) {
      add(type_name(head));
      return behind_semicolon(end);
    }
    if (const Parameters p = parameters_of(head); opens && p.close > 0) {
      if (!has(head.first(p.open), "static"))
        add(name_before(head, p.open) + "(" + types_of(head.subspan(p.open + 1, p.close - p.open - 1)) + ")");
      return behind_body(begin, end, has(head.subspan(p.close), ":"));
    } else if (p.close == 0 && !head.empty() && head.front() == "inline" && !has(head, "static")) {
      add(name_before(head, std::min(find(head, "="), find(head, "["))));
    }
    return behind_semicolon(end);
  }

  void add(const std::string& name) {
    if (name.empty() || has(scopes_, kUnnamed)) return;
    std::string full;
    for (const std::string& scope : scopes_)
      if (!scope.empty()) full += scope + "::";
    found_.push_back(full + name);
  }

  // Its brace or semicolon.
  size_t end_of_head(size_t at) const {
    for (; at < tokens_.size() && tokens_[at] != "{" && tokens_[at] != ";"; ++at)
      if (tokens_[at] == "(") at = std::min(closing(tokens_, at, "(", ")"), tokens_.size() - 1);
    return at;
  }
  size_t behind_semicolon(size_t at) const {
    for (; at < tokens_.size() && tokens_[at] != ";"; ++at)
      if (tokens_[at] == "{") at = std::min(closing(tokens_, at, "{", "}"), tokens_.size() - 1);
    return at + 1;
  }
  // A constructor's braces after names are initialisers.
  size_t behind_body(size_t begin, size_t brace, bool initialises) const {
    while (initialises && brace > begin && brace < tokens_.size() && is_word(tokens_[brace - 1].back()))
      brace = end_of_head(closing(tokens_, brace, "{", "}") + 1);
    return closing(tokens_, brace, "{", "}") + 1;
  }

  Tokens tokens_;
  std::vector<std::string> scopes_, found_;
};

}  // namespace

std::vector<std::string> external_definitions(std::string_view text) {
  const std::vector<std::string> tokens = tokens_of(text);
  return Scan(tokens).definitions();
}

bool is_stand_in(std::string_view path) {
  return std::ranges::any_of(kStandIns, [&](auto part) { return path.find(part) != std::string_view::npos; });
}

}  // namespace moe::rules
