#include "moe/plan/model_flops.h"

namespace moe {

double step_flops(const LayerCase& shape, const ModelDepth& depth) {
  const LayerShape& l = shape.layer;
  const auto width = static_cast<double>(l.model_dim);
  const auto of_queries = static_cast<double>(attention_width(l)),
             of_keys = static_cast<double>(l.kv_heads * head_width(l));
  const double attention = width * (2 * of_queries + 2 * of_keys) + 2 * static_cast<double>(l.seq) * of_queries;
  const double gate = width * static_cast<double>(l.experts);
  const double experts = gemms_of(l.ffn) * width * static_cast<double>(l.top_k * l.hidden + l.shared_hidden);
  const int dense = depth.dense.in(0, depth.layers);
  double macs = (depth.layers - dense) * (attention + gate + experts) + width * static_cast<double>(depth.vocabulary);
  if (dense > 0) macs += dense * (attention + gemms_of(l.ffn) * width * static_cast<double>(depth.dense.hidden));
  const double tokens = static_cast<double>(l.batch * l.seq) * shape.parallel.dp * depth.micro_batches;
  return 3 * kFlopsPerMac * macs * tokens;
}

}  // namespace moe
