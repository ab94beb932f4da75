#include "moe/model/table_tokens.h"

#include <algorithm>
#include <numeric>

namespace moe::model {

TableTokens::TableTokens(int64_t tokens, const ShardRange& own, MemorySpace& memory)
    : own_(own),
      tokens_(static_cast<size_t>(tokens)),
      host_tables_(4 * tokens_ + 1),
      device_tables_(memory, 4 * tokens + 1) {}

void TableTokens::set(std::span<const int32_t> rows) {
  require_equal(rows.size(), tokens_, "tokens of a micro-batch");
  const std::span all(host_tables_);
  const auto row = all.first(tokens_), table_row = all.subspan(tokens_, tokens_),
             begin = all.subspan(2 * tokens_, tokens_ + 1), by_row = all.last(tokens_);
  for (size_t i = 0; i < tokens_; ++i) {
    const int64_t own_row = rows[i] - own_.first;
    row[i] = own_row >= 0 && own_row < own_.count ? static_cast<int32_t>(own_row) : -1;
  }
  std::iota(by_row.begin(), by_row.end(), 0);
  const auto row_of = [&](int32_t token) { return row[token]; };
  std::ranges::stable_sort(by_row, {}, row_of);
  size_t used = 0;
  for (size_t i = 0; i < tokens_; ++i) {
    const int32_t at = row_of(by_row[i]);
    if (at < 0 || (used > 0 && table_row[used - 1] == at)) continue;
    table_row[used] = at;
    begin[used++] = static_cast<int32_t>(i);
  }
  begin[used] = static_cast<int32_t>(tokens_);
  used_ = static_cast<int64_t>(used);
  device_tables_.from_host(host_tables_.data());
}

TokenRows TableTokens::view() const {
  const int32_t* all = device_tables_.data();
  return {static_cast<int64_t>(tokens_), all, used_, all + tokens_, all + 2 * tokens_, all + 3 * tokens_ + 1};
}

}  // namespace moe::model
