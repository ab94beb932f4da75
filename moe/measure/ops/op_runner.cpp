#include "moe/measure/ops/op_runner.h"

#include <algorithm>
#include <cstring>

#include "moe/base/check.h"
#include "moe/device/cpu/cores.h"
#include "moe/measure/layers/proxy.h"

namespace moe::measure {

struct OpRunner::Command {
  enum class Kind : int32_t { run, check, beside, both, end } kind = Kind::run;
  int32_t iterations = 1, by_iterations = 0;
  uint64_t op = 0, by = 0;
};

OpRunner::OpRunner(const BenchRanks& ranks, const std::vector<OpCase>& cases, double timeout_s)
    : ranks_(ranks), cases_(cases) {
  // An emulated cluster's data goes over a small proxy of it.
  if (!ranks_.processes) threads_.emplace(kProxyNodes * kProxyRanksPerNode, timeout_s);
  here_ = world().here();
  ops_.resize(here_.size());
  beside_.resize(here_.size());
  // A GPU's buffers are large, and a host's ranks have all of its cores.
  const int here = ranks_.processes ? world().topology().ranks_per_node : static_cast<int>(here_.size());
  const bool on_gpu = ranks_.device == DeviceKind::cuda;
  const int host_threads = on_gpu ? std::max(1, cpu::usable_core_count() / here) : ranks_.threads;
  world().run([&](int rank) {
    const RankOps::Place where{ranks_.device, world().topology().local_rank, ranks_.threads, host_threads};
    for (auto* ops : {&ops_, &beside_})
      (*ops)[place(rank)] = std::make_unique<RankOps>(*world().communicator(rank), where);
  });
}

OpRunner::~OpRunner() = default;

OpSample OpRunner::run(size_t op, int iterations, bool check) {
  Command command;
  command.kind = check ? Command::Kind::check : Command::Kind::run;
  command.iterations = check ? 1 : iterations;
  command.op = op;
  return order(command);
}

OpSample OpRunner::run_beside(size_t op, int iterations, size_t by, int by_iterations) {
  return order({Command::Kind::beside, iterations, by_iterations, op, by});
}

OpSample OpRunner::run_both(size_t op, int iterations, size_t other, int other_iterations) {
  return order({Command::Kind::both, iterations, other_iterations, op, other});
}

OpSample OpRunner::order(const Command& command) {
  tell(command);
  return perform(command);
}

void OpRunner::release() {
  Command command;
  command.kind = Command::Kind::end;
  tell(command);
}

void OpRunner::tell(const Command& command) {
  if (ranks_.processes) broadcast(world(), std::string(reinterpret_cast<const char*>(&command), sizeof command));
}

void OpRunner::follow() {
  while (true) {
    const std::string told = broadcast(world(), {});
    require_equal<RankFailure>(told.size(), sizeof(Command), "bytes of a command of rank 0");
    Command command;
    std::memcpy(&command, told.data(), sizeof command);
    if (command.kind == Command::Kind::end) return;
    perform(command);
  }
}

// Runs a command on a rank. `times`: start, end, overruns, wrong elements.
void OpRunner::perform_on(int rank, const Command& command, std::vector<double>& times, std::string& wrong) {
  RankOps& ops = *ops_[place(rank)];
  const OpCase& c = cases_.at(command.op);
  ops.prepare(c, command.kind == Command::Kind::check);
  const bool two = command.kind == Command::Kind::beside || command.kind == Command::Kind::both;
  RankOps& beside = *beside_[place(rank)];
  if (two) {
    const OpCase& by = cases_.at(command.by);
    beside.prepare(by, false);
    ops.begin(c, command.iterations, {.more = command.by_iterations});
    beside.begin(by, command.by_iterations, {.beside = &ops});
    ops.finish();
    beside.finish();
  } else {
    ops.begin(c, command.iterations, {.paced = command.kind != Command::Kind::check});
    ops.finish();
  }
  times = {ops.start_s(), ops.end_s(), static_cast<double>(ops.take_overruns()), 0};
  if (command.kind == Command::Kind::both) times[1] = std::max(times[1], beside.end_s());
  if (command.kind != Command::Kind::check) return;
  WrongElements found = ops.check(c);
  times.back() = static_cast<double>(found.count);
  wrong = std::move(found.first);
}

OpSample OpRunner::perform(const Command& command) {
  const OpCase& c = cases_.at(command.op);
  std::vector<std::vector<double>> times(here_.size());
  std::vector<std::string> wrong(here_.size());
  world().run([&](int rank) { perform_on(rank, command, times[place(rank)], wrong[place(rank)]); });
  // Threads share a clock: a collective starts when the last rank of its group has come, since barriers let ranks go
  // one after the other. Processes may not; there iterations make up for it.
  if (!ranks_.processes)
    for (size_t r = 0; r < times.size(); ++r)
      for (size_t other = 0; other < times.size(); ++other)
        if (ops_[other]->group_of(c) == ops_[r]->group_of(c)) times[r][0] = std::max(times[r][0], times[other][0]);
  const int iterations = command.kind == Command::Kind::both ? 1 : command.iterations;
  OpSample sample;
  for (const auto& rank : gather(world(), times)) {
    sample.seconds.push_back((rank.at(1) - rank.at(0)) / iterations / c.dilation);
    sample.overruns += static_cast<int64_t>(rank.at(2));
    sample.wrong.count += static_cast<int64_t>(rank.at(3));
  }
  if (command.kind != Command::Kind::check) return sample;
  for (std::string& rank : gather(world(), std::move(wrong)))
    if (sample.wrong.first.empty()) sample.wrong.first = std::move(rank);
  return sample;
}

}  // namespace moe::measure
