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

int64_t bytes_of_type(const SafeTensor& t) {
  static constexpr std::array<std::string_view, 4> kTypes{"F32", "I32", "F64", "I64"};
  const auto found = std::ranges::find(kTypes, t.type);
  require<WrongResult>(found != kTypes.end(), "safetensors: {} is of type {}", t.name, t.type);
  return found < kTypes.begin() + 2 ? 4 : 8;
}

void check(const SafeTensor& t, std::set<std::string_view>& names) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == ' ';
  };
  require<WrongResult>(std::ranges::all_of(t.name, plain), "safetensors: '{}' can't be a name", t.name);
  require<WrongResult>(names.insert(t.name).second, "safetensors: two tensors are named {}", t.name);
  int64_t bytes = bytes_of_type(t);
  for (const int64_t extent : t.shape) bytes *= extent;
  require_equal(static_cast<int64_t>(t.data.size()), bytes, "bytes of " + t.name);
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const SafeTensor> tensors) {
  std::string header = "{";
  std::set<std::string_view> names;
  size_t at = 0;
  for (const SafeTensor& t : tensors) {
    check(t, names);
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", names.size() == 1 ? "" : ",",
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
