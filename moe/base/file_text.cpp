#include "moe/base/file_text.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>
#include <zlib.h>

#include "moe/base/units.h"

namespace moe {
namespace {

std::atomic<int64_t> most_input{kDefaultMostInput};

constexpr int kMostBlanks = 1 << 20;  // at a file's start

using File = std::unique_ptr<gzFile_s, int (*)(gzFile)>;

File opened(const std::string& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  return {folder ? nullptr : gzopen(path.c_str(), "rb"), gzclose};
}

std::string hexadecimal(uLong crc) { return fmt::format("{:08x}", crc); }

const Bytef* bytes_of(std::string_view text) { return reinterpret_cast<const Bytef*>(text.data()); }

}  // namespace

void set_most_input(int64_t bytes) { most_input = bytes; }

std::string text_of_file(const std::string& path, std::string_view expected) {
  constexpr unsigned kPiece = 1 << 20;
  const File file = opened(path);
  require<BadInput>(file != nullptr, "{}: found no readable file, expected {}", path, expected);
  gzbuffer(file.get(), kPiece);
  std::string text;
  for (int read = 1; read > 0;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    read = gzread(file.get(), text.data() + before, kPiece);
    text.resize(before + static_cast<size_t>(std::max(0, read)));
    const int64_t most = most_input;
    require<InputTooLarge>(std::cmp_less_equal(text.size(), most),
                           "{}: found more than {} ({} bytes), unpacked, expected {} of at most that", path,
                           human_bytes(static_cast<double>(most)), most, expected);
  }
  int status = Z_OK;
  const std::string why = gzerror(file.get(), &status);
  require<BadInput>(status == Z_OK, "{}: found a file that gzip cannot unpack ({}), expected {}", path, why, expected);
  return text;
}

std::string crc_of(std::string_view text) { return hexadecimal(::crc32_z(0, bytes_of(text), text.size())); }

std::optional<std::string> file_crc(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::vector<char> block(1 << 20);
  uLong crc = 0;
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    const std::string_view read(block.data(), static_cast<size_t>(in.gcount()));
    crc = ::crc32_z(crc, bytes_of(read), read.size());
  }
  return in.eof() ? std::optional(hexadecimal(crc)) : std::nullopt;
}

char first_letter(const std::string& path) {
  const File file = opened(path);
  int letter = file == nullptr ? -1 : gzgetc(file.get());
  for (int blanks = 0; letter == ' ' || (letter >= '\t' && letter <= '\r'); letter = gzgetc(file.get()))
    if (++blanks > kMostBlanks) return '\0';
  return letter < 0 ? '\0' : static_cast<char>(letter);
}

std::string unpacked_name(const std::string& path) {
  return path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
}

}  // namespace moe
