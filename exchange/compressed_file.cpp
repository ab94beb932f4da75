#include "exchange/compressed_file.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <zlib.h>

#include "moe/base/check.h"

namespace moe::exchange {

std::string text_of_file(const std::string& path) {
  constexpr unsigned kPiece = 1 << 20;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  require<BadInput>(file != nullptr && !std::filesystem::is_directory(path), "{}: found no readable file, expected one",
                    path);
  std::string text;
  for (int read = 1; read > 0;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    read = gzread(file.get(), text.data() + before, kPiece);
    text.resize(before + static_cast<size_t>(std::max(0, read)));
  }
  int status = Z_OK;
  const std::string why = gzerror(file.get(), &status);
  require<BadInput>(status == Z_OK, "{}: found a broken file ({}), expected a whole one", path, why);
  return text;
}

}  // namespace moe::exchange
