#include "moe/measure/layers/proof.h"

#include <algorithm>
#include <cstring>

#include "moe/model/model_errors.h"
#include "moe/stack/stack_errors.h"

namespace moe::measure {
namespace {

// Returns what every rank's gates chose, wherever it is.
StackChoices all_choices(World& world, const std::vector<RankCells>& ranks, const Plan& plan) {
  std::vector<std::string> mine;
  for (const RankCells& rank : ranks) {
    const std::vector<int32_t> own = own_choices(rank);
    mine.emplace_back(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(int32_t));
  }
  std::vector<std::vector<int32_t>> all;
  for (const std::string& text : gather(world, std::move(mine))) {
    auto& of_rank = all.emplace_back(text.size() / sizeof(int32_t));
    std::memcpy(of_rank.data(), text.data(), text.size());
  }
  return join_choices(all, stack_shape(plan));
}

// Returns the load of the first layer that has experts, of its first micro-batch.
RoutingLoad load_of_ranks(World& world, const std::vector<RankCells>& ranks, const Plan& plan) {
  int first = 0;
  while (plan.dense.has(first)) ++first;
  std::vector<std::vector<double>> mine;
  for (const RankCells& rank : ranks)
    mine.push_back(rank.has(first) ? load_on(rank.at(first, 0)) : std::vector<double>());
  std::vector<std::vector<double>> all = gather(world, mine);
  std::erase_if(all, [](const std::vector<double>& load) { return load.empty(); });
  return load_of(rank_shape(ranks.front().cases.moe(), 0, plan.structure->flow), all);
}

const ModelReference& reference_of(const Proof& proof, const std::vector<RankRun*>& ranks, const Plan& plan,
                                   const StackChoices& choices) {
  RankRun& rank = *ranks.front();
  const RankCells cells = rank.cells();
  References::Key key{
      cells.cases.moe(),           plan.dense, plan.vocabulary, plan.step.tied, choices, tolerance_of(cells),
      cells.any().routing().preset};
  return proof.references.of(std::move(key), [&] {
    ModelReference reference;
    if (plan.vocabulary > 0)
      reference = reference_model(cells, choices, rank.model()->ends(), rank.first_step());
    else
      reference.layers = reference_stack(cells, choices);
    return reference;
  });
}

// Gives every process the first wrong one's words, or the worst of the right ones' errors.
void share_verdict(World& world, MeasuredRun& run) {
  const std::vector<int> here = world.here();
  if (static_cast<int>(here.size()) == world.ranks()) return;
  const std::string wrong = run.wrong.empty() ? "" : fmt::format("rank {}: {}", here.front(), run.wrong);
  const auto tensors = gather(world, std::vector{run.worst_tensor});
  const auto errors = gather(world, std::vector<std::vector<double>>{{run.worst_error}});
  run.wrong.clear();
  for (const std::string& each : gather(world, std::vector{wrong}))
    if (run.wrong.empty()) run.wrong = each;
  for (size_t rank = 0; rank < errors.size(); ++rank)
    if (errors[rank].front() > run.worst_error)
      run.worst_error = errors[rank].front(), run.worst_tensor = tensors[rank];
}

}  // namespace

void prove_run(const Proof& proof, const std::vector<RankRun*>& ranks, const Plan& plan, MeasuredRun& run) {
  World& world = proof.world;
  std::vector<RankCells> cells;
  for (RankRun* rank : ranks) cells.push_back(rank->cells());
  MoeLayer& any = cells.front().front();
  run.proven_tokens = static_cast<double>(any.shape().tokens.total * plan.micro_batches);
  run.load = load_of_ranks(world, cells, plan);
  if (proof.inspect) proof.inspect(world, ranks, plan);
  const StackChoices choices = all_choices(world, cells, plan);
  try {
    const ModelReference& reference = reference_of(proof, ranks, plan, choices);
    const std::vector<TensorError> errors =
        plan.vocabulary > 0 ? verify_model(ranks, reference) : verify_stack(cells, reference.layers);
    for (const TensorError& e : errors)
      if (e.error > run.worst_error) run.worst_error = e.error, run.worst_tensor = e.tensor;
  } catch (const WrongResult& error) {
    run.wrong = error.what();
  }
  share_verdict(world, run);
}

}  // namespace moe::measure
