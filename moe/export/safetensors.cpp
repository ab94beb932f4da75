#include "moe/export/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <set>

#include "moe/base/check.h"
#include "moe/base/whole_file.h"

namespace moe {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kNotes = "__metadata__";

struct ElementType {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<ElementType, 6> kTypes{{{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}}};

void check_name(const std::string& name) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ' ';
  };
  require<WrongResult>(name != kNotes && std::ranges::all_of(name, plain), "safetensors: '{}' can't be a name", name);
}

void check(const SafeTensor& t, std::set<std::string_view>& names) {
  check_name(t.name);
  require<WrongResult>(names.insert(t.name).second, "safetensors: two tensors are named {}", t.name);
  const std::optional<int64_t> size = bytes_of_safetensor(t.type);
  require<WrongResult>(size.has_value(), "safetensors: {} is of type {}", t.name, t.type);
  int64_t bytes = *size;
  for (const int64_t extent : t.shape) bytes *= extent;
  require_equal(static_cast<int64_t>(t.data.size()), bytes, "bytes of " + t.name);
}

/// Returns the notes as the header's first entry.
std::string entry_of(const TensorNotes& notes) {
  std::string entry;
  for (const auto& [key, text] : notes) {
    check_name(key);
    const auto plain = [](unsigned char c) { return c >= ' ' && c != '"' && c != '\\'; };
    require<WrongResult>(std::ranges::all_of(text, plain), "safetensors: '{}' can't be the note {}", text, key);
    entry += fmt::format(R"({}"{}":"{}")", entry.empty() ? "" : ",", key, text);
  }
  return fmt::format(R"("{}":{{{}}})", kNotes, entry);
}

}  // namespace

std::string_view safetensor_type(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "F32";
    case DType::float16:
      return "F16";
    case DType::bfloat16:
      return "BF16";
    case DType::float64:
      return "F64";
  }
  bad_input("element type {}: found one that no such file has", static_cast<int>(dtype));
}

std::optional<int64_t> bytes_of_safetensor(std::string_view type) {
  const auto found = std::ranges::find(kTypes, type, &ElementType::name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->bytes);
}

void write_safetensors(const std::string& path, std::span<const SafeTensor> tensors, const TensorNotes& notes) {
  std::string header = "{";
  if (!notes.empty()) header += entry_of(notes);
  std::set<std::string_view> names;
  size_t at = 0;
  for (const SafeTensor& t : tensors) {
    check(t, names);
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.size() == 1 ? "" : ",",
                    t.name, t.type, fmt::join(t.shape, ","), at, at + t.data.size());
    at += t.data.size();
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  write_whole_file(path, "a file for tensors", [&](std::ostream& out) {
    const auto put = [&](const void* data, size_t size) {
      out.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
    };
    const uint64_t length = header.size();
    put(&length, sizeof length);
    put(header.data(), header.size());
    for (const SafeTensor& t : tensors) put(t.data.data(), t.data.size());
  });
}

}  // namespace moe
