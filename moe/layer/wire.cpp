#include "moe/layer/wire.h"

#include <cstring>

namespace moe {
namespace {

// Calls copy(byte offset in the gathered chunk, byte offset in the expert layout, bytes) for every run of elements that
// is contiguous in both.
template <class Copy>
void for_each_run(const RankShape& s, Rows rows, TensorView expert, int64_t first, Copy copy) {
  const int64_t row_bytes = s.model_dim() * bytes_of(s.dtype());
  const int64_t experts = s.experts.count, sources = s.sources(), expert_step = expert.size(1) * row_bytes;
  const int64_t begin = first * row_bytes;
  if (sources == 1 && experts == 1) return copy(0, begin, rows.count() * row_bytes);
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t t = 0; t < rows.count(); ++t)
      for (int64_t source = 0; source < sources; ++source)
        copy(((source * rows.count() + t) * experts + e) * row_bytes,
             begin + e * expert_step + (t * sources + source) * row_bytes, row_bytes);
}

}  // namespace

WireLayout::WireLayout(const RankShape& s, int degree)
    : experts_(s.experts.total), local_experts_(s.experts.count), model_dim_(s.model_dim()) {
  require<BadInput>(degree >= 1, "degree: found {}, expected >= 1", degree);
  for (int chunk = 0; chunk < degree; ++chunk) {
    const Rows rows = chunk_rows(s.rows, degree, chunk);
    chunks_.push_back(rows);
    for (int64_t row = rows.begin; row < rows.end; ++row)
      places_.push_back({(rows.begin * experts_ + (row - rows.begin) * local_experts_) * model_dim_,
                         rows.count() * local_experts_ * model_dim_});
  }
}

Rows expert_rows(const RankShape& s, Rows rows) { return {rows.begin * s.sources(), rows.end * s.sources()}; }

void unpack_chunk(const RankShape& s, Rows rows, TensorView gathered, TensorView expert, int64_t first) {
  for_each_run(s, rows, expert, first, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(expert.as<std::byte>() + to, gathered.as<std::byte>() + from, static_cast<size_t>(bytes));
  });
}

void pack_chunk(const RankShape& s, Rows rows, TensorView expert, int64_t first, TensorView gathered) {
  for_each_run(s, rows, expert, first, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(gathered.as<std::byte>() + to, expert.as<std::byte>() + from, static_cast<size_t>(bytes));
  });
}

}  // namespace moe
