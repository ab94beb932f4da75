#include "moe/measure/layers/training.h"

#include <array>
#include <filesystem>
#include <numeric>
#include <sstream>

#include "moe/base/log.h"
#include "moe/model/rank_model.h"
#include "moe/train/checkpoint.h"

namespace moe::measure {
namespace {

std::vector<double> sum_of_ranks(World& world, const std::vector<std::vector<double>>& here) {
  std::vector<double> sum;
  for (const std::vector<double>& rank : gather(world, here)) {
    sum.resize(std::max(sum.size(), rank.size()));
    for (size_t i = 0; i < rank.size(); ++i) sum[i] += rank[i];
  }
  return sum;
}

double own_loss(const RankRun& rank) {
  const ModelEnds& ends = rank.model()->ends();
  return ends.heads() ? ends.loss() : 0;
}

// Returns the text of a checkpoint's losses: the training's identity, then the exact loss of each step, one per line.
std::string text_of(const std::string& identity, const std::vector<double>& losses) {
  std::string text = identity + '\n';
  for (const double loss : losses) text += fmt::format("{:a}\n", loss);
  return text;
}

std::vector<double> losses_in(const Checkpoint& checkpoint, const std::string& identity) {
  std::istringstream lines(checkpoint.settings);
  std::string line;
  std::getline(lines, line);
  require<BadInput>(line == identity, "{}: found a training of '{}', expected '{}'", checkpoint.folder, line, identity);
  std::vector<double> losses;
  while (std::getline(lines, line)) losses.push_back(std::strtod(line.c_str(), nullptr));
  require<BadInput>(static_cast<int64_t>(losses.size()) == checkpoint.step, "{}: found {} losses, expected {}",
                    checkpoint.folder, losses.size(), checkpoint.step);
  return losses;
}

}  // namespace

std::vector<TensorError> verify_model(const std::vector<RankRun*>& ranks, const ModelReference& reference) {
  const RankCells own = ranks.front()->cells();
  const MoeLayer& any = own.front();
  std::vector<RankCells> cells;
  for (RankRun* rank : ranks) cells.push_back(rank->cells());
  std::vector<TensorError> all = verify_stack(cells, reference.layers);
  for (RankRun* rank : ranks) {
    const std::vector<TensorError> errors = end_errors(rank->model()->ends(), reference);
    require_small(errors, tolerance_of(own), any.shape().shape.layer);
    all.insert(all.end(), errors.begin(), errors.end());
  }
  return all;
}

void Training::begin(World& world, const std::vector<RankRun*>& ranks, const TrainingSettings& settings) {
  settings_ = settings;
  losses_.assign(ranks.size(), {});
  for (RankRun* rank : ranks) rank->model()->train(settings.optimizer);
  if (settings.folder.empty()) return;
  const std::optional<Checkpoint> newest = newest_checkpoint(settings.folder);
  const std::vector<double> step{newest ? static_cast<double>(newest->step) : 0.0};
  for (const auto& other : gather(world, std::vector<std::vector<double>>(ranks.size(), step)))
    require<BadInput>(other == step, "{}: found step {} here and step {} on another process, expected one folder",
                      settings.folder, step.front(), other.front());
  if (!newest) return;
  earlier_ = losses_in(*newest, settings.identity);
  require<BadInput>(newest->step < settings.optimizer.steps,
                    "{}: found a checkpoint after {} steps, expected fewer than this run's {} steps", newest->folder,
                    newest->step, settings.optimizer.steps);
  for (RankRun* rank : ranks) {
    read_checkpoint(*newest, rank->model()->stored_tensors(), rank->model()->memory());
    rank->model()->resume_from(newest->step);
  }
}

ExchangeTotals Training::move(World& world, const std::vector<RankRun*>& from, const std::vector<RankRun*>& to) const {
  std::vector<std::vector<double>> moved(to.size());
  world.run([&](int rank) {
    const auto place = static_cast<size_t>(rank - world.local_ranks().front());
    RankModel &before = *from[place]->model(), &after = *to[place]->model();
    after.train(settings_.optimizer);
    const auto world_comm = world.communicator(rank);
    const auto stream = to[place]->device().make_stream("moving weights");
    const double begin_s = now_s();
    const int64_t bytes = move_shards(before.stored_tensors(), after.stored_tensors(), *world_comm, to[place]->device(),
                                      after.memory(), *stream);
    moved[place] = {static_cast<double>(bytes), now_s() - begin_s};
    after.resume_from(before.steps());
  });
  ExchangeTotals most;
  for (const std::vector<double>& rank : gather(world, moved)) {
    most.bytes = std::max(most.bytes, rank.at(0));
    most.seconds = std::max(most.seconds, rank.at(1));
  }
  return most;
}

bool Training::record_step(size_t place, RankRun& rank, Communicator& world_comm, Stream& stream) {
  losses_[place].push_back(own_loss(rank));
  const bool stops = stop_requested(rank.device(), world_comm, stream);
  const int64_t steps = rank.model()->steps();
  const bool due = steps == settings_.optimizer.steps || (settings_.every > 0 && steps % settings_.every == 0);
  if (!settings_.folder.empty() && (stops || due)) write(place, rank, world_comm, stream);
  return !stops;
}

// Returns whether any rank was asked to stop. The ranks decide together, so that all end after the same step.
bool Training::stop_requested(Device& device, Communicator& world_comm, Stream& stream) {
  if (settings_.stop == nullptr) return false;
  const bool is_asked = *settings_.stop;
  // Number of asked ranks, and sum of (rank + 1).
  std::array<double, 2> asked{is_asked ? 1.0 : 0.0, is_asked ? world_comm.rank() + 1.0 : 0.0};
  sum_over_ranks(asked, device, world_comm, {stream, {}, "whether to stop"});
  const bool is_one_of_many = world_comm.size() > 1 && asked[0] == 1;
  if (is_one_of_many && world_comm.rank() == 0) stopping_rank_ = static_cast<int>(asked[1]) - 1;
  if (asked[0] > 0) stopped_ = true;
  return asked[0] > 0;
}

void Training::write(size_t place, RankRun& rank, Communicator& world_comm, Stream& stream) const {
  const int64_t step = rank.model()->steps();
  write_checkpoint(settings_.folder, step, world_comm.rank(), rank.model()->stored_tensors(), rank.model()->memory());
  std::vector<double> losses = losses_[place];
  // After this, all ranks have written their parts.
  sum_over_ranks(losses, rank.device(), world_comm, {stream, {}, "losses of a checkpoint"});
  if (world_comm.rank() != 0) return;
  losses.insert(losses.begin(), earlier_.begin(), earlier_.end());
  complete_checkpoint(settings_.folder, step, world_comm.size(), text_of(settings_.identity, losses));
}

std::vector<double> Training::losses(World& world) const {
  std::vector<double> all = earlier_;
  const std::vector<double> here = sum_of_ranks(world, losses_);
  all.insert(all.end(), here.begin(), here.end());
  return all;
}

double Training::held_out_loss(World& world, const std::vector<RankRun*>& ranks) const {
  std::vector<std::vector<double>> losses(ranks.size());
  world.run([&](int rank) {
    const auto place = static_cast<size_t>(rank - world.local_ranks().front());
    for (int batch = 0; batch < settings_.held_out_batches; ++batch)
      losses[place].push_back(ranks[place]->held_out_loss(batch));
  });
  const std::vector<double> all = sum_of_ranks(world, losses);
  return all.empty() ? 0 : std::reduce(all.begin(), all.end()) / static_cast<double>(all.size());
}

namespace {

Gpt2Shape gpt2_shape(const Plan& plan) { return {plan.shape.layer, plan.layers, plan.vocabulary, plan.step.tied}; }

}  // namespace

void take_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan) {
  world.run([&](int rank) {
    RankRun& mine = *ranks[rank - world.local_ranks().front()];
    read_gpt2(file, gpt2_shape(plan), mine.model()->parameters(), mine.model()->memory());
  });
}

void save_weights(const std::string& file, World& world, const std::vector<RankRun*>& ranks, const Plan& plan) {
  const std::string parts = file + ".parts";
  std::vector<std::string> written;
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::vector<ShardedTensor> weights;
    for (const Parameter& p : ranks[i]->model()->parameters()) weights.push_back({p.name, p.axes, p.value});
    write_checkpoint(parts, 0, world.local_ranks()[i], weights, ranks[i]->model()->memory());
    written.emplace_back();
  }
  gather(world, written);  // after this, all processes have written their parts
  if (!is_leader(world)) return;
  write_gpt2(file, gpt2_shape(plan), complete_checkpoint(parts, 0, world.ranks(), ""));
  std::error_code error;
  std::filesystem::remove_all(parts, error);
  if (error) log_warning(fmt::format("{}: cannot be removed ({})", parts, error.message()));
}

}  // namespace moe::measure
