#include "moe/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"
#include "moe/base/json.h"

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
  require<WrongResult>(size.has_value(), "safetensors: {}: type {} is not supported", t.name, t.type);
  int64_t bytes = *size;
  for (const int64_t extent : t.shape) bytes *= extent;
  require_equal(static_cast<int64_t>(t.data.size()), bytes, "bytes of " + t.name);
}

/// Returns the header's "__metadata__" entry with these notes.
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
  bad_input("safetensors: found element type {}, expected one that the format supports", static_cast<int>(dtype));
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

namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // limit of the format itself
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

int64_t natural_number(const json& value, const std::string& where) {
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(kMax);
  require<BadInput>(fits, "{}: found {}, expected a whole number, 0 or more", where,
                    quoted_text(value.dump(-1, ' ', true, json::error_handler_t::replace)));
  return value.get<int64_t>();
}

const json& list_at(const json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  require<BadInput>(found != entry.end() && found->is_array(), "{}: found no {}, expected a list of whole numbers",
                    where, key);
  return *found;
}

/// Reads a tensor's entry. `base`: the offset in the file at which the elements of all tensors begin.
StoredTensor tensor_from(const std::string& name, const json& entry, int64_t base, const std::string& where) {
  require<BadInput>(entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry["dtype"].is_string(),
                    "{}: found an entry with other keys, expected dtype, shape and data_offsets", where);
  StoredTensor t{.name = name, .type = entry["dtype"].get<std::string>()};
  const std::optional<int64_t> size = bytes_of_safetensor(t.type);
  require<BadInput>(size.has_value(), "{}: dtype: found {}, expected F64, F32, F16, BF16, I64 or I32", where,
                    quoted_text(t.type));
  int64_t bytes = *size;
  for (const json& extent : list_at(entry, "shape", where)) {
    t.shape.push_back(natural_number(extent, where + ": shape"));
    require<BadInput>(t.shape.back() == 0 || bytes <= kMax / t.shape.back(),
                      "{}: shape: found more than 2^63 bytes, expected fewer", where);
    bytes *= t.shape.back();
  }
  const json& offsets = list_at(entry, "data_offsets", where);
  require<BadInput>(offsets.size() == 2, "{}: data_offsets: found {} numbers, expected 2", where, offsets.size());
  const int64_t first = natural_number(offsets[0], where + ": data_offsets");
  const int64_t last = natural_number(offsets[1], where + ": data_offsets");
  require<BadInput>(first <= last && last - first == bytes,
                    "{}: data_offsets: found {} to {}, expected {} bytes, as its shape has", where, first, last, bytes);
  require<BadInput>(last <= kMax - base, "{}: data_offsets: found {}, expected fewer than 2^63", where, last);
  t.first = base + first;
  t.bytes = bytes;
  return t;
}

TensorNotes notes_from(const json& entry, const std::string& where) {
  TensorNotes notes;
  require<BadInput>(entry.is_object(), "{}: found no object, expected texts by key", where);
  for (const auto& [key, value] : entry.items()) {
    require<BadInput>(value.is_string(), "{}: {}: found no text, expected one", where, quoted_text(key));
    notes[key] = value.get<std::string>();
  }
  return notes;
}

json parsed(const std::string& header, const std::string& path) {
  size_t names = 0;
  const auto count = [&](int depth, json::parse_event_t event, json&) {
    if (depth == 1 && event == json::parse_event_t::key) ++names;
    return true;
  };
  json root = json_from<json>(header, path + ": header", "a JSON object of tensors by name", count);
  require<BadInput>(root.is_object() && !header.empty() && header[0] == '{',
                    "{}: header: found no JSON object, expected one of tensors by name", path);
  require<BadInput>(root.size() == names, "{}: header: found {} entries of {} names, expected each name once", path,
                    names, root.size());
  return root;
}

/// Checks that the tensors begin at `base` and fill the file to its end.
void check_places(const std::vector<StoredTensor>& tensors, int64_t base, int64_t end, const std::string& path) {
  int64_t at = base;
  for (const StoredTensor& t : tensors) {
    require<BadInput>(t.first == at, "{}: {}: found its first byte at {}, {}, expected at {}", path,
                      quoted_text(t.name), t.first, t.first < at ? "inside the tensor before" : "behind a gap", at);
    at += t.bytes;
    require<BadInput>(at <= end, "{}: {}: found a file of {} bytes, expected at least {}: the file may be incomplete",
                      path, quoted_text(t.name), end, at);
  }
  require<BadInput>(at == end, "{}: found {} bytes, expected {}: the tensors end there", path, end, at);
}

}  // namespace

SafeTensorsFile::SafeTensorsFile(const std::string& path) : path_(path) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) in_.open(path, std::ios::binary);
  require<BadInput>(in_.is_open(), "{}: cannot be read, expected a safetensors file", path);
  const auto end = static_cast<int64_t>(in_.seekg(0, std::ios::end).tellg());
  require<BadInput>(end >= kLengthBytes, "{}: found {} bytes, expected the {} of the header's length at least", path,
                    end, kLengthBytes);
  uint64_t length = 0;
  in_.seekg(0).read(reinterpret_cast<char*>(&length), kLengthBytes);
  const auto most = std::min(kMaxHeaderBytes, static_cast<uint64_t>(end - kLengthBytes));
  require<BadInput>(in_ && length <= most,
                    "{}: found a header of {} bytes, expected at most {}: the file may be incomplete", path, length,
                    most);
  std::string header(length, ' ');
  in_.read(header.data(), static_cast<std::streamsize>(length));
  require<BadInput>(bool(in_), "{}: found fewer bytes than the {} of the header", path, length);
  const int64_t base = kLengthBytes + static_cast<int64_t>(length);
  const json root = parsed(header, path);
  for (const auto& [name, entry] : root.items()) {
    const std::string where = path + ": " + quoted_text(name);
    if (name == "__metadata__")
      notes_ = notes_from(entry, where);
    else
      tensors_.push_back(tensor_from(name, entry, base, where));
  }
  std::ranges::sort(tensors_, {}, [](const StoredTensor& t) { return std::pair(t.first, t.bytes); });
  check_places(tensors_, base, end, path);
}

const StoredTensor* SafeTensorsFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &StoredTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void SafeTensorsFile::read(const StoredTensor& tensor, int64_t offset, std::span<std::byte> to) {
  const auto size = static_cast<int64_t>(to.size());
  require<WrongResult>(offset >= 0 && size <= tensor.bytes && offset <= tensor.bytes - size,
                       "{}: {}: asked for {} bytes from {} on, of {}", path_, quoted_text(tensor.name), size, offset,
                       tensor.bytes);
  in_.clear();
  in_.seekg(tensor.first + offset).read(reinterpret_cast<char*>(to.data()), size);
  require<BadInput>(bool(in_), "{}: {}: found fewer bytes than when it was opened, expected {}", path_,
                    quoted_text(tensor.name), size);
}

SafeTensorsFile read_safetensors(const std::string& path) { return SafeTensorsFile(path); }

}  // namespace moe
