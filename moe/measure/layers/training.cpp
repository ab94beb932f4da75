#include "moe/measure/layers/training.h"

#include "moe/model/model_errors.h"

namespace moe {
namespace {

std::vector<double> sum_of_ranks(World& world, const std::vector<std::vector<double>>& here) {
  std::vector<double> sum;
  for (const std::vector<double>& rank : gather(world, here)) {
    sum.resize(std::max(sum.size(), rank.size()));
    for (size_t i = 0; i < rank.size(); ++i) sum[i] += rank[i];
  }
  return sum;
}

}  // namespace

std::vector<TensorError> verify_model(const std::vector<RankRun*>& ranks, const StackChoices& choices) {
  const MoeLayer& any = ranks.front()->cells().front();
  const ModelReference reference =
      reference_model(any, choices, ranks.front()->model()->ends().vocabulary(), ranks.front()->first_step());
  std::vector<RankCells> cells;
  for (RankRun* rank : ranks) cells.push_back(rank->cells());
  std::vector<TensorError> all = verify_stack(cells, reference.layers);
  for (RankRun* rank : ranks) {
    const std::vector<TensorError> errors = end_errors(rank->model()->ends(), reference);
    require_small(errors, tolerance_of(any), any.shape().shape.layer);
    all.insert(all.end(), errors.begin(), errors.end());
  }
  return all;
}

void Training::begin(const std::vector<RankRun*>& ranks, const OptimizerSettings& optimizer) {
  for (RankRun* rank : ranks) rank->model()->train(optimizer);
  losses_.resize(ranks.size());
}

double Training::own_loss(const RankRun& rank) {
  const ModelEnds& ends = rank.model()->ends();
  return ends.heads() ? ends.loss() : 0;
}

void Training::read(World& world, const std::vector<RankRun*>& ranks, int held_out_batches, MeasuredRun& run) const {
  run.losses = sum_of_ranks(world, losses_);
  std::vector<std::vector<double>> held_out(ranks.size());
  world.run([&](int rank) {
    const auto place = static_cast<size_t>(rank - world.here().front());
    for (int batch = 0; batch < held_out_batches; ++batch)
      held_out[place].push_back(ranks[place]->held_out_loss(batch));
  });
  run.held_out_loss = 0;
  for (const double loss : sum_of_ranks(world, held_out)) run.held_out_loss += loss / held_out_batches;
}

}  // namespace moe
