// Reads recorded routing: CSV with the columns token, layer, experts.
#define CSV_IO_NO_THREAD
#include <algorithm>
#include <libfccp/csv.h>
#include <sstream>

#include "moe/base/check.h"
#include "moe/layer/workload.h"

namespace moe {
namespace {

using Reader = io::CSVReader<3, io::trim_chars<' ', '\t'>, io::no_quote_escape<','>, io::throw_on_overflow,
                             io::single_line_comment<'#'>>;

// Returns k distinct experts, or none where the text is anything else.
std::vector<int32_t> experts_from(const std::string& text, int64_t experts, int64_t k) {
  std::istringstream words(text);
  std::vector<int32_t> found;
  for (int32_t e = 0; words >> e;) found.push_back(e);
  std::vector<int32_t> sorted = found;
  std::ranges::sort(sorted);
  const bool good = words.eof() && static_cast<int64_t>(found.size()) == k && sorted.front() >= 0 &&
                    sorted.back() < experts && std::ranges::adjacent_find(sorted) == sorted.end();
  return good ? found : std::vector<int32_t>();
}

}  // namespace

std::vector<int32_t> read_trace(const std::string& path, const RankShape& rank, uint64_t layer) {
  const int64_t tokens = rank.tokens.total, k = rank.shape.layer.top_k, experts = rank.experts.total;
  std::vector<int32_t> all(static_cast<size_t>(tokens * k), -1);
  try {
    Reader reader(path);
    reader.read_header(io::ignore_no_column, "token", "layer", "experts");
    uint64_t token = 0, of_layer = 0;
    for (std::string text; reader.read_row(token, of_layer, text);) {
      if (of_layer != layer || token >= static_cast<uint64_t>(tokens)) continue;
      const auto found = experts_from(text, experts, k);
      require<BadInput>(!found.empty(), "{}:{}: experts: found '{}', expected {} different ones from 0 to {}", path,
                        reader.get_file_line(), text, k, experts - 1);
      int32_t* own = all.data() + static_cast<int64_t>(token) * k;
      require<BadInput>(*own < 0, "{}:{}: token {} of layer {} is there twice", path, reader.get_file_line(), token,
                        layer);
      std::ranges::copy(found, own);
    }
  } catch (const io::error::base& error) {
    bad_input("{}: {}", path, error.what());
  }
  for (int64_t token = 0; token < tokens; ++token)
    require<BadInput>(all[static_cast<size_t>(token * k)] >= 0, "{}: layer {}: found no token {}, expected 0 to {}",
                      path, layer, token, tokens - 1);
  return all;
}

}  // namespace moe
