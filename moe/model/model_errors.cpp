#include "moe/model/model_errors.h"

namespace moe {

ModelReference reference_model(const RankCells& rank, const StackChoices& choices, const ModelEnds& of,
                               const SampleTokens& tokens) {
  const MoeLayer& any = rank.front();
  LayerSeed seed = any.seed();
  seed.layer = seed.micro_batch = 0;
  const LayerCase& shape = any.shape().shape;
  const int64_t samples = any.shape().tokens.total / shape.layer.seq, seq = shape.layer.seq;
  ReferenceEnds ends{of.vocabulary(), of.tied()};
  for (size_t mb = 0; mb < choices.front().size(); ++mb) {
    auto& inputs = ends.inputs.emplace_back(static_cast<size_t>(samples * seq));
    auto& targets = ends.targets.emplace_back(inputs.size());
    for (int64_t s = 0; s < samples; ++s) {
      const auto of_sample = [&](std::vector<int32_t>& all) {
        return std::span(all).subspan(static_cast<size_t>(s * seq), static_cast<size_t>(seq));
      };
      tokens(static_cast<int64_t>(mb) * samples + s, of_sample(inputs), of_sample(targets));
    }
  }
  return reference_model(rank.cases, static_cast<int>(choices.size()), seed, ends, choices_to_follow(rank, choices));
}

std::vector<TensorError> end_errors(ModelEnds& ends, const ModelReference& reference) {
  return gradient_errors(ends.parameters(), reference.gradients, reference.sizes);
}

}  // namespace moe
