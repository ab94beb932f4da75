#include "moe/layer/buffers.h"

namespace moe {

LayerBuffers::LayerBuffers(const RankShape& s) : dtype_(s.dtype()) {
  const int64_t tokens = s.tokens.count, m = s.model_dim();
  forward = make_phase(s);
  backward = make_phase(s);
  output = own({tokens, m});
  d_output = own({tokens, m});
  d_weight = own({tokens, s.shape.layer.top_k});
  const int64_t rows = s.rows * s.sources();
  for (TensorView* t : {&expert_input, &rows_in, &rows_out}) *t = own({s.experts.count, rows, m});
}

TensorView LayerBuffers::own(std::initializer_list<int64_t> shape) { return owned_.emplace_back(shape, dtype_).view(); }

PhaseBuffers LayerBuffers::make_phase(const RankShape& s) {
  const ParallelShape& p = s.shape.parallel;
  const int64_t tokens = s.tokens.count, m = s.model_dim();
  const int64_t wire = s.rows * s.experts.total * m;
  PhaseBuffers b;
  b.dense_in = own({tokens, m});
  b.dense_out = own({tokens, m});
  b.dense_gathered = p.mp > 1 ? own({s.group_tokens(), m}) : b.dense_in;
  b.dense_partial = p.mp > 1 ? own({s.group_tokens(), m}) : b.dense_out;
  b.at_home = own({wire});
  b.at_peer = p.ep > 1 ? own({wire}) : b.at_home;
  b.gathered = p.esp > 1 ? own({wire * p.esp}) : b.at_peer;
  return b;
}

}  // namespace moe
