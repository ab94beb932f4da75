#include "tests/model/local_models.h"

#include <numeric>

#include "moe/schedule/model_plan.h"
#include "moe/tensor/host_copy.h"
#include "tests/properties/any_model.h"

namespace moe {

LocalModels::LocalModels(const Plan& plan, const TokenSource& text, uint64_t seed, bool step_outside_pass,
                         DeviceKind device)
    : plan_(plan), world_(plan.shape.parallel.ranks()), ranks_(static_cast<size_t>(plan.shape.parallel.ranks())) {
  static const Workload chosen_by_gates;
  world_.run([&](int rank) {
    const auto world_comm = world_.communicator(rank);
    ranks_[rank] = std::make_unique<measure::RankRun>(plan_, *world_comm,
                                                      measure::RankRun::Setup{.kind = device,
                                                                              .seed = seed,
                                                                              .workload = chosen_by_gates,
                                                                              .text = &text,
                                                                              .step_outside_pass = step_outside_pass});
  });
}

std::vector<double> LocalModels::run(int steps) {
  std::vector<std::vector<double>> losses(ranks_.size());
  world_.run([&](int rank) {
    measure::RankRun& mine = *ranks_[rank];
    for (int step = 0; step < steps; ++step) {
      mine.pass();
      losses[rank].push_back(mine.model()->ends().heads() ? mine.model()->ends().loss() : 0);
    }
  });
  std::vector<double> all(steps);
  for (const auto& rank : losses)
    for (size_t step = 0; step < all.size(); ++step) all[step] += rank[step];
  return all;
}

void LocalModels::train(const OptimizerSettings& settings) {
  for (const auto& rank : ranks_) rank->model()->train(settings);
}

void LocalModels::zero(const std::vector<std::string>& ends) {
  for (const auto& rank : ranks_)
    for (const Parameter& p : rank->model()->parameters())
      for (const std::string& end : ends)
        if (p.name.ends_with(end)) rank->model()->memory().clear(p.value.data(), p.value.bytes(), nullptr);
}

void LocalModels::write(const std::string& folder) const {
  const int64_t step = ranks_.front()->model()->steps();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    RankModel& model = *ranks_[rank]->model();
    write_checkpoint(folder, step, static_cast<int>(rank), model.stored_tensors(), model.memory());
  }
  complete_checkpoint(folder, step, static_cast<int>(ranks_.size()), "");
}

void LocalModels::read(const std::string& folder) {
  const std::optional<Checkpoint> newest = newest_checkpoint(folder);
  require<WrongResult>(newest.has_value(), "{}: found no checkpoint", folder);
  for (const auto& rank : ranks_) {
    read_checkpoint(*newest, rank->model()->stored_tensors(), rank->model()->memory());
    rank->model()->resume_from(newest->step);
  }
}

std::vector<std::byte> LocalModels::weights() const {
  std::vector<std::byte> all;
  for (const auto& rank : ranks_)
    for (const Parameter& p : rank->model()->parameters()) {
      const HostCopy copy(p.value, rank->model()->memory(), Widen::no);
      const TensorView here = copy.view();
      all.insert(all.end(), here.at(0), here.at(0) + here.bytes());
    }
  return all;
}

double LocalModels::held_out_loss(int batches) {
  std::vector<double> losses(ranks_.size());
  world_.run([&](int rank) {
    for (int batch = 0; batch < batches; ++batch) losses[rank] += ranks_[rank]->held_out_loss(batch) / batches;
  });
  return std::reduce(losses.begin(), losses.end());
}

std::vector<RankCells> LocalModels::cells() const {
  std::vector<RankCells> all;
  for (const auto& rank : ranks_) all.push_back(rank->cells());
  return all;
}

StackChoices LocalModels::choices() const {
  std::vector<std::vector<int32_t>> chosen;
  for (const RankCells& rank : cells()) chosen.push_back(own_choices(rank));
  return join_choices(chosen, stack_shape(plan_));
}

LayerCase model_case(LayerShape layer, ParallelShape sizes) {
  sizes.ranks_per_node = sizes.mp;
  sizes.nodes = sizes.pp * sizes.replicas();
  return complete(layer, sizes, Rounding::ragged);
}

Plan model_plan(const std::string& schedule, const LayerCase& shape, int layers, int micro_batches, int64_t vocabulary,
                const StepShape& step) {
  ModelShape model;
  model.shape = shape;
  model.layers = layers;
  model.micro_batches = micro_batches;
  model.step = step;
  add_end_tasks(model, vocabulary);
  const Schedule& of = find_schedule(schedule);
  return build_model_plan(of, model, any_model::any_model_decision(of, model, 3));
}

}  // namespace moe
