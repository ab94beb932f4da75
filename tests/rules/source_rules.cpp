#include "tests/rules/source_rules.h"

#include <algorithm>
#include <array>
#include <regex>
#include <span>
#include <sstream>

#include "tests/rules/tree.h"

namespace moe::rules {
namespace {

constexpr int kMaxLines = 350;
constexpr int kMaxColumns = 120;

// Lowest first: a folder may include itself and what stands before it.
constexpr std::array<std::string_view, 18> kLibrary = {"base",   "record", "plan",  "schedule", "cost",   "search",
                                                       "export", "device", "comm",  "exec",     "tensor", "rows",
                                                       "layer",  "stack",  "train", "model",    "torch",  "measure"};
// Above the library; they never include each other.
constexpr std::array<std::string_view, 10> kPrograms = {"microbench", "layerbench", "modelbench", "tuner",    "planner",
                                                        "reproduce",  "doctor",     "regress",    "exchange", "report"};

constexpr int kVerbsHeight = kLibrary.size(), kRunHeight = kVerbsHeight + 1, kProgramHeight = kRunHeight + 1;

constexpr std::array<std::string_view, 3> kTorchHeaders = {"torch/", "ATen/", "c10/"};
constexpr std::array<std::string_view, 12> kTorchFolders = {
    "moe/comm/gloo/", "moe/comm/store/",  "moe/tensor/cpu/",   "moe/layer/reference/",
    "tests/tensor/",  "tests/comm/gloo/", "tests/comm/store/", "tests/layer/",
    "moe/torch/",     "tests/torch/",     "examples/",         "moe/tensor/torch_heads.cpp"};
constexpr std::array<std::string_view, 6> kCudaHeaders = {"cuda", "cublas", "nccl", "cub/", "thrust/", "nvtx3/"};
constexpr std::array<std::string_view, 2> kCudaFolders = {"/cuda/", "/nccl/"};
constexpr std::array<std::string_view, 5> kEmptyNames = {"utils", "common", "helpers", "new_", "_v2"};

bool starts_with_any(std::string_view text, std::span<const std::string_view> starts) {
  return std::ranges::any_of(starts, [&](auto start) { return text.starts_with(start); });
}

bool contains_any(std::string_view text, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts, [&](auto part) { return text.find(part) != std::string_view::npos; });
}

std::string_view folder(std::string_view path, int depth) {
  for (; depth > 0; --depth) path.remove_prefix(std::min(path.find('/'), path.size() - 1) + 1);
  return path.substr(0, path.find('/'));
}

// How high a file stands; -1 where it stands nowhere. Above the library: what verbs share, what those that run layers
// share, then all programs, equally high, cli, and tests on top.
int height(std::string_view path) {
  const auto top = folder(path, 0);
  if (top == "moe") {
    const auto found = std::ranges::find(kLibrary, folder(path, 1));
    return found == kLibrary.end() ? -1 : static_cast<int>(found - kLibrary.begin());
  }
  if (path.starts_with("verbs/run/")) return kRunHeight;
  if (top == "verbs") return kVerbsHeight;
  if (std::ranges::find(kPrograms, top) != kPrograms.end()) return kProgramHeight;
  if (top == "cli") return kProgramHeight + 1;
  return top == "tests" || top == "examples" ? kProgramHeight + 2 : -1;
}

std::string own_include_error(std::string_view path, std::string_view included) {
  const int from = height(path), to = height(included);
  if (included.find('/') == std::string_view::npos || to < 0) {
    return "includes \"" + std::string(included) + "\", which is no path from the root to a known folder";
  }
  const bool programs = from == to && from == kProgramHeight;
  if (to > from || (programs && folder(path, 0) != folder(included, 0))) {
    return "may not include " + std::string(included) + ": it stands above or beside this folder";
  }
  return "";
}

std::string include_error(const std::string& path, std::string_view included, bool quoted) {
  if (starts_with_any(included, kTorchHeaders)) {
    return starts_with_any(path, kTorchFolders) ? "" : "Torch header " + std::string(included) + " outside its folders";
  }
  if (starts_with_any(included, kCudaHeaders)) {
    return contains_any(path, kCudaFolders) ? "" : "CUDA header " + std::string(included) + " outside cuda/ and nccl/";
  }
  return quoted ? own_include_error(path, included) : "";
}

// The library serves programs of any command line; flags of other programs (git, CMake, Google Benchmark) are no names
// of ours.
std::string flag_error(const std::string& path, const std::string& line) {
  static const std::regex kText(R"re("(?:[^"\\]|\\.)*")re"), kFlag("--[a-z]"),
      kOfOthers("git -C|--preset|--benchmark_|// ");
  if (!path.starts_with("moe/") || std::regex_search(line, kOfOthers)) return "";
  for (std::sregex_iterator text(line.begin(), line.end(), kText), end; text != end; ++text)
    if (const std::string words = text->str(); std::regex_search(words, kFlag))
      return "names a flag, which programs have and the library does not";
  return "";
}

int columns(std::string_view line) {  // of UTF-8 text
  return static_cast<int>(std::ranges::count_if(line, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<std::string> violations(const std::string& path, std::string_view text) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<std::string> found;
  int number = 0;
  const auto report = [&](const std::string& reason) {
    if (!reason.empty()) found.push_back(path + ":" + std::to_string(number) + ": " + reason);
  };
  if (is_source(path) && height(path) < 0) report("stands in no known folder");
  if (contains_any(path, kEmptyNames)) report("is named after nothing that it does");
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    ++number;
    if (columns(line) > kMaxColumns) report("line has " + std::to_string(columns(line)) + " columns, at most 120");
    std::smatch match;
    if (is_source(path) && !path.starts_with("tests/") && line.find("std::ofstream") != std::string::npos) {
      report("writes a file by itself, which write_whole_file does");
    }
    if (is_source(path)) report(flag_error(path, line));
    if (is_source(path) && std::regex_search(line, match, kInclude)) {
      report(include_error(path, match[2].str(), match[1] == "\""));
    }
  }
  if (is_source(path) && number > kMaxLines) report("file has " + std::to_string(number) + " lines, at most 350");
  return found;
}

}  // namespace moe::rules
